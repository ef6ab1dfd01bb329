"""kill -9 and people that are waited for: state changes are applied once, and a thread is always free in the end."""

import asyncio
from pathlib import Path

import pytest

from tests.support.bodies import calls, tool_spec
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.tool_server import ToolServer
from tests.threads.support import done, stateful, steps
from tests.threads.test_multitask import ended, posted, seen, state, texts

pytestmark = pytest.mark.anyio

PLUGINS = {"RUNWIRE_PLUGINS": "tests.threads.plugin_state"}


async def test_an_update_of_a_round_that_a_kill_cut_is_applied_once(tmp_path: Path, state_tools: ToolServer) -> None:
    held = tool_spec("held", state_tools.url("/hold"), effect="read")
    turn = calls(("write", {"update": {"log": ["x"], "count": 1}}), ("held", {}))
    with RunwireServer.open(tmp_path, env=PLUGINS) as server:
        async with asyncio.timeout(TIMEOUT_S), server.client() as client:
            run = await posted(
                client, stateful(turn, calls(("look", {"field": "count"})), tools=("write", "look", held))
            )
            await seen(client, run["id"], "step")
            assert (await state(client, run["thread_id"]))["count"] == 0, "applied when the round closes"
        server.kill()
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(state_tools.release)
        async with asyncio.timeout(TIMEOUT_S), server.client() as client:
            assert (await ended(client, run["id"]))["status"] == "success"
            found = await state(client, run["thread_id"])
            assert (found["log"], found["count"]) == (["x"], 1)
            assert (await steps(client, run["id"]))[-1]["observation"] == 1


async def test_a_kill_anywhere_in_a_writing_run_leaves_the_fold_of_its_steps(tmp_path: Path) -> None:
    turns = [calls(("write", {"update": {"count": 1, "log": [f"v{n}"]}})) for n in range(10)]
    with RunwireServer.open(tmp_path, env=PLUGINS) as server:
        run = None
        for kills in range(4):
            async with asyncio.timeout(TIMEOUT_S), server.client() as client:
                if run is None:
                    run = await posted(client, stateful(*turns))
                if kills < 3:
                    await seen(client, run["id"], "step")
                else:
                    assert (await ended(client, run["id"]))["status"] == "success"
                    found = await state(client, run["thread_id"])
                    assert (found["count"], found["log"]) == (10, [f"v{n}" for n in range(10)])
                    return
            server.kill()
            await asyncio.to_thread(server.start)


@pytest.mark.parametrize("form", ["interrupt", "rollback"])
async def test_a_run_that_waits_for_a_person_makes_its_thread_interrupted_and_can_be_displaced(
    tmp_path: Path, form: str
) -> None:
    asks: dict[str, object] = {"interrupt_on": {"put": True}}
    with RunwireServer.open(tmp_path, env=PLUGINS) as server:
        async with asyncio.timeout(TIMEOUT_S), server.client() as client:
            body = stateful(calls(("put", {"field": "log", "value": "x"})), text="0", settings=asks)
            first = (await client.post("/runs/wait", json=body)).json()
            thread_id = first["thread_id"]
            assert (await client.get(f"/threads/{thread_id}")).json()["status"] == "interrupted"
            waits = await posted(client, stateful(text="1", thread_id=thread_id, multitask_strategy="enqueue"))
            after = await done(client, stateful(text="2", thread_id=thread_id, multitask_strategy=form))
            assert after["status"] == "success"
            assert (await ended(client, first["id"]))["status"] == "cancelled"
            assert (await ended(client, waits["id"]))["status"] == "cancelled"
            assert texts(await state(client, thread_id)) == (["0", "2"] if form == "interrupt" else ["2"])
