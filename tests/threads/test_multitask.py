"""Two runs on one thread: refused, lined up, or the newer one in the place of the older."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.bodies import calls, says
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.threads.support import done, events, stateful, steps

pytestmark = pytest.mark.anyio

FORMS = ("reject", "enqueue", "interrupt", "rollback")
HANGS = calls(("hang", {}))
WRITES = calls(("put", {"field": "log", "value": "early"}))


async def posted(client: httpx.AsyncClient, body: dict[str, object]) -> dict[str, Any]:
    answer = await client.post("/runs", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def ended(client: httpx.AsyncClient, run_id: str) -> dict[str, Any]:
    answer = await client.get(f"/runs/{run_id}/wait", params={"timeout_s": TIMEOUT_S})
    assert answer.status_code == 200
    return answer.json()


async def seen(client: httpx.AsyncClient, run_id: str, event: str) -> None:
    """Wait until the run has told this."""
    async with asyncio.timeout(TIMEOUT_S), client.stream("GET", f"/runs/{run_id}/stream") as answer:
        async for line in answer.aiter_lines():
            if line == f"event: {event}":
                return
    raise AssertionError(f"no {event}")


async def state(client: httpx.AsyncClient, thread_id: str) -> dict[str, Any]:
    return (await client.get(f"/threads/{thread_id}/state")).json()["values"]


def texts(values: dict[str, Any], role: str = "user") -> list[object]:
    return [message["content"] for message in values["messages"] if message["role"] == role]


async def test_enqueued_runs_go_one_after_another_in_order(client: httpx.AsyncClient) -> None:
    first = await posted(client, stateful(HANGS, text="0"))
    waiting = [
        await posted(
            client,
            stateful(text=str(n), thread_id=first["thread_id"], multitask_strategy="enqueue", state={"count": 1}),
        )
        for n in range(1, 6)
    ]
    assert {run["status"] for run in waiting} == {"pending"}
    assert texts(await state(client, first["thread_id"])) == ["0"], "a waiting run has written nothing yet"
    await client.post(f"/runs/{first['id']}/cancel")
    over = [await ended(client, run["id"]) for run in waiting]
    assert {run["status"] for run in over} == {"success"}
    values = await state(client, first["thread_id"])
    assert (texts(values), values["count"]) == (["0", "1", "2", "3", "4", "5"], 5)
    finished = [run["finished_at"] for run in over]
    assert finished == sorted(finished)
    assert (await events(client, waiting[0]["id"]))[0][0] == "run"
    assert (await client.get(f"/threads/{first['thread_id']}")).json()["active_run_id"] is None


async def test_a_run_that_waits_can_be_cancelled_and_leaves_no_trace_in_the_thread(client: httpx.AsyncClient) -> None:
    first = await posted(client, stateful(HANGS, text="0"))
    line = [
        await posted(client, stateful(text=str(n), thread_id=first["thread_id"], multitask_strategy="enqueue"))
        for n in range(1, 4)
    ]
    cancelled = await client.post(f"/runs/{line[1]['id']}/cancel", params={"wait": "true"})
    assert cancelled.json()["status"] == "cancelled"
    assert (await client.get(f"/runs/{first['id']}")).json()["status"] == "running"
    await client.post(f"/runs/{first['id']}/cancel")
    assert [(await ended(client, run["id"]))["status"] for run in line] == ["success", "cancelled", "success"]
    assert texts(await state(client, first["thread_id"])) == ["0", "1", "3"]


async def test_an_interrupting_run_keeps_what_the_other_did(client: httpx.AsyncClient) -> None:
    first = await posted(client, stateful(WRITES, HANGS, text="0"))
    await seen(client, first["id"], "step")
    after = await done(client, stateful(text="1", thread_id=first["thread_id"], multitask_strategy="interrupt"))
    assert (await ended(client, first["id"]))["status"] == "cancelled"
    assert [step["status"] for step in await steps(client, first["id"])] == ["success", "cancelled"]
    values = await state(client, first["thread_id"])
    assert (after["status"], texts(values), values["log"]) == ("success", ["0", "1"], ["early"])


async def test_a_rollback_takes_the_others_changes_back(client: httpx.AsyncClient) -> None:
    base = await done(client, stateful(text="base", state={"log": ["base"]}))
    first = await posted(client, stateful(WRITES, HANGS, text="0", thread_id=base["thread_id"]))
    await seen(client, first["id"], "step")
    assert (await state(client, base["thread_id"]))["log"] == ["base", "early"]
    after = await done(client, stateful(text="1", thread_id=base["thread_id"], multitask_strategy="rollback"))
    assert after["status"] == "success"
    values = await state(client, base["thread_id"])
    assert (texts(values), values["log"]) == (["base", "1"], ["base"])
    assert [step["status"] for step in await steps(client, first["id"])] == ["success", "cancelled"]
    assert (await ended(client, first["id"]))["status"] == "cancelled"


@pytest.mark.parametrize("form", FORMS)
async def test_of_twenty_posts_at_once_each_has_one_honest_end(client: httpx.AsyncClient, form: str) -> None:
    base = await done(client, stateful(text="base"))
    thread_id = base["thread_id"]
    turns = [calls(("hang", {}))] if form in ("interrupt", "rollback", "reject") else []
    bodies = [stateful(*turns, text=f"t{n}", thread_id=thread_id, multitask_strategy=form) for n in range(20)]
    answers = await asyncio.gather(*(client.post("/runs", json=body) for body in bodies))
    taken = [answer.json() for answer in answers if answer.status_code == 201]
    refused = [answer for answer in answers if answer.status_code != 201]
    assert {answer.json()["code"] for answer in refused} <= {"thread_busy"}
    assert len(taken) == (1 if form == "reject" else 20)
    async with asyncio.timeout(TIMEOUT_S):
        if form != "enqueue":
            active = None
            over = 0
            while over < len(taken) - 1:
                runs = [(await client.get(f"/runs/{run['id']}")).json() for run in taken]
                over = sum(run["status"] == "cancelled" for run in runs)
            active = (await client.get(f"/threads/{thread_id}")).json()["active_run_id"]
            assert active in [run["id"] for run in taken]
            await client.post(f"/runs/{active}/cancel", params={"wait": "true"})
        ends = [(await ended(client, run["id"]))["status"] for run in taken]
    assert set(ends) == ({"success"} if form == "enqueue" else {"cancelled"})
    values = await state(client, thread_id)
    told = texts(values)
    assert told[0] == "base"
    assert len(told) == len(set(told))
    if form == "enqueue":
        assert set(told[1:]) == {f"t{n}" for n in range(20)}
        assert texts(values, "assistant") == ["done"] * 21
    if form == "rollback":
        assert len(told) == 2, "only the last one, which nobody displaced"
    thread = (await client.get(f"/threads/{thread_id}")).json()
    assert (thread["status"], thread["active_run_id"]) == ("idle", None)
    again = await done(client, stateful(text="again", thread_id=thread_id))
    assert again["status"] == "success"


async def test_a_line_survives_a_kill(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path, env={"RUNWIRE_PLUGINS": "tests.threads.plugin_state"}) as server:
        async with server.client() as client:
            first = await posted(client, stateful(HANGS, text="0"))
            line = [
                await posted(client, stateful(text=str(n), thread_id=first["thread_id"], multitask_strategy="enqueue"))
                for n in range(1, 4)
            ]
        server.kill()
        server.start()
        async with server.client() as client:
            assert [(await client.get(f"/runs/{run['id']}")).json()["status"] for run in line] == ["pending"] * 3
            await client.post(f"/runs/{first['id']}/cancel")
            assert [(await ended(client, run["id"]))["status"] for run in line] == ["success"] * 3
            assert texts(await state(client, first["thread_id"])) == ["0", "1", "2", "3"]


async def test_a_repeated_post_with_its_key_joins_the_line_once(client: httpx.AsyncClient) -> None:
    first = await posted(client, stateful(HANGS, says("x"), text="0"))
    body = stateful(text="1", thread_id=first["thread_id"], multitask_strategy="enqueue")
    headers = {"Idempotency-Key": f"line {first['id']}"}
    answers = [await client.post("/runs", json=body, headers=headers) for _ in range(3)]
    assert len({answer.json()["id"] for answer in answers}) == 1
    await client.post(f"/runs/{first['id']}/cancel")
    assert (await ended(client, answers[0].json()["id"]))["status"] == "success"
    assert texts(await state(client, first["thread_id"])) == ["0", "1"]
