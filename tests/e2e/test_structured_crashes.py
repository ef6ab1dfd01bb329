"""kill -9 in every phase of a structured answer: it is given once, and every call of the conversation has its one result."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.ledger import until_effects
from tests.support.bodies import openai, run_body, shown, tool_spec
from tests.support.chat_completions import ChatCompletionsServer, Reply, answer_chunks, calls, events, says
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import check_whole, names, read_events, stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

W: dict[str, object] = {"title": "W", "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FITS = calls(("c9", "W", '{"n": 7}'))
MISFIT = calls(("c1", "W", '{"n": "x"}'))
SILENT = Reply(silent=True)
_BODY = events(answer_chunks(calls=[("c8", "W", '{"n": 123456}')]))
BROKEN = Reply(body=_BODY, pause_after=_BODY.rindex(b"arguments"))
LAST: dict[str, Any] = {"max_iterations": 1, "early_stopping_method": "generate"}


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    """A server of the test's own."""
    with RunwireServer.open(tmp_path) as running:
        yield running


def asked(model: ChatCompletionsServer, *tools: object, strategy: str = "tool", **settings: Any) -> Any:
    agent = {"output_schema": W, "output_strategy": strategy, **settings}
    return run_body(openai(model.base_url), "echo", *tools, agent=agent)


async def restart(server: RunwireServer) -> None:
    server.kill()
    await asyncio.to_thread(server.start)


async def check(client: httpx.AsyncClient, run_id: object, reason: str = "finish") -> dict[str, Any]:
    """The run has its answer, after a second attempt, and its journal and conversation are whole."""
    done = await client.get(f"/runs/{run_id}/wait", params={"timeout_s": 15})
    assert done.status_code == 200, done.text
    run = done.json()
    assert (run["status"], run["stop_reason"], run["attempt"]) == ("success", reason, 2)
    assert run["output"]["structured"] == {"n": 7}
    told = read_events((await client.get(f"/runs/{run_id}/stream")).content)
    check_whole(told)
    assert names(told).count("action") == names(told).count("step")
    assert names(told).count("finish") == 1
    messages = (await client.get(f"/runs/{run_id}/messages")).json()["data"]
    made = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert made == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    return run


@pytest.mark.parametrize(
    ("strategy", "before"),
    [
        ("tool", (MISFIT, says("hm"), calls(("c2", "W", '{"n": 1}'), ("c3", "W", '{"n": 2}')))),
        ("provider", (says('{"n": "x"}'), calls(("c4", "echo", '{"text": "e"}')), says("hm"))),
    ],
)
async def test_after_a_kill_the_model_is_shown_what_it_was_shown_before(
    own: RunwireServer, strategy: str, before: tuple[Reply, ...]
) -> None:
    last = FITS if strategy == "tool" else says('{"n": 7}')
    async with asyncio.timeout(TIMEOUT_S * 2), ChatCompletionsServer([*before, SILENT, last]) as model:
        async with own.client() as client:
            run_id = (await client.post("/runs", json=asked(model, strategy=strategy))).json()["id"]
            await model.until(lambda: len(model.requests) == 4)
        await restart(own)
        async with own.client() as client:
            run = await check(client, run_id)
    assert model.requests[3].body == model.requests[4].body
    assert (run["iterations"], run["usage"]["model_calls"]) == (4, 4)


async def test_a_kill_while_the_answer_is_spoken_asks_again(own: RunwireServer) -> None:
    async with asyncio.timeout(TIMEOUT_S * 2), ChatCompletionsServer([BROKEN, FITS]) as model:
        async with own.client() as client, stream(client, "POST", "/runs/stream", json=asked(model)) as reading:
            await reading.until("output")
            own.kill()
            run_id = (await reading.until_broken())[0].data["run_id"]
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            await check(client, run_id)
            told = read_events((await client.get(f"/runs/{run_id}/stream")).content)
    assert len({item.data["message_id"] for item in told if item.event == "output"}) == 2


async def test_a_kill_while_the_last_answer_is_spoken_asks_for_it_again(own: RunwireServer) -> None:
    replies = [calls(("c1", "echo", '{"text": "e"}')), BROKEN, FITS]
    async with asyncio.timeout(TIMEOUT_S * 2), ChatCompletionsServer(replies) as model:
        body = asked(model, **LAST)
        async with own.client() as client, stream(client, "POST", "/runs/stream", json=body) as reading:
            await model.until(lambda: len(model.requests) == 2)
            await reading.until("step")
            own.kill()
            run_id = (await reading.until_broken())[0].data["run_id"]
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            run = await check(client, run_id, "max_iterations")
    assert run["iterations"] == 1
    assert model.requests[1].body == model.requests[2].body


@pytest.mark.parametrize("first", [True, False])
async def test_an_answer_beside_a_call_that_a_kill_cut_is_kept(
    own: RunwireServer, own_tools: ToolServer, first: bool
) -> None:
    """Its step is told before the kill, or not at all: in either case the run ends with it when the round is done."""
    held = tool_spec("structured_held", own_tools.url("/hold"), idempotent=True, timeout_s=15)
    both = [("c1", "W", '{"n": 7}'), ("c2", "structured_held", "{}")]
    reply = calls(*(both if first else reversed(both)))
    async with asyncio.timeout(TIMEOUT_S * 2), ChatCompletionsServer([reply, says("never")]) as model:
        async with own.client() as client:
            settings: dict[str, Any] = {} if first else {"max_parallel_tools": 1}
            run_id = (await client.post("/runs", json=asked(model, held, **settings))).json()["id"]
            await until_effects(own_tools, "structured_held", count=1)
            if first:
                async with stream(client, "GET", f"/runs/{run_id}/stream") as reading:
                    assert (await reading.until("step")).data["status"] == "success"
        own.kill()
        own_tools.release()
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            run = await check(client, run_id)
            steps = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
    assert len(model.requests) == 1
    assert {step["action"]["tool"]: step["status"] for step in steps} == {
        "W": "success",
        "structured_held": "success",
    }
    assert run["usage"]["tool_calls"] == 1


async def test_a_cancel_beside_an_answer_ends_cancelled_and_every_call_has_its_result(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    held = tool_spec("structured_left", own_tools.url("/hold"), timeout_s=15)
    reply = calls(("c1", "structured_left", "{}"), ("c2", "W", '{"n": 7}'))
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer([reply]) as model, own.client() as client:
        run_id = (await client.post("/runs", json=asked(model, held))).json()["id"]
        await until_effects(own_tools, "structured_left", count=1)
        run = (await client.post(f"/runs/{run_id}/cancel", params={"wait": True})).json()
        messages = (await client.get(f"/runs/{run_id}/messages")).json()["data"]
        body = run_body(openai(model.base_url), thread_id=run["thread_id"])
        own_tools.release()
        await client.post("/runs/wait", json=body)
    assert (run["status"], run["output"]) == ("cancelled", None)
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == ["c1", "c2"]
    results = [message for message in shown(model.requests[1]) if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == ["c1", "c2"]
    assert json.loads(results[1]["content"].partition(": ")[2]) == {"n": 7}
