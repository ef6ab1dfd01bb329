"""Cancelling: at any moment the run ends `cancelled`, every call has its one result, and nothing is sent afterwards."""

import asyncio
from pathlib import Path
from typing import cast

import httpx
import pytest

from tests.e2e.ledger import until_effects
from tests.support.bodies import calls, openai, run_body, says, scripted, tool_spec
from tests.support.chat_completions import ChatCompletionsServer, Reply, answer_chunks, events
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import check_whole, names, read_events, stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

_BODY = events(answer_chunks("a long answer"))
TALKING = Reply(body=_BODY, pause_after=len(_BODY) // 2)
"""A model that stops in the middle of its answer and never goes on."""


async def replay(client: httpx.AsyncClient, run_id: object) -> list[str]:
    told = read_events((await client.get(f"/runs/{run_id}/stream")).content)
    check_whole(told)
    return names(told)


async def unanswered(client: httpx.AsyncClient, run_id: object) -> list[str]:
    """Calls of the conversation without exactly one result."""
    messages = (await client.get(f"/runs/{run_id}/messages")).json()["data"]
    asked = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    return [call for call in asked if results.count(call) != 1]


async def test_cancel_while_the_model_speaks_ends_with_cancelled_last(client: httpx.AsyncClient) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        ChatCompletionsServer([TALKING]) as model,
        stream(client, "POST", "/runs/stream", json=run_body(openai(model.base_url))) as reading,
    ):
        await reading.until("output")
        run_id = reading.events[0].data["run_id"]
        answer = await client.post(f"/runs/{run_id}/cancel")
        assert answer.status_code == 202
        told = await reading.rest()
        await model.until(lambda: model.open_connections == 0)
    check_whole(told)
    assert (told[-1].data["status"], told[-1].data["stop_reason"]) == ("cancelled", "cancelled")
    assert "finish" not in names(told)
    again = await client.post(f"/runs/{run_id}/cancel")
    assert (again.status_code, again.json()["status"]) == (200, "cancelled")


async def test_cancel_while_tools_run_gives_every_call_one_result(client: httpx.AsyncClient, tools: ToolServer) -> None:
    write = tool_spec("cancel_write", tools.url("/never"), timeout_s=15)
    read = tool_spec("cancel_read", tools.url("/never"), effect="read", timeout_s=15)
    later = tool_spec("cancel_later", tools.url("/ok"))
    turn = calls(("cancel_write", {}), ("cancel_read", {}), ("cancel_later", {}))
    hanging = run_body(scripted(turn, says("no")), write, read, later, agent={"max_parallel_tools": 2})
    async with asyncio.timeout(TIMEOUT_S), stream(client, "POST", "/runs/stream", json=hanging) as reading:
        run_id = (await reading.until("run")).data["run_id"]
        await until_effects(tools, "cancel_write", "cancel_read", count=2)
        answer = await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
        told = await reading.rest()
    check_whole(told)
    steps = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
    assert [item["status"] for item in steps] == ["unknown", "cancelled", "cancelled"]
    assert "did nothing" in steps[2]["observation"]
    assert await unanswered(client, run_id) == []
    assert not [item for item in tools.effects() if item["tool"] == "cancel_later"]


async def test_no_tool_is_sent_after_the_cancel_is_acknowledged(client: httpx.AsyncClient, tools: ToolServer) -> None:
    spec = tool_spec("cancel_race", tools.url("/ok"))
    model = scripted(calls(("cancel_race", {})), repeat=True)
    body = run_body(model, spec, agent={"max_iterations": None})
    for _ in range(5):
        async with asyncio.timeout(TIMEOUT_S), stream(client, "POST", "/runs/stream", json=body) as reading:
            await reading.until("step")
            run_id = reading.events[0].data["run_id"]
            assert (await client.post(f"/runs/{run_id}/cancel")).status_code == 202
            sent = {str(item["tool_call_id"]) for item in tools.effects() if item["tool"] == "cancel_race"}
            told = await reading.rest()
        check_whole(told)
        assert told[-1].data["status"] == "cancelled"
        later = {str(item["tool_call_id"]) for item in tools.effects() if item["tool"] == "cancel_race"} - sent
        steps = (await client.get(f"/runs/{run_id}/steps", params={"limit": 100})).json()["data"]
        in_flight = {item["tool_call_id"] for item in steps if item["status"] in ("unknown", "success")}
        assert later <= in_flight  # on its way when the cancel came, and told so
        assert await unanswered(client, run_id) == []


async def test_a_queued_run_is_cancelled_at_once_and_twenty_at_a_time(tmp_path: Path) -> None:
    env = {"RUNWIRE_MAX_CONCURRENT_RUNS": "1", "RUNWIRE_MAX_QUEUED_RUNS": "3"}
    hanging = run_body(scripted(calls(("hang", {})), says("no")), "hang")
    quick = run_body(scripted(says("quick")))
    with RunwireServer.open(tmp_path, env=env) as server:
        async with asyncio.timeout(TIMEOUT_S), server.client() as client:
            first = (await client.post("/runs", json=hanging)).json()
            queued = [(await client.post("/runs", json=quick)).json() for _ in range(3)]
            assert [run["status"] for run in queued] == ["pending"] * 3
            full = await client.post("/runs", json=quick)
            assert (full.status_code, full.json()["code"]) == (429, "too_many_runs")
            assert int(full.headers["retry-after"]) >= 1
            path = f"/runs/{queued[1]['id']}/cancel"
            answers = await asyncio.gather(*(client.post(path, params={"wait": "true"}) for _ in range(20)))
            assert {(answer.status_code, answer.json()["status"]) for answer in answers} == {(200, "cancelled")}
            assert (await replay(client, queued[1]["id"]))[-1] == "end"
            stopped = await client.post(f"/runs/{first['id']}/cancel", params={"wait": "true"})
            assert stopped.json()["status"] == "cancelled"
            for run in (queued[0], queued[2]):
                done = await client.get(f"/runs/{run['id']}/wait")
                assert done.json()["output"] == {"output": "quick"}
                assert await replay(client, run["id"]) == ["run", "output", "usage", "finish", "end"]


async def test_admission_holds_when_many_post_at_once(tmp_path: Path) -> None:
    env = {"RUNWIRE_MAX_CONCURRENT_RUNS": "2", "RUNWIRE_MAX_QUEUED_RUNS": "3"}
    hanging = run_body(scripted(calls(("hang", {})), says("no")), "hang")
    with RunwireServer.open(tmp_path, env=env) as server:
        async with asyncio.timeout(TIMEOUT_S), server.client() as client:
            answers = await asyncio.gather(*(client.post("/runs", json=hanging) for _ in range(30)))
            made = [answer.json()["status"] for answer in answers if answer.status_code == 201]
            assert sorted(made) == ["pending"] * 3 + ["running"] * 2
            assert {answer.status_code for answer in answers} == {201, 429}


@pytest.mark.parametrize("path", ["/runs/stream", "/runs/wait"])
async def test_leaving_stops_the_run_only_when_it_was_asked_for(client: httpx.AsyncClient, path: str) -> None:
    for choice, expected in (("cancel", "cancelled"), ("continue", "success")):
        release = asyncio.Event()
        reply = Reply(body=_BODY, pause_after=len(_BODY) // 2, resume=release)
        async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer([reply]) as model:
            body = run_body(openai(model.base_url), on_disconnect=choice, metadata={"leaving": path + choice})
            posting = asyncio.create_task(_post_and_read(client, path, body))
            await model.until(lambda server=model: len(server.requests) == 1)
            query = {"metadata.leaving": path + choice}
            run = (await client.get("/runs", params=query)).json()["data"][0]
            posting.cancel()
            await asyncio.gather(posting, return_exceptions=True)
            if choice == "cancel":
                done = await client.get(f"/runs/{run['id']}/wait")
                release.set()
            else:
                release.set()
                done = await client.get(f"/runs/{run['id']}/wait")
            assert done.json()["status"] == expected


async def _post_and_read(client: httpx.AsyncClient, path: str, body: dict[str, object]) -> None:
    async with client.stream("POST", path, json=body) as response:
        async for _ in response.aiter_raw():
            pass


async def test_cancelling_what_does_not_exist_is_404(client: httpx.AsyncClient) -> None:
    answer = await client.post("/runs/0190a0a0-0000-7000-8000-000000000000/cancel")
    assert (answer.status_code, cast("dict[str, object]", answer.json())["code"]) == (404, "run_not_found")
