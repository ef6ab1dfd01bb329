"""Middleware in Python, case by case of `create_agent`'s, over HTTP."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.agent_loop.support import Call, seen
from tests.middleware.support import Model, events, played, told
from tests.support.bodies import run_body, scripted, tool_spec
from tests.support.chat_completions import fails
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

CALL: list[Call] = [("c1", "echo", {"x": "1"})]

CASES = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parent / "cases" / "hooks.jsonl").read_text("utf-8").splitlines())
}


def jump(at: str, to: object = None, **more: object) -> dict[str, object]:
    return {"name": "jump", "config": {"at": at, "to": to, **more}}


STOPPED = {"messages": [{"role": "assistant", "content": "stopped"}]}


@pytest.mark.parametrize("case_id", ["B-101"])
async def test_hooks_run_in_order_in_reverse_and_nested(client: httpx.AsyncClient, case_id: str) -> None:
    async with Model(CALL, "ok") as model:
        run = await played(client, model, ["m1", "m2", "m3"])
    assert await told(client, run.run) == CASES[case_id]["expect"]["events"]
    assert run.answer == "ok"


async def test_two_of_one_middleware_are_refused_B_103(client: httpx.AsyncClient) -> None:
    body = run_body(scripted({"content": "x"}), agent={"middleware": ["m1", "m1"]})
    refused = await client.post("/runs", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "duplicate_middleware")
    assert refused.json()["errors"][0]["pointer"] == "/agent/middleware/1"


@pytest.mark.parametrize(("case_id", "at"), [("B-104", "before_model"), ("B-105", "before_agent")])
async def test_a_jump_to_the_end_asks_no_model_and_the_hooks_at_the_end_run(
    client: httpx.AsyncClient, case_id: str, at: str
) -> None:
    async with Model("never") as model:
        run = await played(client, model, ["m1", jump(at, "end", update=STOPPED), "m3"])
    assert (run.model_calls, run.answer, run.run["status"]) == (0, "stopped", "success")
    assert await run.said() == [("user", "hi"), ("assistant", "stopped")]
    assert await told(client, run.run) == CASES[case_id]["expect"]["events"]


async def test_a_jump_to_the_end_leaves_calls_unmade_and_each_has_its_result_B_106(client: httpx.AsyncClient) -> None:
    """The peer leaves the call without a result, which no provider takes when the thread goes on."""
    async with Model(CALL, "never") as model:
        run = await played(client, model, ["m1", jump("after_model", "end"), "m3"])
    assert await told(client, run.run) == CASES["B-106"]["expect"]["events"]
    assert (await run.said())[1:] == [
        ("assistant", "", CALL), ("tool", "echo was cancelled before it was sent; it did nothing.", "c1", "error"),
    ]  # fmt: skip
    assert (run.model_calls, run.answer) == (1, "")


async def test_a_jump_back_to_the_model_asks_it_again_B_107(client: httpx.AsyncClient) -> None:
    again = {"messages": [{"role": "user", "content": "again"}]}
    async with Model("draft", "final") as model:
        run = await played(client, model, ["m1", jump("after_model", "model", times=1, update=again), "m3"])
    assert await told(client, run.run) == CASES["B-107"]["expect"]["events"]
    assert await run.said() == [("user", "hi"), ("assistant", "draft"), ("user", "again"), ("assistant", "final")]
    assert run.run["iterations"] == 2


async def test_a_jump_to_the_tools_makes_the_calls_of_a_message_without_the_model_B_108(
    client: httpx.AsyncClient,
) -> None:
    asked = {"role": "assistant", "tool_calls": [{"id": "c9", "name": "echo", "args": {"x": "9"}}]}
    async with Model("final") as model:
        run = await played(client, model, [jump("before_model", "tools", times=1, update={"messages": [asked]})])
    assert await told(client, run.run) == CASES["B-108"]["expect"]["events"]
    assert [item[0] for item in await run.said()] == ["user", "assistant", "tool", "assistant"]
    assert (run.model_calls, run.answer, run.run["usage"]["model_calls"]) == (1, "final", 1)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (jump("before_model", "nowhere"), "jumps to 'nowhere'"),
        (jump("before_model", "tools"), "`tool_calls`"),
        (jump("after_model", "tools"), "the answer calls none"),
        (jump("before_model", None, update={"zzz": 1}), "/zzz"),
        (jump("before_model", None, update={"__hooks": 1}), "/__hooks"),
        (jump("before_model", None, update={"messages": [{"role": "tool", "content": "x"}]}), "/messages/0"),
    ],
    ids=["B-110", "no calls", "no calls made", "B-124", "own", "messages"],
)
async def test_what_a_hook_may_not_want_ends_the_run_with_its_name(
    client: httpx.AsyncClient, config: dict[str, object], says: str
) -> None:
    """The peer ignores it silently."""
    async with Model("ran") as model:
        run = await played(client, model, [config])
    assert (run.run["status"], run.run["error"]["code"]) == ("error", "middleware_error")
    assert "`jump`" in run.run["error"]["message"]
    assert says in run.run["error"]["message"]


async def test_a_jump_needs_no_declaration_B_109(client: httpx.AsyncClient) -> None:
    async with Model("ran") as model:
        run = await played(client, model, [jump("before_model", "end", output="stopped")])
    assert (run.answer, run.model_calls) == ("stopped", 0)
    assert await run.said() == [("user", "hi"), ("assistant", "stopped")]


async def test_a_tool_hidden_from_the_model_does_not_run_B_112(client: httpx.AsyncClient) -> None:
    middleware: list[object] = [{"name": "around", "config": {"does": "only echo"}}]
    async with Model([("c1", "other", {"x": "1"})], "ok") as model:
        run = await played(client, model, middleware, "echo", "other")
        bodies: list[Any] = [request.json for request in model.requests]
        offered = [[item["function"]["name"] for item in body["tools"]] for body in bodies]
    assert offered == [["echo"], ["echo"]]
    (step,) = await run.steps()
    assert (step["status"], step["observation"]) == ("error", "Not run: other was not offered for this answer.")


@pytest.mark.parametrize(
    ("case_id", "does", "turns", "answer", "model_calls"),
    [
        ("B-113", "short", ["never"], "short-circuit", 0),
        ("B-114", "twice", ["first", "second"], "second", 2),
        ("B-115", "catch", [fails(400, "down")], "caught model_bad_request", 1),
        ("B-126", "redact", ["secret"], "REDACTED", 1),
    ],
)
async def test_what_wraps_the_model_answers_in_its_place_asks_again_or_rewords(
    client: httpx.AsyncClient, case_id: str, does: str, turns: list[Any], answer: str, model_calls: int
) -> None:
    for name in ("around", "held"):
        async with Model(*turns) as model:
            run = await played(client, model, [{"name": name, "config": {"does": does}}])
        assert (run.answer, run.model_calls) == (answer, model_calls)
        assert await run.said() == [("user", "hi"), ("assistant", answer)]
        assert run.run["usage"]["model_calls"] == (0 if case_id == "B-115" else model_calls)


async def test_readers_see_the_answer_that_counts_under_its_own_id(client: httpx.AsyncClient) -> None:
    """What was said of an answer that did not count is under another message id."""
    for name, spoken in (("around", ["first", "second"]), ("held", ["second"])):
        async with Model("first", "second") as model:
            run = await played(client, model, [{"name": name, "config": {"does": "twice"}}])
        by_message: dict[str, str] = {}
        for event in await events(client, run.run):
            if event["event"] == "output":
                message = event["data"]["message_id"]
                by_message[message] = by_message.get(message, "") + event["data"]["delta"]["text"]
        assert list(by_message.values()) == spoken


async def test_tokens_of_every_call_count(client: httpx.AsyncClient) -> None:
    tokens = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    model = scripted({"content": "first", "usage": tokens}, {"content": "never"})
    body = run_body(model, agent={"middleware": [{"name": "around", "config": {"does": "twice"}}]})
    run = (await client.post("/runs/wait", json=body)).json()
    assert (run["usage"]["model_calls"], run["usage"]["total_tokens"]) == (2, 10)


async def test_what_wraps_the_model_must_give_an_answer(client: httpx.AsyncClient) -> None:
    async with Model("never") as model:
        run = await played(client, model, [{"name": "around", "config": {"does": "nothing"}}])
    assert run.run["error"]["code"] == "middleware_error"
    assert "ModelAnswer" in run.run["error"]["message"]


async def test_what_the_model_is_shown_can_be_changed_and_what_is_stored_stays(client: httpx.AsyncClient) -> None:
    async with Model("ok") as model:
        run = await played(client, model, [{"name": "around", "config": {"does": "prompt"}}])
        assert seen(model.requests[0]) == [("system", "Be kind."), ("user", "hi")]
    assert await run.said() == [("user", "hi"), ("assistant", "ok")]


@pytest.mark.parametrize(
    ("does", "tool", "status", "observation", "ran"),
    [
        pytest.param("block", "echo", "success", "blocked", False, id="B-117"),
        pytest.param("deny", "echo", "error", "not today", False, id="deny"),
        pytest.param("change", "echo", "success", "echo:changed", True, id="change"),
        pytest.param("reword", "echo", "success", "E:echo:1", True, id="reword"),
    ],
)
async def test_what_wraps_a_tool_answers_in_its_place_changes_its_input_or_its_result(
    client: httpx.AsyncClient, does: str, tool: str, status: str, observation: str, ran: bool
) -> None:
    async with Model([("c1", tool, {"x": "1"})], "ok") as model:
        run = await played(client, model, [{"name": "calls", "config": {"does": does}}])
    step = await run.step()
    assert (step["status"], step["observation"]) == (status, observation)
    assert step["envelope"]["ok"] is (status == "success")
    assert any(str(item).startswith("TOOL") for item in await told(client, run.run)) is ran
    assert "middleware" in [item["stage"] for item in step["chain"]]
    assert run.answer == "ok"


async def test_a_tool_of_another_program_is_wrapped_as_well(client: httpx.AsyncClient, tools: ToolServer) -> None:
    async with Model([("c1", "far", {"n": 1})], "ok") as model:
        spec = tool_spec("far", tools.url("/as-asked"))
        run = await played(client, model, ["m1", {"name": "calls", "config": {"does": "reword"}}], spec)
    assert (await run.step())["observation"] == "E:{'n': 1}"
    assert await run.effects(tools) == [("far", {"n": 1})]


async def test_changed_arguments_are_checked_again(client: httpx.AsyncClient) -> None:
    async with Model(CALL, "ok") as model:
        run = await played(client, model, [{"name": "calls", "config": {"does": "spoil"}}])
    assert [step["error"]["code"] for step in await run.steps()] == ["invalid_arguments"]
    assert await told(client, run.run) == []


@pytest.mark.parametrize(("tool", "times"), [("pay", 1), ("look", 3)])
async def test_a_call_asked_again_is_sent_again_only_where_that_does_no_harm_B_551(
    client: httpx.AsyncClient, tool: str, times: int
) -> None:
    async with Model([("c1", tool, {"x": "1"})], "ok") as model:
        run = await played(client, model, [{"name": "calls", "config": {"does": "thrice"}}], tool)
    assert len(await told(client, run.run)) == times
    step = await run.step()
    assert [attempt["attempt"] for attempt in step["attempts"]] == list(range(1, times + 1))
    assert step["status"] == "error"


async def test_one_failing_call_is_reworded_and_its_siblings_result_is_kept_B_119(client: httpx.AsyncClient) -> None:
    made: list[Call] = [("c1", "boom", {"x": "1"}), ("c2", "echo", {"x": "2"})]
    async with Model(made, "ok") as model:
        run = await played(client, model, [{"name": "calls", "config": {"does": "reword"}}], "boom", "echo")
    first, second = (await run.said())[2:4]
    assert str(first[1]).startswith("E:The tool failed.")
    assert (first[2:], second) == (("c1", "error"), ("tool", "E:echo:2", "c2"))


async def test_an_unknown_tool_reaches_what_wraps_tools_B_120(client: httpx.AsyncClient) -> None:
    async with Model([("c1", "nope", {})], "ok") as model:
        run = await played(client, model, ["m1"])
    assert await told(client, run.run) == CASES["B-120"]["expect"]["events"]
    assert (await run.said())[2] == ("tool", "nope is not a valid tool, try one of [echo].", "c1", "error")


async def test_a_tools_call_may_end_the_run_or_write_the_state(client: httpx.AsyncClient) -> None:
    async with Model(CALL, "never") as model:
        run = await played(client, model, [{"name": "calls", "config": {"does": "end"}}])
    assert (run.answer, run.model_calls) == ("that is all", 1)
    seen_field = {"state_schema": {"seen": {"reducer": "append"}}}
    async with Model(CALL, "ok") as model:
        run = await played(client, model, [{"name": "calls", "config": {"does": "write"}}], agent=seen_field)
    assert (await run.state())["seen"] == ["echo"]


async def test_the_states_of_middleware_are_one_B_122(client: httpx.AsyncClient) -> None:
    async with Model(CALL, "ok") as model:
        run = await played(client, model, ["appends", "counts"], state={"a": ["in"]})
    values = await run.state()
    assert (values["a"], values["b"]) == (["in", "m1", "m2", "m1", "m2"], 2)
    changes = [event["data"] for event in await events(client, run.run) if event["event"] == "state"]
    assert [change["by"] for change in changes if change["by"].startswith("middleware")] == [
        "middleware:appends", "middleware:counts",
    ] * 2  # fmt: skip


@pytest.mark.parametrize("case_id", ["B-553"])
async def test_a_field_that_two_declare_differently_is_refused(client: httpx.AsyncClient, case_id: str) -> None:
    for agent in (
        {"middleware": ["appends", "clashes"]},
        {"middleware": ["clashes"], "state_schema": {"a": {"reducer": "append"}}},
    ):
        refused = await client.post("/runs", json=run_body(scripted({"content": "x"}), agent=agent))
        assert (refused.status_code, refused.json()["code"]) == (422, "state_conflict")


async def test_a_message_before_the_model_is_kept_B_127(client: httpx.AsyncClient) -> None:
    async with Model(CALL, "ok") as model:
        run = await played(client, model, ["notes"])
        assert seen(model.requests[1])[-1] == ("user", "note")
    assert [item[:2] for item in await run.said()] == [
        ("user", "hi"), ("user", "note"), ("assistant", ""), ("tool", "echo:1"), ("user", "note"), ("assistant", "ok"),
    ]  # fmt: skip


HOOKS = ["before_agent", "before_model", "wrap_model_call", "after_model", "wrap_tool_call", "after_agent"]


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_that_fails_ends_the_run_and_its_words_are_told_nobody_B_131(
    client: httpx.AsyncClient, hook: str
) -> None:
    async with Model(CALL, "ok") as model:
        run = await played(client, model, ["m1", {"name": "raises", "config": {"at": hook}}])
    assert (run.run["status"], run.run["error"]["code"]) == ("error", "middleware_error")
    assert "`raises`" in run.run["error"]["message"]
    assert run.run["error"]["request_id"]
    everything = json.dumps([run.run, await events(client, run.run), await run.steps()])
    assert "secret of the hook" not in everything
    assert "m1.after_agent" not in await told(client, run.run)
    said = await run.said()
    asked = [item for item in said if item[0] == "assistant" and len(item) > 2]
    assert len([item for item in said if item[0] == "tool"]) == len(asked)  # one call each
    if hook == "wrap_tool_call":
        assert (await run.step())["error"]["code"] == "result_withheld"


@pytest.mark.parametrize(
    ("entry", "code", "pointer"),
    [
        ("nothing", "unknown_middleware", "/agent/middleware/0"),
        ({"name": "nothing"}, "unknown_middleware", "/agent/middleware/0"),
        ({"name": "jump", "config": {}}, "invalid_request", "/agent/middleware/0/config"),
        ({"name": "jump", "config": {"at": 1}}, "invalid_request", "/agent/middleware/0/config/at"),
        ({"name": "m1", "config": {"x": 1}}, "invalid_request", "/agent/middleware/0/config"),
        ({"name": "m1", "extra": 1}, "invalid_request", "/agent/middleware"),
        ({}, "invalid_request", "/agent/middleware"),
        (3, "invalid_request", "/agent/middleware/0"),
    ],
)
async def test_middleware_that_cannot_be_used_is_refused_at_its_place(
    client: httpx.AsyncClient, entry: object, code: str, pointer: str
) -> None:
    refused = await client.post("/runs", json=run_body(scripted({"content": "x"}), agent={"middleware": [entry]}))
    assert (refused.status_code, refused.json()["code"]) == (422, code), refused.text
    assert refused.json()["errors"][0]["pointer"].startswith(pointer)


async def test_a_registered_agent_shows_its_middleware_and_can_be_put_back(client: httpx.AsyncClient) -> None:
    middleware = ["m1", {"name": "jump", "config": {"at": "before_model", "to": "end", "output": "bye"}}]
    spec = {"name": "mannered", "model": "demo:demo", "middleware": middleware}
    made = await client.post("/agents", json={**spec, "model": scripted({"content": "x"})})
    assert made.status_code == 201, made.text
    shown = made.json()["middleware"]
    assert shown == [{"name": "m1", "config": {}}, middleware[1]]
    assert "middleware_state" not in made.json()
    put = await client.put("/agents/mannered", json={**spec, "model": scripted({"content": "x"}), "middleware": shown})
    assert (put.status_code, put.json()["version"]) == (200, 2)
    run = (await client.post("/runs/wait", json={"agent": "mannered", "input": "hi"})).json()
    assert run["output"] == {"output": "bye"}
