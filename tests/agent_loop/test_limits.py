"""The peers' limits of model calls and tool calls, case by case, over HTTP, on Runwire's own limits."""

import httpx
import pytest

from tests.agent_loop.support import Call, Model, posted
from tests.support.bodies import openai, run_body, tool_spec
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

MAX_ITERATIONS = "Agent stopped due to max iterations."
USAGE = "Agent stopped due to usage limit."
UNKNOWN: list[Call] = [("c1", "nope", {})]


def echoes(*texts: str) -> list[Call]:
    return [(f"c{text}", "echo", {"x": text}) for text in texts]


async def test_a_limit_of_rounds_ends_the_run_with_a_fixed_answer_B_201(client: httpx.AsyncClient) -> None:
    """The words are AgentExecutor's."""
    async with Model(echoes("1"), echoes("2"), echoes("3")) as model:
        played = await posted(client, model, "echo", agent={"max_iterations": 2})
    assert (played.run["status"], played.run["stop_reason"], played.model_calls) == ("success", "max_iterations", 2)
    assert (await played.said())[-2:] == [("tool", "echo:2", "c2"), ("assistant", MAX_ITERATIONS)]
    assert played.answer == MAX_ITERATIONS


async def test_a_limit_of_no_rounds_calls_no_model_B_205(client: httpx.AsyncClient) -> None:
    async with Model("a") as model:
        played = await posted(client, model, agent={"max_iterations": 0})
    assert (played.answer, played.model_calls) == (MAX_ITERATIONS, 0)


async def test_limits_are_a_runs_own_and_start_anew_with_the_next_one_B_203_B_204_B_217(
    client: httpx.AsyncClient,
) -> None:
    """The peer can count over a thread."""
    settings = {"max_iterations": 2, "limits": {"max_tool_calls": 1}}
    async with Model(echoes("1"), "a", echoes("2"), "b") as model:
        first = await posted(client, model, "echo", agent=settings)
        second = await posted(client, model, "echo", agent=settings, thread_id=first.run["thread_id"])
    assert [(played.answer, played.run["stop_reason"]) for played in (first, second)] == [
        ("a", "finish"),
        ("b", "finish"),
    ]


async def test_an_endless_loop_stops_as_a_success_B_029(client: httpx.AsyncClient) -> None:
    """The peer fails at its recursion limit."""
    async with Model(echoes("1")) as model:
        played = await posted(client, model, "echo", agent={"max_iterations": 3})
    assert (played.run["status"], played.answer, played.model_calls) == ("success", MAX_ITERATIONS, 3)
    assert len(await played.steps()) == 3


async def test_an_agent_stops_after_15_rounds_where_nothing_else_is_said_B_030(client: httpx.AsyncClient) -> None:
    """AgentExecutor's default; the peer's is 9,999 graph steps."""
    async with Model(echoes("1")) as model:
        played = await posted(client, model, "echo")
    assert (played.run["stop_reason"], played.run["iterations"], played.model_calls) == ("max_iterations", 15, 15)


async def test_limits_may_be_left_out_and_none_is_no_limit_B_206(client: httpx.AsyncClient) -> None:
    """The peer refuses a limit without a number. 20 rounds are more than the default."""
    async with Model(*(echoes(str(number)) for number in range(20)), "done") as model:
        played = await posted(client, model, "echo", agent={"max_iterations": None, "limits": {"max_tool_calls": None}})
    assert (played.answer, played.run["iterations"]) == ("done", 21)


# --- tool calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turns", "allowed", "statuses"),
    [
        pytest.param([echoes("1"), echoes("2")], 1, ["success", "error"], id="B-211"),
        pytest.param([echoes("1", "2", "3")], 2, ["success", "success", "error"], id="B-212"),
        pytest.param([UNKNOWN, echoes("2")], 1, ["error", "error"], id="B-221"),
    ],
)
async def test_calls_over_the_limit_have_a_result_and_the_run_stops(
    client: httpx.AsyncClient, turns: list[list[Call]], allowed: int, statuses: list[str]
) -> None:
    """B-211, B-212, B-221; the peer's model goes on, and its results of what was refused come first.

    B-214: there the whole round is lost with an exception.
    """
    async with Model(*turns, "never") as model:
        played = await posted(client, model, "echo", agent={"limits": {"max_tool_calls": allowed}})
    assert (played.run["status"], played.run["stop_reason"], played.answer) == ("success", "usage_limit", USAGE)
    assert played.model_calls == len(turns)
    steps = await played.steps()
    assert [step["status"] for step in steps] == statuses
    assert steps[-1]["observation"] == f"Not run: this run's limit of {allowed} tool calls is used up."
    asked = [call[0] for turn in turns for call in turn]
    assert [item[2] for item in await played.said() if item[0] == "tool"] == asked


async def test_a_round_over_its_own_limit_goes_on_with_the_model_B_212(client: httpx.AsyncClient) -> None:
    async with Model(echoes("1", "2", "3"), "done") as model:
        played = await posted(client, model, "echo", agent={"limits": {"max_tool_calls_per_round": 2}})
    assert [step["status"] for step in await played.steps()] == ["success", "success", "error"]
    assert (played.answer, played.run["stop_reason"], played.model_calls) == ("done", "finish", 2)


async def test_a_call_that_two_limits_forbid_has_one_result_B_220(client: httpx.AsyncClient) -> None:
    limits = {"max_tool_calls": 2, "max_tool_calls_per_round": 1}
    made: list[Call] = [*echoes("1"), ("c2", "other", {"x": "2"}), *echoes("3")]
    async with Model(made, "done") as model:
        played = await posted(client, model, "echo", "other", agent={"limits": limits})
    assert [item[2] for item in await played.said() if item[0] == "tool"] == ["c1", "c2", "c3"]
    assert [step["status"] for step in await played.steps()] == ["success", "error", "error"]


@pytest.mark.parametrize("setting", ["max_iterations", "max_tool_calls"])
async def test_a_limit_holds_over_answers_of_a_person_B_531(
    client: httpx.AsyncClient, tools: ToolServer, setting: str
) -> None:
    """In the peer it does where the limit is listed before the gate, else not at all."""
    settings = {"max_iterations": 2} if setting == "max_iterations" else {"limits": {"max_tool_calls": 2}}
    spec = tool_spec("pay", tools.url("/ok"), requires_approval=True)
    turns: list[list[Call]] = [[(f"c{number}", "pay", {"n": number})] for number in range(4)]
    async with Model(*turns, "fin") as model:
        played = await posted(client, model, spec, agent=settings)
        resumes = 0
        while played.run["status"] == "interrupted":
            resumes += 1
            await played.resumed({"decision": "approve"})
    assert resumes == 2
    assert await played.effects(tools) == [("pay", {"n": 0}), ("pay", {"n": 1})]
    assert (played.run["stop_reason"], played.model_calls) == {
        "max_iterations": ("max_iterations", 2), "max_tool_calls": ("usage_limit", 3),
    }[setting]  # fmt: skip


async def test_nobody_is_asked_about_a_call_that_a_limit_forbids_B_533(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    spec = tool_spec("pay", tools.url("/ok"), requires_approval=True)
    async with Model([("c1", "pay", {"n": 1}), ("c2", "pay", {"n": 2})], "fin") as model:
        played = await posted(client, model, spec, agent={"limits": {"max_tool_calls_per_round": 1}})
        assert [item["tool_input"] for item in played.run["interrupts"]] == [{"n": 1}]
        await played.resumed({"decision": "approve"})
    assert await played.effects(tools) == [("pay", {"n": 1})]
    assert [step["status"] for step in await played.steps()] == ["success", "error"]
    assert played.answer == "fin"


async def test_what_a_limit_of_the_peers_middleware_would_say_is_refused_B_215_B_216(client: httpx.AsyncClient) -> None:
    """A limit of one named tool has no counterpart, and no setting of its name is silently ignored."""
    async with Model("never") as model:
        body = run_body(openai(model.base_url), "echo", agent={"limits": {"tool_name": "echo", "run_limit": 1}})
        refused = await client.post("/runs", json=body)
        assert model.requests == []
    assert refused.status_code == 422
    assert [item["pointer"] for item in refused.json()["errors"]] == [
        "/agent/limits/tool_name", "/agent/limits/run_limit",
    ]  # fmt: skip
