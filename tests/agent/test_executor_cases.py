"""AgentExecutor's observed behaviour, case by case, on our loop; where we decide differently the reason stands here."""

import json
from typing import Any, cast

import pytest

from app.agent.plugin_api import OutputParserException, parsing_error_handler
from app.agent.ports import ParseError
from app.agent.records import Answered, Failed, Finished, StepDone
from app.agent.settings import AgentSettings, Limits
from app.core.errors import ModelError, PluginFailed
from app.runs.loop_plugins import LoopPlugins
from tests.agent.cases import CASES as ALL
from tests.agent.support import Ended, Ledger, ScriptedPlanner, make_tools, run_loop

pytestmark = pytest.mark.anyio

CASES = {name: case for name, case in ALL.items() if name[2].isdigit()}
"""The loop's own; those of parsers, prompts, messages and whole agents are with what they are about."""

NO_COUNTERPART = {
    "A-011": "the synchronous path; Runwire is async only",
    "A-067": "the synchronous path; Runwire is async only",
    "A-091": "the synchronous path; Runwire is async only",
    "A-098": "the chunks of AgentExecutorIterator; Runwire's stream is its events",
    "A-099": "a batch; over HTTP these are independent runs",
    "A-M09": "the scratchpad of agents with OpenAI's old functions; their models take tool calls today",
}
"""Cases that Runwire has no place for, and why."""

OWN_TESTS = {"A-027", "A-073", "A-075", "A-076", "A-081", "A-090", "A-092", "A-093", "A-095", "A-096", "A-097"}
"""Cases with a test of their own below."""

ELSEWHERE = {"A-050", "A-051", "A-052", "A-053", "A-054", "A-082", "A-083", "A-084", "A-100", "A-102", "A-103"}
"""Cases that are seen elsewhere: in what the model is shown, in plugins, at the border."""

DIFFERENT: dict[str, dict[str, Any]] = {
    "A-045": {"output": "fixed", "why": "an error of a return_direct tool is not the answer", "planner_calls": 2},
    "A-059": {
        "output": "Agent stopped due to max iterations.",
        "why": "an empty plan counts and is told, it is no crash",
    },
    "A-060": {"failed": "tool_error", "why": "the run ends with a stable code after every sibling has its result"},
    "A-066": {"output": None, "why": "an exception is an observation; siblings are never lost"},
    "A-088": {"output": "ok", "why": "arguments that do not fit are an observation for the model"},
    "A-089": {"output": "ok", "why": "arguments are checked against the schema, not taken by position"},
    "A-086": {"failed": "missing_output_keys", "why": "the same refusal under a stable code"},
    "A-024": {"failed": "output_parsing_error", "why": "the same refusal under a stable code"},
}


def settings_of(case: dict[str, Any]) -> AgentSettings:
    given = case["given"]
    settings = dict(given.get("settings") or {})
    for tool in given.get("tools", []):
        if "handle_tool_error" in tool:
            settings["handle_tool_errors"] = tool["handle_tool_error"]
    return AgentSettings.from_json(settings)


async def play(case: dict[str, Any], settings: AgentSettings | None = None) -> tuple[Ended, ScriptedPlanner, Ledger]:
    given = case["given"]
    settings = settings or settings_of(case)
    ledger = Ledger()
    turns = list(given["planner"])
    if case["id"] == "A-066":
        turns.append({"finish": {"return_values": {"output": "went on"}, "log": ""}})
    planner = ScriptedPlanner(
        turns,
        multi=given["agent"] == "multi",
        repeat_last=bool(given.get("planner_repeats_last")),
        delay_s=given.get("plan_delay_ms", 0) / 1000,
    )
    return await run_loop(planner, make_tools(given.get("tools", []), ledger, settings), settings), planner, ledger


def without_link(value: object) -> object:
    """The peer adds a link to its own documentation to parsing errors."""
    text = json.dumps(value, ensure_ascii=False)
    marker = (
        "\\nFor troubleshooting, visit: https://docs.langchain.com/oss/python/langchain/errors/OUTPUT_PARSING_FAILURE "
    )
    return json.loads(text.replace(marker, ""))


AS_THE_PEER = [
    name
    for name, case in CASES.items()
    if name not in NO_COUNTERPART.keys() | DIFFERENT.keys() | OWN_TESTS | ELSEWHERE
    and isinstance(case["expect"].get("result"), dict)
    and case["given"].get("mode") in ("invoke", "ainvoke")
]


@pytest.mark.parametrize("name", AS_THE_PEER)
async def test_the_loop_does_what_agent_executor_does(name: str) -> None:
    case = CASES[name]
    ended, planner, ledger = await play(case)
    expected = cast("dict[str, Any]", without_link(case["expect"]["result"]))
    assert isinstance(ended.end, Finished), ended.end
    values = ended.end.finish.return_values
    assert {**values} == {
        key: value
        for key, value in expected.items()
        if key not in ("input", "intermediate_steps", *case["given"].get("input", {}))
    }
    if "intermediate_steps" in expected:
        assert ended.intermediate_steps() == expected["intermediate_steps"]
    if "planner_calls" in case["expect"] and "planner_calls" not in case.get("varies", ""):
        assert planner.calls == case["expect"]["planner_calls"]
    if "tool_events" in case["expect"]:
        assert ledger.events == case["expect"]["tool_events"]
    if "steps_seen_by_planner_each_round" in case["expect"]:
        assert planner.seen == case["expect"]["steps_seen_by_planner_each_round"]


@pytest.mark.parametrize("name", list(DIFFERENT))
async def test_the_loop_decides_differently_where_it_says_so(name: str) -> None:
    ended, planner, _ = await play(CASES[name])
    wanted = DIFFERENT[name]
    if "failed" in wanted:
        assert isinstance(ended.end, Failed)
        assert ended.end.code == wanted["failed"]
    else:
        assert isinstance(ended.end, Finished)
        if wanted["output"] is not None:
            assert ended.end.finish.return_values["output"] == wanted["output"]
    if "planner_calls" in wanted:
        assert planner.calls == wanted["planner_calls"]


def test_every_case_of_the_loop_is_placed() -> None:
    """That each place has a test is seen in `test_every_case.py`."""
    assert set(CASES) == {*AS_THE_PEER, *DIFFERENT, *OWN_TESTS, *ELSEWHERE, *NO_COUNTERPART} & set(CASES)
    assert not set(AS_THE_PEER) & (DIFFERENT.keys() | OWN_TESTS | ELSEWHERE)


@pytest.mark.parametrize("name", ["A-075", "A-076"])
async def test_the_stream_ends_with_the_peers_answer(name: str) -> None:
    ended, _, _ = await play(CASES[name])
    last = CASES[name]["expect"]["result"]["chunks"][-1]
    assert isinstance(ended.end, Finished)
    assert ended.end.finish.return_values["output"] == last["output"]
    assert ended.intermediate_steps() == last["intermediate_steps"]


async def test_a_handled_parse_error_is_announced_and_becomes_a_step_A_073_A_097() -> None:
    ended, _, _ = await play(CASES["A-073"])
    answered = next(record for record in ended.records if isinstance(record, Answered))
    assert [call.action.tool for call in answered.calls] == ["_Exception"]
    assert [step.outcome.observation for step in ended.steps] == ["OBS-FOR-LLM"]


async def test_all_actions_of_a_round_are_told_before_any_step_A_081() -> None:
    case = CASES["A-081"]
    ended, _, ledger = await play(case)
    told = [
        *(
            ["agent_action", call.action.tool]
            for record in ended.records
            if isinstance(record, Answered)
            for call in record.calls
        ),
        *(
            ["tool_end", cast("str", record.outcome.observation)]
            for record in ended.records
            if isinstance(record, StepDone)
        ),
        ["agent_finish"],
    ]
    assert told == [event for event in case["expect"]["events"] if event[0] != "tool_start"]
    assert [event[:2] for event in ledger.events[:2]] == [["start", "a"], ["start", "b"]]


async def test_a_tools_own_timeout_is_not_the_runs_limit_A_090() -> None:
    settings = AgentSettings(max_execution_time=30)
    planner = ScriptedPlanner(
        [
            {"action": {"tool": "db", "tool_input": "x", "log": ""}},
            {"finish": {"return_values": {"output": "ok"}, "log": ""}},
        ],
        multi=False,
    )
    tools = make_tools([{"name": "db", "raises": ["TimeoutError", "db timed out"]}], Ledger(), settings)
    ended = await run_loop(planner, tools, settings)
    assert isinstance(ended.end, Finished)
    assert ended.end.stop_reason == "finish"
    assert ended.steps[0].outcome.status == "error"
    assert "db timed out" not in str(ended.steps[0].outcome)


@pytest.mark.parametrize(("handling", "end"), [(True, Finished), (False, Failed)])
async def test_a_tool_error_is_a_step_and_ends_the_run_only_when_unhandled_A_095(handling: bool, end: type) -> None:
    settings = AgentSettings(handle_tool_errors=handling)
    planner = ScriptedPlanner(
        [
            {"action": {"tool": "bad", "tool_input": "x", "log": ""}},
            {"finish": {"return_values": {"output": "ok"}, "log": ""}},
        ],
        multi=False,
    )
    ended = await run_loop(
        planner, make_tools([{"name": "bad", "tool_exception": "boom"}], Ledger(), settings), settings
    )
    assert isinstance(ended.end, end)
    assert [(step.outcome.status, step.outcome.observation) for step in ended.steps] == [("error", "boom")]


async def test_an_unknown_tool_is_told_under_its_own_name_A_096() -> None:
    settings = AgentSettings()
    planner = ScriptedPlanner(
        [
            {"action": {"tool": "nope", "tool_input": "x", "log": ""}},
            {"finish": {"return_values": {"output": "ok"}, "log": ""}},
        ],
        multi=False,
    )
    ended = await run_loop(planner, make_tools([{"name": "search"}], Ledger(), settings), settings)
    assert ended.steps[0].call.action.tool == "nope"
    assert ended.steps[0].outcome.observation == "nope is not a valid tool, try one of [search]."


def policy_of(answer: object) -> AgentSettings:
    async def handle(error: ParseError) -> str:
        if isinstance(answer, Exception):
            raise answer
        return f"{answer}{error.message[:20]}"

    return AgentSettings(handle_parsing_errors=handle)


async def test_a_plugin_words_what_the_model_reads_A_027() -> None:
    case = CASES["A-027"]
    ended, _, _ = await play(case, policy_of("CB:"))
    assert isinstance(ended.end, Finished)
    expected = cast("Any", without_link(case["expect"]["result"]["intermediate_steps"]))
    assert ended.intermediate_steps() == expected


async def test_a_plugin_that_gives_no_text_has_failed_A_092() -> None:
    """The peer shows the model the dict's Python form, or a value out of it."""

    def gives_a_dict(error: OutputParserException) -> str:
        return cast("str", {"a": 1})

    plugins = LoopPlugins([parsing_error_handler("gives_a_dict")(gives_a_dict)])
    policy = plugins.parse_policy("gives_a_dict")
    assert policy is not None
    with pytest.raises(PluginFailed, match="must give text"):
        await play(CASES["A-027"], AgentSettings(handle_parsing_errors=policy))


async def test_a_plugin_that_raises_ends_the_run_A_093() -> None:
    with pytest.raises(ModelError, match="broken"):
        await play(CASES["A-027"], policy_of(ModelError("broken", code="x")))


A = {"action": {"tool": "a", "tool_input": "1", "log": ""}}
B = {"action": {"tool": "a", "tool_input": "2", "log": ""}}


async def ended_by(turns: list[object], settings: AgentSettings, *, repeat_last: bool = True) -> tuple[Ended, Ledger]:
    ledger = Ledger()
    planner = ScriptedPlanner(turns, multi=False, repeat_last=repeat_last)
    return await run_loop(planner, make_tools([{"name": "a"}], ledger, settings), settings), ledger


@pytest.mark.parametrize(("allowed", "done"), [(0, 1), (1, 2), (3, 4)])
async def test_a_model_that_only_repeats_itself_is_stopped_before_the_next_effect(allowed: int, done: int) -> None:
    ended, ledger = await ended_by([A], AgentSettings(limits=Limits(max_repeats=allowed)))
    assert isinstance(ended.end, Finished)
    assert ended.end.stop_reason == "max_repeats"
    assert ended.end.finish.return_values == {"output": "Agent stopped due to repeated actions."}
    assert [event[0] for event in ledger.events].count("start") == done
    assert [step.outcome.status for step in ended.steps] == ["success"] * done + ["error"]


async def test_a_different_action_in_between_is_no_repeat() -> None:
    ended, _ = await ended_by([A, B, A, B], AgentSettings(max_iterations=4, limits=Limits(max_repeats=0)))
    assert isinstance(ended.end, Finished)
    assert ended.end.stop_reason == "max_iterations"


async def test_the_same_parse_error_on_every_turn_is_a_repeat() -> None:
    turn = {"parse_error": {"message": "no"}}
    ended, _ = await ended_by([turn], AgentSettings(max_iterations=None, limits=Limits(max_repeats=2)))
    assert isinstance(ended.end, Finished)
    assert ended.end.stop_reason == "max_repeats"
    assert [step.call.action.tool for step in ended.steps] == ["_Exception"] * 4


async def test_an_answer_that_could_not_be_read_is_no_tool_call() -> None:
    unread = {"parse_error": {"message": "no"}}
    last = {"finish": {"return_values": {"output": "42"}, "log": ""}}
    settings = AgentSettings(limits=Limits(max_tool_calls=1))
    ended, ledger = await ended_by([unread, A, unread, unread, last], settings, repeat_last=False)
    assert isinstance(ended.end, Finished)
    assert (ended.end.stop_reason, ended.end.finish.return_values) == ("finish", {"output": "42"})
    assert ended.state.usage.tool_calls == 1
    assert [event[0] for event in ledger.events].count("start") == 1
    said = {step.outcome.observation for step in ended.steps if step.call.action.tool == "_Exception"}
    assert said == {"Invalid or incomplete response"}


@pytest.mark.parametrize("limit", [{"max_iterations": 1}, {"max_iterations": 0}, {"limits": Limits(max_repeats=0)}])
async def test_generate_gives_the_model_one_last_word_A_G01(limit: dict[str, Any]) -> None:
    settings = AgentSettings(early_stopping_method="generate", **limit)
    last = {"finish": {"return_values": {"output": "42"}, "log": "so: 42"}}
    turns = {"max_iterations": [A] * limit.get("max_iterations", 0), "limits": [A, A]}[next(iter(limit))]
    ended, _ = await ended_by([*turns, last], settings, repeat_last=False)
    assert isinstance(ended.end, Finished)
    assert ended.end.finish.return_values == {"output": "42"}
    assert ended.end.stop_reason == ("max_repeats" if "limits" in limit else "max_iterations")


@pytest.mark.parametrize("last", [A, {"parse_error": {"message": "no"}}])
async def test_a_last_word_that_is_none_gives_the_fixed_text(last: dict[str, Any]) -> None:
    settings = AgentSettings(early_stopping_method="generate", max_iterations=1)
    ended, ledger = await ended_by([A, last], settings)
    assert isinstance(ended.end, Finished)
    assert ended.end.finish.return_values["output"] == "Agent stopped due to iteration limit or time limit."
    assert [event[0] for event in ledger.events].count("start") == 1


async def test_no_last_word_beyond_a_usage_limit() -> None:
    settings = AgentSettings(early_stopping_method="generate", limits=Limits(max_tool_calls=0))
    ended, _ = await ended_by([A], settings)
    assert isinstance(ended.end, Finished)
    assert ended.end.finish.return_values == {"output": "Agent stopped due to usage limit."}
