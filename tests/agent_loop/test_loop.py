"""`create_agent`'s loop, case by case, over HTTP: messages, parallel calls, errors, answers that are the run's."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.agent_loop.support import Call, Model, asks, posted, seen
from tests.e2e.ledger import until_effects
from tests.support.bodies import openai, run_body, tool_spec
from tests.support.chat_completions import Reply, answer_chunks, events, fails
from tests.support.server import TIMEOUT_S
from tests.support.streams import check_whole, stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

ADD: Call = ("c1", "add", {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("turns", "result"),
    [
        pytest.param([[ADD], "3!"], [asks([ADD]), ("tool", "3", "c1"), ("assistant", "3!")], id="B-001"),
        pytest.param(["hello"], [("assistant", "hello")], id="B-002"),
        pytest.param(
            [[("c1", "refuse", {"x": "1"})], "ok"],
            [asks([("c1", "refuse", {"x": "1"})]), ("tool", "texc 1", "c1", "error"), ("assistant", "ok")],
            id="B-011",
        ),
        pytest.param(
            [("let me look", [("c1", "echo", {"x": "1"})]), "ok"],
            [asks([("c1", "echo", {"x": "1"})], "let me look"), ("tool", "echo:1", "c1"), ("assistant", "ok")],
            id="B-554",
        ),
    ],
)
async def test_the_conversation_is_the_peers(client: httpx.AsyncClient, turns: list[Any], result: list[Any]) -> None:
    """B-001, B-002, B-011, B-554. The model is shown each message as it stands in the conversation."""
    async with Model(*turns) as model:
        played = await posted(client, model, "add", "echo", "refuse")
        shown = [seen(request) for request in model.requests]
    assert await played.said() == [("user", "hi"), *result]
    assert len(shown) == len(turns)
    assert shown[-1] == [tuple(item[:3]) for item in [("user", "hi"), *result[:-1]]]


async def test_results_of_parallel_calls_are_in_call_order_with_their_ids_B_012(client: httpx.AsyncClient) -> None:
    made: list[Call] = [("c1", "echo", {"x": "1"}), ("c2", "add", {"a": 1, "b": 1}), ("c3", "echo", {"x": "3"})]
    async with Model(made, "ok") as model:
        played = await posted(client, model, "add", "echo")
    results = [("tool", "echo:1", "c1"), ("tool", "2", "c2"), ("tool", "echo:3", "c3")]
    assert await played.said() == [("user", "hi"), asks(made), *results, ("assistant", "ok")]
    assert seen(model.requests[1])[2:] == results


async def test_calls_that_finish_in_another_order_are_read_in_call_order_B_013(
    client: httpx.AsyncClient, own_tools: ToolServer
) -> None:
    """The first one is let go when the second one's step has been told."""
    held = tool_spec("held", own_tools.url("/hold"), effect="read")
    async with (
        asyncio.timeout(TIMEOUT_S),
        Model([("c1", "held", {}), ("c2", "echo", {"x": "2"})], "ok") as model,
        stream(client, "POST", "/runs/stream", json=run_body(openai(model.base_url), held, "echo")) as told,
    ):
        assert (await told.until("step")).data["observation"] == "echo:2"
        await until_effects(own_tools, "held", count=1)
        own_tools.release()
        check_whole(await told.rest())
    assert [item.data["observation"] for item in told.events if item.event == "step"] == ["echo:2", True]
    assert seen(model.requests[1])[2:] == [("tool", "true", "c1"), ("tool", "echo:2", "c2")]


# --- errors and the ids of calls --------------------------------------------------------------------------------------


async def test_an_exception_is_told_and_its_slower_sibling_finishes_B_015(client: httpx.AsyncClient) -> None:
    """The peer's run fails, and the sibling is cancelled."""
    made: list[Call] = [("c1", "slow", {"x": "1"}), ("c2", "boom_then_tell", {"x": "2"})]
    async with asyncio.timeout(TIMEOUT_S), Model(made, "ok") as model:
        played = await posted(client, model, "slow", "boom_then_tell")
    assert [step["status"] for step in await played.steps()] == ["success", "error"]
    _, _, first, second, last = await played.said()
    assert first == ("tool", "slow:1", "c1")
    assert (second[2:], "kaput" in str(second[1])) == (("c2", "error"), False)
    assert last == ("assistant", "ok")


@pytest.mark.parametrize(
    ("ids", "kept"), [pytest.param(("c1", "c1"), ["c1"], id="B-021"), pytest.param((None, None), [], id="B-022")]
)
async def test_calls_whose_ids_are_missing_or_equal_are_told_apart_by_ours(
    client: httpx.AsyncClient, ids: tuple[str | None, str | None], kept: list[str]
) -> None:
    """B-021, B-022."""
    chunks = answer_chunks(calls=[(str(call_id), "echo", f'{{"x": "{n}"}}') for n, call_id in enumerate(ids, 1)])
    body = events(chunks).replace(b'"id":"None",', b"")
    async with Model(Reply(body=body), "ok") as model:
        played = await posted(client, model, "echo")
        _, asked, *results = seen(model.requests[1])
    told: Any = asked[2]
    names = [call[0] for call in told]
    assert len(set(names)) == 2
    assert set(kept) <= set(names)
    assert results == [("tool", "echo:1", names[0]), ("tool", "echo:2", names[1])]
    assert [step["observation"] for step in await played.steps()] == ["echo:1", "echo:2"]
    assert (played.run["status"], played.answer) == ("success", "ok")


async def test_a_models_own_error_ends_the_run_B_028(client: httpx.AsyncClient) -> None:
    """Under a stable code; the provider's words are kept."""
    async with Model(fails(400, "model down")) as model:
        played = await posted(client, model)
    assert (played.run["status"], played.run["stop_reason"], played.run["output"]) == ("error", "error", None)
    assert played.run["error"]["code"] == "model_bad_request"
    assert "model down" in played.run["error"]["message"]
    assert played.model_calls == 1


# --- answers that are the run's ---------------------------------------------------------------------------------------


async def test_a_direct_tools_result_is_the_answer_and_the_model_is_not_asked_again_B_016(
    client: httpx.AsyncClient,
) -> None:
    made: list[Call] = [("c1", "rd", {"x": "1"})]
    async with Model(made, "never") as model:
        played = await posted(client, model, "rd")
    assert (played.answer, played.run["stop_reason"], played.model_calls) == ("direct:1", "return_direct", 1)
    assert await played.said() == [("user", "hi"), asks(made), ("tool", "direct:1", "c1")]


async def test_two_direct_calls_in_one_round_are_read_by_the_model_B_018(client: httpx.AsyncClient) -> None:
    """As AgentExecutor: neither of the two is the answer. The peer's run ends without one."""
    made: list[Call] = [("c1", "rd", {"x": "1"}), ("c2", "rd", {"x": "2"})]
    async with Model(made, "both") as model:
        played = await posted(client, model, "rd")
    assert (played.answer, played.run["stop_reason"], played.model_calls) == ("both", "finish", 2)
    assert seen(model.requests[1])[2:] == [("tool", "direct:1", "c1"), ("tool", "direct:2", "c2")]


async def test_a_direct_tools_wrong_arguments_go_back_to_the_model_B_019(client: httpx.AsyncClient) -> None:
    async with Model([("c1", "rd", {})], [("c2", "rd", {"x": "1"})], "never") as model:
        played = await posted(client, model, "rd")
    assert [step["status"] for step in await played.steps()] == ["error", "success"]
    assert (played.answer, played.run["stop_reason"], played.model_calls) == ("direct:1", "return_direct", 2)


# --- the conversation before ------------------------------------------------------------------------------------------


async def test_a_thread_keeps_calls_and_results_for_the_next_run_B_555(client: httpx.AsyncClient) -> None:
    made: list[Call] = [("c1", "echo", {"x": "1"})]
    async with Model(made, "one", "two") as model:
        first = await posted(client, model, "echo")
        await posted(client, model, "echo", text="next", thread_id=first.run["thread_id"])
        last = seen(model.requests[-1])
    assert last == [("user", "hi"), asks(made), ("tool", "echo:1", "c1"), ("assistant", "one"), ("user", "next")]


OPEN = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "echo", "args": {"x": "1"}}]},
    {"role": "user", "content": "again"},
]


async def test_an_input_with_an_unanswered_call_is_refused_before_the_model_is_called_B_509(
    client: httpx.AsyncClient,
) -> None:
    """As the peer's older loop; its newer one lets it through to the provider."""
    async with Model("ok") as model:
        refused = await client.post("/runs", json=run_body(openai(model.base_url), "echo", text={"messages": OPEN}))
        assert model.requests == []
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert refused.json()["errors"][0]["pointer"] == "/input/messages/1/tool_calls/0"


async def test_an_unanswered_call_in_a_thread_is_closed_and_not_run_B_509_B_552(client: httpx.AsyncClient) -> None:
    """A caller may write one there, beside an answered one. Neither is run by the next run, and each has one result."""
    two = [{"id": name, "name": "echo", "args": {"x": name}} for name in ("c1", "c2")]
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": two},
        {"role": "tool", "content": "old", "tool_call_id": "c1"},
    ]
    async with Model("ok") as model:
        started = await posted(client, model, "echo")
        path = f"/threads/{started.run['thread_id']}/state"
        written = await client.post(path, json={"values": {"messages": messages}, "overwrite": ["messages"]})
        assert written.status_code == 200, written.text
        played = await posted(client, model, "echo", text="again", thread_id=started.run["thread_id"])
        shown = seen(model.requests[-1])
    assert [item[0] for item in shown] == ["user", "assistant", "tool", "tool", "user"]
    assert shown[2] == ("tool", "old", "c1")
    assert (shown[3][2], "no result" in str(shown[3][1])) == ("c2", True)
    assert await played.steps() == []
