"""Text agents over HTTP: the recorded agents' prompts, answers and errors, on real model servers."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.agent.parsers.xml import escaped
from tests.agent.cases import CASES
from tests.e2e.text_runs import CASE_PROMPT, agent, ended, on, prompts, spoken, steps_of, stop_of, text_server, told
from tests.support import anthropic_messages
from tests.support.bodies import says, scripted, shown
from tests.support.chat_completions import ChatCompletionsServer, Reply, answer_chunks, chunk, fails
from tests.support.chat_completions import events as sse
from tests.support.chat_completions import says as model_says
from tests.support.server import RunwireServer
from tests.support.streams import names

pytestmark = pytest.mark.anyio

LINK = "\nFor troubleshooting, visit: https://docs.langchain.com/oss/python/langchain/errors/OUTPUT_PARSING_FAILURE "
DEMAND = "\n\nI now need to return a final answer based on the previous steps:"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with text_server(tmp_path_factory.mktemp("text")) as running:
        yield running


def expected(case: dict[str, Any]) -> dict[str, Any]:
    """What the peer did, in our words: no link in its errors, an object as JSON."""
    text = json.dumps(case["expect"]).replace(json.dumps(LINK)[1:-1], "")
    return json.loads(text.replace("{'k': '\\u503c', 'n': None}", json.dumps('{"k":"值","n":null}')[1:-1]))


def model_of(case: dict[str, Any]) -> ChatCompletionsServer:
    return ChatCompletionsServer([model_says(text) for text in case["given"]["model_texts"]])


@pytest.mark.parametrize("case_id", ["A-R01", "A-R02", "A-R03", "A-R04", "A-R05", "A-R06", "A-R07", "A-R09"])
async def test_react_shows_its_model_the_recorded_prompts(client: httpx.AsyncClient, case_id: str) -> None:
    case = CASES[case_id]
    given, wanted = case["given"], expected(case)
    prompt: object = CASE_PROMPT
    if given["agent_settings"]:
        prompt = {"template": CASE_PROMPT, **given["agent_settings"]}
    async with model_of(case) as model:
        tools = [tool["name"] for tool in given["tools"]]
        run = await ended(client, on(model, "react", *tools, prompt=prompt, **given["settings"]))
        assert run["output"] == {"output": wanted["result"]["output"]}
        assert steps_of(run) == wanted["result"]["intermediate_steps"]
        assert [
            {"prompt": prompt, "stop": stop_of(request)}
            for prompt, request in zip(prompts(model), model.requests, strict=True)
        ] == wanted["model_calls"]
        assert all(len(shown(request)) == 1 for request in model.requests)


async def test_a_react_run_at_its_limit_may_generate_an_answer(client: httpx.AsyncClient) -> None:
    """A-R08: the peer fails after the whole work is done."""
    settings = CASES["A-R08"]["given"]["settings"]
    replies = [model_says("Action: search\nAction Input: foo"), model_says("Final Answer: it is foo")]
    async with ChatCompletionsServer(replies) as model:
        run = await ended(client, on(model, "react", "search", prompt=CASE_PROMPT, **settings))
        assert (run["output"], run["stop_reason"], run["iterations"]) == ({"output": "it is foo"}, "max_iterations", 1)
        assert prompts(model)[1].endswith(f"Observation: search:foo\nThought: {DEMAND}")
        assert stop_of(model.requests[1]) == ["\nObservation"]


@pytest.mark.parametrize("case_id", ["A-G01", "A-G02", "A-G03"])
async def test_a_generated_answer_is_what_the_recorded_agents_gave(client: httpx.AsyncClient, case_id: str) -> None:
    """A-G03: the peer fails although parse errors are handled; the raw text is the answer."""
    case = CASES[case_id]
    wanted = case["expect"]["result"].get("output", "just talk")
    async with model_of(case) as model:
        body = on(model, "react", "search", prompt=CASE_PROMPT, **case["given"]["settings"])
        events = await told(client, body)
        run = (await client.get(f"/runs/{events[0].data['run_id']}")).json()
        assert run["output"] == {"output": wanted}
        assert (run["stop_reason"], run["iterations"], run["usage"]["model_calls"]) == ("max_iterations", 1, 2)
        assert len(model.requests) == 2
        assert prompts(model)[1].endswith(DEMAND)
    assert spoken(events) == wanted
    assert names(events)[-3:] == ["usage", "finish", "end"]


async def test_an_unknown_early_stopping_method_is_refused_before_a_model_is_called(client: httpx.AsyncClient) -> None:
    """A-G04."""
    async with model_of(CASES["A-G04"]) as model:
        answer = await client.post("/runs", json=on(model, "react", "search", early_stopping_method="foo"))
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/agent/early_stopping_method"
        assert not model.requests


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        pytest.param(fails(400, "no"), "max_iterations", id="a model that fails"),
        pytest.param(model_says(""), "max_iterations", id="an empty answer"),
    ],
)
async def test_a_last_answer_that_fails_leaves_the_fixed_text(
    client: httpx.AsyncClient, reply: Reply, reason: str
) -> None:
    async with ChatCompletionsServer([model_says("Action: search\nAction Input: foo"), reply]) as model:
        settings = CASES["A-R08"]["given"]["settings"]
        run = await ended(client, on(model, "react", "search", **settings))
    assert (run["status"], run["stop_reason"]) == ("success", reason)
    assert run["output"] == {"output": "Agent stopped due to iteration limit or time limit."}


ANSWERS = {
    "react": ("Thought: easy\nAction: search\nAction Input: foo", "Thought: so\nFinal Answer: it is {foo}"),
    "react_json": (
        'Thought: easy\nAction:\n```json\n{"action": "search", "action_input": {"x": "foo"}}\n```',
        "Thought: so\nFinal Answer: it is {foo}",
    ),
    "structured_chat": (
        '```json\n{"action": "search", "action_input": {"x": "foo"}}\n```',
        '```json\n{"action": "Final Answer", "action_input": "it is {foo}"}\n```',
    ),
    "xml": (
        "easy <tool>search</tool><tool_input>foo</tool_input>",
        "so <final_answer>it is {foo}</final_answer>",
    ),
    "self_ask": ("easy\nFollow up: foo", "so\nSo the final answer is: it is {foo}"),
}
UNREADABLE = {
    "react": "I dunno {x}",
    "react_json": "I dunno {x}",
    "structured_chat": "I dunno {x}",
    "xml": "<tool>a</tool><tool>b</tool>",
    "self_ask": "I dunno {x}",
}


@pytest.mark.parametrize("kind", ANSWERS)
async def test_every_type_acts_and_answers_while_it_streams(client: httpx.AsyncClient, kind: str) -> None:
    async with ChatCompletionsServer([model_says(text) for text in ANSWERS[kind]]) as model:
        events = await told(client, on(model, kind, "search"))
        second = prompts(model)[1]
    order = [name for name in names(events) if name not in ("output",)]
    assert order == ["run", "usage", "action", "step", "usage", "finish", "end"]
    assert spoken(events) == "it is {foo}"
    assert [item.data["observation"] for item in events if item.event == "step"] == ["search:foo"]
    assert "search:foo" in second
    assert next(item for item in events if item.event == "finish").data["return_values"] == {"output": "it is {foo}"}
    if kind not in ("structured_chat",):
        first = next(item.id for item in events if item.event == "action")
        assert "easy" in spoken([item for item in events if item.id < first], "reasoning")
        assert "so" in spoken([item for item in events if item.id > first], "reasoning")


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("handling", [True, "Use the format, {please}."])
async def test_what_cannot_be_read_is_a_step_that_the_model_sees(
    client: httpx.AsyncClient, kind: str, handling: object
) -> None:
    replies = [model_says(UNREADABLE[kind]), model_says(ANSWERS[kind][1])]
    async with ChatCompletionsServer(replies) as model:
        events = await told(client, on(model, kind, "search", handle_parsing_errors=handling))
        run = (await client.get(f"/runs/{events[0].data['run_id']}")).json()
        again = prompts(model)[1]
    ((action, observation),) = steps_of(run)
    assert isinstance(action, dict)
    assert action["tool"] == "_Exception"
    assert action["tool_input"] == observation
    assert isinstance(observation, str)
    if handling is not True:
        assert observation == handling
    assert (escaped(observation) if kind == "xml" else observation) in again
    assert (run["iterations"], run["output"]) == (2, {"output": "it is {foo}"})
    assert [item.data["tool"] for item in events if item.event == "action"] == ["_Exception"]
    step = next(item.data for item in events if item.event == "step")
    assert (step["step"], step["iteration"], step["observation"]) == (1, 1, observation)


@pytest.mark.parametrize("kind", ANSWERS)
async def test_what_cannot_be_read_ends_the_run_where_nothing_handles_it(client: httpx.AsyncClient, kind: str) -> None:
    async with ChatCompletionsServer([model_says(UNREADABLE[kind])]) as model:
        run = await ended(client, on(model, kind, "search", handle_parsing_errors=False))
        assert len(model.requests) == 1
    assert (run["status"], run["error"]["code"]) == ("error", "output_parsing_error")
    assert run["error"]["request_id"]


@pytest.mark.parametrize("kind", ANSWERS)
async def test_parse_errors_count_as_rounds(client: httpx.AsyncClient, kind: str) -> None:
    async with ChatCompletionsServer([model_says(UNREADABLE[kind])]) as model:
        run = await ended(client, on(model, kind, "search", max_iterations=2))
        assert len(model.requests) == 2
    assert (run["iterations"], run["stop_reason"]) == (2, "max_iterations")
    assert run["output"] == {"output": "Agent stopped due to iteration limit or time limit."}
    assert len(steps_of(run)) == 2


@pytest.mark.parametrize("kind", ANSWERS)
async def test_every_type_may_generate_its_last_word(client: httpx.AsyncClient, kind: str) -> None:
    for last, wanted in ((ANSWERS[kind][1], "it is {foo}"), ("just {talk}", "just {talk}")):
        async with ChatCompletionsServer([model_says(ANSWERS[kind][0]), model_says(last)]) as model:
            body = on(model, kind, "search", max_iterations=1, early_stopping_method="generate")
            events = await told(client, body)
            assert prompts(model)[1].rstrip().endswith(DEMAND.strip())
            assert "search:foo" in prompts(model)[1]
        finish = next(item.data for item in events if item.event == "finish")
        assert (finish["return_values"], finish["stop_reason"]) == ({"output": wanted}, "max_iterations")
        assert spoken(events) == wanted


@pytest.mark.parametrize(("method", "calls"), [("force", 0), ("generate", 1)])
async def test_no_iteration_at_all_stops_at_once(client: httpx.AsyncClient, method: str, calls: int) -> None:
    async with ChatCompletionsServer([model_says("Final Answer: x")]) as model:
        run = await ended(client, on(model, "react", "search", max_iterations=0, early_stopping_method=method))
        assert len(model.requests) == calls
    assert (run["stop_reason"], run["iterations"]) == ("max_iterations", 0)
    assert run["output"]["output"] == ("x" if calls else "Agent stopped due to iteration limit or time limit.")


async def test_nothing_is_generated_at_a_usage_limit(client: httpx.AsyncClient) -> None:
    async with ChatCompletionsServer([model_says("Action: search\nAction Input: foo")]) as model:
        limits = {"max_total_tokens": 5}
        run = await ended(client, on(model, "react", "search", limits=limits, early_stopping_method="generate"))
        assert len(model.requests) == 1
    assert (run["stop_reason"], run["output"]) == ("usage_limit", {"output": "Agent stopped due to usage limit."})


@pytest.mark.parametrize("kind", ANSWERS)
async def test_a_round_that_repeats_itself_too_often_stops_the_run(client: httpx.AsyncClient, kind: str) -> None:
    async with ChatCompletionsServer([model_says(ANSWERS[kind][0])]) as model:
        run = await ended(client, on(model, kind, "search", limits={"max_repeats": 1}))
        assert len(model.requests) == 3
    assert (run["stop_reason"], run["iterations"]) == ("max_repeats", 3)
    assert [observation == "search:foo" for _, observation in steps_of(run)] == [True, True, False]


async def test_anthropics_models_drive_a_react_agent(client: httpx.AsyncClient) -> None:
    replies = [anthropic_messages.says(text) for text in ANSWERS["react"]]
    async with anthropic_messages.messages_server(replies) as model:
        spec = {"provider": "anthropic", "model": "claude-test", "base_url": model.base_url}
        body = {"agent": agent("react", spec, "search", instructions="Be {brief}."), "input": "q?"}
        events = await told(client, body)
        first, second = (request.json for request in model.requests)
    assert first["stop_sequences"] == second["stop_sequences"] == ["\nObservation"]
    assert first["system"] == [{"type": "text", "text": "Be {brief}."}]
    assert "tools" not in first
    assert "Observation: search:foo" in json.dumps(second["messages"])
    assert spoken(events) == "it is {foo}"


async def test_a_server_that_ignores_stop_words_is_cut_here(client: httpx.AsyncClient) -> None:
    invented = "Thought: t\nAction: search\nAction Input: foo\nObservation: made up\nThought: so\nFinal Answer: wrong"
    async with ChatCompletionsServer([model_says(invented), model_says("Final Answer: right")]) as model:
        events = await told(client, on(model, "react", "search"))
        assert "made up" not in prompts(model)[1]
    action = next(item.data for item in events if item.event == "action")
    assert (action["tool_input"], action["log"]) == ("foo", "Thought: t\nAction: search\nAction Input: foo")
    assert spoken(events) == "right"


async def test_braces_are_never_read_again(client: httpx.AsyncClient) -> None:
    text = "{tools} {{x}} {0} {unknown} {agent_scratchpad}"
    replies = [model_says(f"{text}\nAction: search\nAction Input: {text}"), model_says(f"Final Answer: {text}")]
    async with ChatCompletionsServer(replies) as model:
        body = on(model, "react", "search", text=text, instructions=text)
        run = await ended(client, body)
        system, user = (message["content"] for message in shown(model.requests[1]))
    assert run["output"] == {"output": text}
    assert system == text
    assert f"The task: {text}\n" in user
    assert f"Thought: {text}\nAction: search\nAction Input: {text}\nObservation: search:{text}\nThought: " in user


async def test_a_scripted_model_speaks_for_a_text_agent_too(client: httpx.AsyncClient) -> None:
    turns = [says(text, chunk_size=3) for text in ANSWERS["react"]]
    events = await told(client, {"agent": agent("react", scripted(*turns), "search"), "input": "q?"})
    assert spoken(events) == "it is {foo}"
    quiet = agent("react", scripted(*turns), "search", stream_output=False)
    events = await told(client, {"agent": quiet, "input": "q?"})
    assert "output" not in names(events)
    assert next(item.data for item in events if item.event == "finish")["return_values"] == {"output": "it is {foo}"}


async def test_a_tool_may_answer_directly(client: httpx.AsyncClient) -> None:
    async with ChatCompletionsServer([model_says("Action: direct\nAction Input: at {once}")]) as model:
        run = await ended(client, on(model, "react", "direct"))
        assert len(model.requests) == 1
    assert (run["output"], run["stop_reason"]) == ({"output": "at {once}"}, "return_direct")


@pytest.mark.parametrize(
    ("text", "tool", "tool_input", "observation"),
    [
        pytest.param('add\nAction Input: {"a": 1, "b": 2}', "add", {"a": 1, "b": 2}, 3, id="A-V06"),
        pytest.param('add\nAction Input: ```json\n{"a": 1, "b": 2}\n```', "add", {"a": 1, "b": 2}, 3, id="in a fence"),
        pytest.param("double\nAction Input: 21", "double", {"number": 21}, 42, id="a number"),
        pytest.param('double\nAction Input: {"number": 21}', "double", {"number": 21}, 42, id="a named number"),
        pytest.param('search\nAction Input: {"x": 1}', "search", '{"x": 1}', 'search:{"x": 1}', id="JSON as text"),
        pytest.param("search\nAction Input: 21", "search", "21", "search:21", id="a number as text"),
    ],
)
async def test_text_that_can_only_be_arguments_becomes_them(
    client: httpx.AsyncClient, text: str, tool: str, tool_input: object, observation: object
) -> None:
    async with ChatCompletionsServer([model_says(f"Action: {text}"), model_says("Final Answer: x")]) as model:
        run = await ended(client, on(model, "react", "add", "double", "search"))
    assert steps_of(run) == [[{"tool": tool, "tool_input": tool_input, "log": f"Action: {text}"}, observation]]


@pytest.mark.parametrize("text", ["1 and 2", "[1, 2]", '{"a": 1', '{"a": "\\u0000", "b": 2}', '{"a": NaN, "b": 2}'])
async def test_text_that_is_no_arguments_is_told_what_is_wrong(client: httpx.AsyncClient, text: str) -> None:
    replies = [model_says(f"Action: add\nAction Input: {text}"), model_says("Final Answer: x")]
    async with ChatCompletionsServer(replies) as model:
        run = await ended(client, on(model, "react", "add"))
    ((action, observation),) = steps_of(run)
    assert isinstance(action, dict)
    assert action["tool_input"] == text
    assert "add was not called, its arguments do not fit its schema" in str(observation)
    assert run["output"] == {"output": "x"}


async def test_a_tool_without_parameters_can_be_called(client: httpx.AsyncClient) -> None:
    for given in ("", "none", "{}"):
        replies = [model_says(f"Action: ping\nAction Input: {given}"), model_says("Final Answer: x")]
        async with ChatCompletionsServer(replies) as model:
            run = await ended(client, on(model, "react", "ping"))
        assert [observation for _, observation in steps_of(run)] == ["pong"], given


async def test_an_action_that_the_output_limit_may_have_cut_is_not_run(client: httpx.AsyncClient) -> None:
    cut = Reply(body=sse(answer_chunks("Action: search\nAction Input: half an inp", finish="length")))
    whole = "Action: search\nAction Input: whole\nObservation: and so"
    stopped = Reply(body=sse(answer_chunks(whole, finish="length")))
    final = Reply(body=sse(answer_chunks("Final Answer: half an ans", finish="length")))
    async with ChatCompletionsServer([cut, stopped, final]) as model:
        run = await ended(client, on(model, "react", "search"))
        assert "output limit" in prompts(model)[1]
    first, second = steps_of(run)
    assert str(first[1]).startswith("Not run: ")
    assert second[1] == "search:whole"
    assert run["output"] == {"output": "half an ans", "truncated": True}


async def test_a_refusal_is_the_answer(client: httpx.AsyncClient) -> None:
    said = sse(
        [chunk({"role": "assistant", "content": None}), chunk({"refusal": "I will not."}), chunk({}, finish="stop")]
    )
    async with ChatCompletionsServer([Reply(body=said)]) as model:
        events = await told(client, on(model, "react", "search"))
    finish = next(item.data for item in events if item.event == "finish")
    assert finish["return_values"] == {"output": "I will not.", "refusal": True}
    assert spoken(events) == "I will not."


# --- what is refused before a model is called --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "detail"),
    [
        pytest.param("{tools} {tool_names} {input}", "agent_scratchpad", id="A-R10"),
        ("{tools} {tool_names} {agent_scratchpad} {", "brace"),
        ("{tools} {tool_names} {agent_scratchpad} }", "brace"),
        ("{tools} {tool_names} {agent_scratchpad} {input.text}", "input.text"),
        ("{tools} {tool_names} {agent_scratchpad} {input[0]}", "input[0]"),
        ("{tools} {tool_names} {agent_scratchpad} {input!r}", "plain variables"),
        ("{tools} {tool_names} {agent_scratchpad} {input:>10}", "plain variables"),
        ("{tools} {tool_names} {agent_scratchpad} {0}", "`0`"),
        ("{tools} {tool_names} {agent_scratchpad} {}", "``"),
        ({"template": "{input}"}, "agent_scratchpad"),
        ({"templat": "x"}, "templat"),
        ({"stop_sequence": "x"}, "stop_sequence"),
        ({"stop_sequence": [""]}, "stop_sequence"),
        ({"stop_sequence": ["a", "b", "c", "d", "e"]}, "stop_sequence"),
        (7, ""),
        ([], ""),
    ],
)
async def test_a_prompt_that_cannot_be_used_is_refused_where_it_stands(
    client: httpx.AsyncClient, prompt: object, detail: str
) -> None:
    spec = agent("react", scripted(says("Final Answer: x")), "search", prompt=prompt)
    for path, body, pointer in (
        ("/runs", {"agent": spec, "input": "q?"}, "/agent/prompt"),
        ("/agents", {"name": "badly_prompted", **spec}, "/prompt"),
    ):
        answer = await client.post(path, json=body)
        assert answer.status_code == 422, answer.text
        errors = answer.json()["errors"]
        assert {error["pointer"] for error in errors} == {pointer}
        assert detail in errors[0]["detail"]


async def test_a_prompt_is_for_text_agents(client: httpx.AsyncClient) -> None:
    answer = await client.post("/runs", json={"agent": agent("tool_calling", scripted(), prompt="x"), "input": "q?"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/agent/prompt"


@pytest.mark.parametrize("registered", [False, True])
async def test_variables_of_a_prompt_come_with_the_input(client: httpx.AsyncClient, *, registered: bool) -> None:
    prompt = f"You speak {{language}} to {{who}}.\n{CASE_PROMPT}"
    async with ChatCompletionsServer([model_says("Final Answer: x")]) as model:
        body = on(model, "react", "search", prompt=prompt)
        if registered:
            made = await client.post("/agents", json={"name": "linguist", **body["agent"]})
            assert made.status_code == 201, made.text
            assert (await client.get("/agents/linguist")).json()["prompt"] == prompt
            body["agent"] = "linguist"
        for lacking in (
            "q?",
            {"input": "q?"},
            {"input": "q?", "who": "me"},
            {"messages": [{"role": "user", "content": "q?"}]},
        ):
            answer = await client.post("/runs", json={**body, "input": lacking})
            assert (answer.status_code, answer.json()["code"]) == (422, "missing_input")
            assert "/input/language" in [error["pointer"] for error in answer.json()["errors"]]
        assert not model.requests
        given = {"input": "q?", "language": "{German}", "who": {"name": "Ä"}, "unused": 1}
        run = await ended(client, {**body, "input": given})
        assert prompts(model)[0].startswith('You speak {German} to {"name":"Ä"}.\nTOOLS<')
    assert run["output"] == {"output": "x"}


async def test_an_input_cannot_stand_for_the_servers_own_variables(client: httpx.AsyncClient) -> None:
    async with ChatCompletionsServer([model_says("Final Answer: x")]) as model:
        given = {"input": "q?", "tools": "none", "tool_names": "none", "agent_scratchpad": "done"}
        await ended(client, {**on(model, "react", "search", prompt=CASE_PROMPT), "input": given})
        assert prompts(model) == ["TOOLS<search(x) - search> NAMES<search>\nQuestion: q?\nThought:"]


@pytest.mark.parametrize("tools", [[], ["search", "calc"]])
async def test_self_ask_asks_exactly_one_tool(client: httpx.AsyncClient, tools: list[str]) -> None:
    answer = await client.post("/runs", json={"agent": agent("self_ask", scripted(), *tools), "input": "q?"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/agent/tools"
