"""What a run leaves behind when it does not end in the ordinary way: complete, and honest about it."""

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.ledger import until_effects
from tests.support.bodies import calls, openai, run_body, says, scripted, shown, tool_spec
from tests.support.chat_completions import ChatCompletionsServer, Reply, answer_chunks, events
from tests.support.chat_completions import says as model_says
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import check_whole, read_events, stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    with RunwireServer.open(tmp_path) as running:
        yield running


async def test_an_unreadable_answer_that_ends_the_run_leaves_no_call_without_its_result(
    client: httpx.AsyncClient,
) -> None:
    turn = {
        "invalid_tool_calls": [{"id": "z", "name": "echo", "args": "{bad", "error": "oops"}],
        "tool_calls": [{"id": "y", "name": "echo", "args": {"text": "hi"}}],
    }
    body = run_body(scripted(turn), "echo", agent={"handle_parsing_errors": False})
    run = (await client.post("/runs/wait", json=body)).json()
    assert (run["status"], run["error"]["code"]) == ("error", "output_parsing_error")
    check_whole(read_events((await client.get(f"/runs/{run['id']}/stream")).content))
    steps = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
    assert [step["status"] for step in steps] == ["cancelled", "cancelled"]
    async with ChatCompletionsServer([model_says("fine")]) as model:
        again = run_body(openai(model.base_url), thread_id=run["thread_id"])
        assert (await client.post("/runs/wait", json=again)).json()["status"] == "success"
        told = shown(model.requests[0])
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "tool", "user"]
    assert (
        {call["id"] for call in told[1]["tool_calls"]}
        == {"y", "z"}
        == {told[2]["tool_call_id"], told[3]["tool_call_id"]}
    )


async def test_the_messages_of_a_finished_run_that_trims_pair_every_call_with_its_result(
    client: httpx.AsyncClient,
) -> None:
    script = scripted(calls(("echo", {"text": "a"}), ("echo", {"text": "b"})), says("fin"))
    body = run_body(script, "echo", agent={"trim_intermediate_steps": 1})
    run = (await client.post("/runs/wait", json=body)).json()
    messages = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]
    assert (messages[2]["content"], messages[3]["content"]) == ("b", "fin")


async def test_a_stop_lets_a_tool_call_end_and_the_run_goes_on_after_it(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    async with asyncio.timeout(2 * TIMEOUT_S):
        async with own.client() as client:
            spec = tool_spec("pay", own_tools.url("/hold"))
            assert (await client.post("/tools", json=spec)).status_code == 201
            body = run_body(scripted(calls(("pay", {})), says("paid")), "pay")
            run = (await client.post("/runs", json=body)).json()
            await until_effects(own_tools, "pay", count=1)
            own.signal(signal.SIGTERM)
            await until_closed(own)
            own_tools.release()
        assert await asyncio.to_thread(own.wait) == 0
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            done = (await client.get(f"/runs/{run['id']}/wait")).json()
            steps = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
    assert (done["status"], done["output"], done["attempt"]) == ("success", {"output": "paid"}, 2)
    assert [step["status"] for step in steps] == ["success"]
    assert len([effect for effect in own_tools.effects() if effect["tool"] == "pay"]) == 1


async def test_a_crash_does_not_renew_the_runs_time_limit(own: RunwireServer) -> None:
    text = events(answer_chunks("an answer that never ends"))
    stuck = Reply(body=text, pause_after=len(text) // 2)
    async with asyncio.timeout(2 * TIMEOUT_S), ChatCompletionsServer([stuck, stuck]) as model:
        body = run_body(openai(model.base_url), agent={"max_execution_time": 3.0})
        async with own.client() as client, stream(client, "POST", "/runs/stream", json=body) as reading:
            await reading.until("output")
            run_id = reading.events[0].data["run_id"]
            kept = await until_active(own, run_id, 1000)
            own.kill()
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            done = (await client.get(f"/runs/{run_id}/wait")).json()
        assert (done["status"], done["stop_reason"], done["attempt"]) == ("success", "max_execution_time", 2)
        assert active_ms(own, run_id) >= max(kept, 3000)


async def until_closed(server: RunwireServer) -> None:
    """Until the listener is closed: from then on runs leave at their next safe point."""
    while True:
        async with server.client() as client:
            try:
                await client.get("/readyz")
            except httpx.TransportError:
                return


async def until_active(server: RunwireServer, run_id: object, ms: int) -> int:
    while True:
        active = active_ms(server, run_id)
        if active >= ms:
            return active
        await asyncio.sleep(0.02)  # a row tells nobody that it has changed


def active_ms(server: RunwireServer, run_id: object) -> int:
    """The active time that the run's row holds."""
    with sqlite3.connect(f"file:{server.folder}/.runwire/runwire.db?mode=ro", uri=True) as connection:
        return int(connection.execute("SELECT active_ms FROM runs WHERE id = ?", (run_id,)).fetchone()[0])


async def test_a_tool_that_is_registered_again_does_not_revive_the_deleted_one(
    client: httpx.AsyncClient, own_tools: ToolServer
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        spec = tool_spec("revived", own_tools.url("/ok"))
        assert (await client.post("/tools", json=spec)).status_code == 201
        held = tool_spec("gate", own_tools.url("/hold"), effect="read")
        script = scripted(calls(("gate", {})), calls(("revived", {})), says("end"))
        run = (await client.post("/runs", json=run_body(script, "revived", held))).json()
        await until_effects(own_tools, "gate", count=1)
        assert (await client.delete("/tools/revived")).status_code == 204
        assert (await client.post("/tools", json=spec)).status_code == 201
        own_tools.release()
        done = (await client.get(f"/runs/{run['id']}/wait")).json()
        steps = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
        await client.delete("/tools/revived")
    assert done["status"] == "success"
    assert [step["status"] for step in steps] == ["success", "denied"]
    assert [effect for effect in own_tools.effects() if effect["tool"] == "revived"] == []


async def test_an_agent_that_is_put_back_without_its_write_only_key_keeps_it(client: httpx.AsyncClient) -> None:
    async with ChatCompletionsServer([model_says("one"), model_says("two"), model_says("three")]) as model:
        spec = {"name": "keyed", "model": openai(model.base_url, api_key="sk-of-the-tenant-0123")}
        assert (await client.put("/agents/keyed", json=spec)).status_code == 201
        shown_model = (await client.get("/agents/keyed")).json()["model"]
        assert "api_key" not in shown_model
        again = {"model": openai(model.base_url), "instructions": "Be kind."}
        assert (await client.put("/agents/keyed", json=again)).status_code == 200
        assert (await client.post("/runs/wait", json={"agent": "keyed", "input": "x"})).json()["status"] == "success"
        assert model.requests[0].headers["authorization"] == "Bearer sk-of-the-tenant-0123"
        elsewhere = {"model": openai(model.base_url + "/")}
        assert (await client.put("/agents/keyed", json=elsewhere)).status_code == 200
    await client.delete("/agents/keyed")


async def test_a_tool_choice_that_names_no_tool_of_the_agent_is_refused(client: httpx.AsyncClient) -> None:
    body = run_body(scripted(says("x")), "echo", agent={"tool_choice": "nonexistent"})
    answer = await client.post("/runs", json=body)
    assert (answer.status_code, answer.json()["code"], answer.json()["errors"][0]["pointer"]) == (
        422, "unknown_tool", "/agent/tool_choice",
    )  # fmt: skip


@pytest.mark.parametrize("after", ["zzz", "000", "' OR 1=1 --"])
async def test_a_cursor_that_is_none_is_refused(client: httpx.AsyncClient, after: str) -> None:
    answer = await client.get("/runs", params={"after": after})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")
