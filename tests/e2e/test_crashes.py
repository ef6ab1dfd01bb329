"""kill -9 at bad moments: the run is taken up, its ids have no gap, its end comes once, effects are not repeated."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.ledger import until_effects
from tests.support.bodies import calls, openai, run_body, says, scripted, tool_spec
from tests.support.chat_completions import ChatCompletionsServer, Reply, answer_chunks, events
from tests.support.chat_completions import says as model_says
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import Event, check_whole, names, read_events, stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

_BODY = events(answer_chunks("an answer that is broken off"))


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    """A server of the test's own."""
    env = {"RUNWIRE_PUBLIC_URL": "http://runwire.test"}  # the port is another one after a restart
    with RunwireServer.open(tmp_path, env=env) as running:
        yield running


async def crash(server: RunwireServer) -> None:
    server.kill()
    await asyncio.to_thread(server.start)


async def story(client: httpx.AsyncClient, run_id: object) -> list[Event]:
    """All events of a run, after its end."""
    done = await client.get(f"/runs/{run_id}/wait", params={"timeout_s": 15})
    assert done.status_code == 200, done.text
    told = read_events((await client.get(f"/runs/{run_id}/stream")).content)
    check_whole(told)
    return told


async def results_of(client: httpx.AsyncClient, run_id: object) -> list[tuple[str, list[str]]]:
    """Each call of the conversation with the results it got."""
    messages = (await client.get(f"/runs/{run_id}/messages")).json()["data"]
    asked = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    return [
        (call, [item["content"] for item in messages if item["role"] == "tool" and item["tool_call_id"] == call])
        for call in asked
    ]


async def test_a_kill_in_the_middle_of_an_answer_asks_again_under_a_new_message(own: RunwireServer) -> None:
    replies = [Reply(body=_BODY, pause_after=len(_BODY) // 2), model_says("the whole answer")]
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer(replies) as model:
        async with (
            own.client() as client,
            stream(client, "POST", "/runs/stream", json=run_body(openai(model.base_url))) as reading,
        ):
            await reading.until("output")
            own.kill()
            seen = await reading.until_broken()
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            run_id = seen[0].data["run_id"]
            path = f"/runs/{run_id}/stream"
            rest = await client.get(path, headers={"Last-Event-ID": str(seen[-1].id)})
            told = await story(client, run_id)
            run = (await client.get(f"/runs/{run_id}")).json()
    assert [*seen, *read_events(rest.content)] == told
    assert [item.data["attempt"] for item in told if item.event == "run"] == [1, 2]
    assert len({item.data["message_id"] for item in told if item.event == "output"}) == 2
    assert (run["status"], run["attempt"], run["output"]) == ("success", 2, {"output": "the whole answer"})
    assert run["usage"]["model_calls"] == 1


async def test_a_kill_while_tools_run_repeats_only_what_may_be_repeated(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    once = tool_spec("crash_once", own_tools.url("/never"), timeout_s=15)
    again = tool_spec("crash_again", own_tools.url("/hold"), idempotent=True, timeout_s=15)
    later = tool_spec("crash_later", own_tools.url("/ok"))
    turn = calls(("echo", {"text": "kept"}), ("crash_once", {}), ("crash_again", {}), ("crash_later", {}))
    body = run_body(
        scripted(turn, says("done")), once, again, later, "echo", agent={"max_parallel_tools": 3},
    )  # fmt: skip
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            run_id = (await client.post("/runs", json=body)).json()["id"]
            # Two of the three places are held by tools that do not answer, the third one goes on.
            await until_effects(own_tools, "crash_once", "crash_again", "crash_later", count=3)
        own.kill()
        own_tools.release()
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            told = await story(client, run_id)
            steps = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
            results = await results_of(client, run_id)
            detail = (await client.get(f"/runs/{run_id}/steps/3")).json()
    assert [item.data["attempt"] for item in told if item.event == "run"] == [1, 2]
    assert names(told).count("step") == 4
    assert [(step["action"]["tool"], step["status"]) for step in steps] == [
        ("echo", "success"),
        ("crash_once", "unknown"),
        ("crash_again", "success"),
        ("crash_later", steps[3]["status"]),
    ]
    assert steps[3]["status"] in ("success", "unknown")
    assert [len(given) for _, given in results] == [1, 1, 1, 1]
    effects = own_tools.effects()
    assert len([item for item in effects if item["tool"] == "crash_once"]) == 1
    assert len([item for item in effects if item["tool"] == "crash_later"]) == 1
    repeated = [item for item in effects if item["tool"] == "crash_again"]
    assert len(repeated) == 2
    assert {item["idempotency_key"] for item in repeated} == {detail["idempotency_key"]}
    assert len({item["body_sha256"] for item in repeated}) == 1


async def test_a_crash_between_a_cancel_and_its_end_still_ends_cancelled(own: RunwireServer, tools: ToolServer) -> None:
    once = tool_spec("crash_cancel", tools.url("/never"), timeout_s=15)
    body = run_body(scripted(calls(("crash_cancel", {}), ("crash_next", {})), says("no")), once,
                    tool_spec("crash_next", tools.url("/ok")), agent={"max_parallel_tools": 1})  # fmt: skip
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            run_id = (await client.post("/runs", json=body)).json()["id"]
            await until_effects(tools, "crash_cancel", count=1)
        own.kill()
        # What a crash leaves right after the cancel was recorded.
        with sqlite3.connect(own.folder / ".runwire" / "runwire.db") as database:
            database.execute("UPDATE runs SET cancel_requested = 1 WHERE id = ?", (run_id,))
        database.close()
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            told = await story(client, run_id)
            steps = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
            results = await results_of(client, run_id)
            run = (await client.get(f"/runs/{run_id}")).json()
    assert told[-1].data["status"] == "cancelled"
    assert [step["status"] for step in steps] == ["unknown", "cancelled"]
    assert [len(given) for _, given in results] == [1, 1]
    assert (run["iterations"], run["usage"]["model_calls"], run["usage"]["tool_calls"]) == (1, 1, 2)
    assert not [item for item in tools.effects() if item["tool"] == "crash_next"]


async def test_many_runs_survive_many_kills(own: RunwireServer, tools: ToolServer) -> None:
    write = tool_spec("crash_many", tools.url("/slow?ms=20"))
    turns = [calls(("crash_many", {})) for _ in range(6)]
    body = run_body(scripted(*turns, says("done")), write)
    async with asyncio.timeout(3 * TIMEOUT_S):
        runs: list[str] = []
        for kill in range(3):
            async with own.client() as client:
                made = await asyncio.gather(*(client.post("/runs", json=body) for _ in range(10)))
                runs += [answer.json()["id"] for answer in made]
                await until_effects(tools, "crash_many", count=25 * (kill + 1))
            await crash(own)
        async with own.client() as client:
            stories = await asyncio.gather(*(story(client, run_id) for run_id in runs))
            conversations = await asyncio.gather(*(results_of(client, run_id) for run_id in runs))
    assert {told[-1].data["status"] for told in stories} == {"success"}
    assert all(len(given) == 1 for results in conversations for _, given in results)
    mine = [item["idempotency_key"] for item in tools.effects() if item["tool"] == "crash_many"]
    assert len(mine) == len(set(mine))


async def test_what_was_queued_or_finished_before_a_crash_is_as_it_was(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path, env={"RUNWIRE_MAX_CONCURRENT_RUNS": "1"}) as server:
        async with asyncio.timeout(TIMEOUT_S):
            async with server.client() as client:
                done = await client.post("/runs/stream", json=run_body(scripted(says("before"))))
                hanging = run_body(scripted(calls(("hang", {})), says("no")), "hang")
                first = (await client.post("/runs", json=hanging)).json()
                queued = (await client.post("/runs", json=run_body(scripted(says("queued"))))).json()
                assert queued["status"] == "pending"
            await crash(server)
            async with server.client() as client:
                told = read_events(done.content)
                again = await client.get(f"/runs/{told[0].data['run_id']}/stream")
                assert again.content == done.content
                await client.post(f"/runs/{first['id']}/cancel", params={"wait": "true"})
                later = await story(client, queued["id"])
                assert [item.data["attempt"] for item in later if item.event == "run"] == [1]
                assert later[-1].data["status"] == "success"
