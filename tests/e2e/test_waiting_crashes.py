"""kill -9 while runs wait, in each phase of it: nothing is asked twice, lost, or done twice, and the ids have no gap."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from app.runs.waiting import Answer
from app.storage.open import Stores, build_stores, open_database
from tests.e2e.ledger import until_effects
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import Event, check_whole, names, read_events
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

ASKS: dict[str, object] = {"requires_approval": True}
PARAMETERS: dict[str, object] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    env = {"RUNWIRE_PUBLIC_URL": "http://runwire.test"}  # the port is another one after a restart
    with RunwireServer.open(tmp_path, env=env) as running:
        yield running


def tool(tools: ToolServer, name: str, path: str = "/echo", /, **more: object) -> dict[str, object]:
    return tool_spec(name, tools.url(path), parameters=PARAMETERS, **more)


async def thread(client: httpx.AsyncClient) -> str:
    """A thread that has had a run."""
    first = (await client.post("/runs/wait", json=run_body(scripted(says("hi"))))).json()
    return str(first["thread_id"])


async def begun(client: httpx.AsyncClient, *specs: dict[str, object], **more: object) -> dict[str, Any]:
    """A run that calls each tool once, in one round."""
    turn = calls(*((str(spec["name"]), {"n": number}) for number, spec in enumerate(specs, 1)))
    body = run_body(scripted(turn, says("done")), *specs, **more)
    return cast("dict[str, Any]", (await client.post("/runs", json=body)).json())


async def until(client: httpx.AsyncClient, run_id: object, *states: str) -> dict[str, Any]:
    """The run, once its steps are as said."""
    while True:
        steps = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
        if [step["status"] for step in steps] == list(states):
            return cast("dict[str, Any]", (await client.get(f"/runs/{run_id}")).json())
        await asyncio.sleep(0.01)  # a state that no event tells of


async def restart(
    server: RunwireServer,
    meanwhile: Callable[[Stores], Awaitable[object]] | None = None,
    how: signal.Signals = signal.SIGKILL,
) -> None:
    """Stop and start; `meanwhile`: what the one before had just committed when it died."""
    await asyncio.to_thread(server.kill, how)
    if meanwhile is not None:
        database = open_database(f"sqlite:///{server.folder}/.runwire/runwire.db")
        await database.start()
        try:
            await meanwhile(build_stores(database, "a key of sixteen or more characters"))
        finally:
            await database.stop()
    await asyncio.to_thread(server.start)


async def answered(client: httpx.AsyncClient, run: Mapping[str, Any], interrupt: int = 0, **answer: object) -> None:
    body = {"responses": [{"interrupt_id": run["interrupts"][interrupt]["id"], **(answer or {"decision": "approve"})}]}
    taken = await client.post(f"/runs/{run['id']}/resume", json=body)
    assert taken.status_code == 202, taken.text


async def called_back(server: RunwireServer, effect: Mapping[str, object], body: object) -> httpx.Response:
    async with server.client(str(effect["callback_token"])) as client:
        return await client.post(f"/tool-calls/{effect['tool_call_id']}/result", json=body)


async def ended(client: httpx.AsyncClient, run_id: object) -> tuple[dict[str, Any], list[Event], list[dict[str, Any]]]:
    """The run at its end, its whole stream, its steps; each call has one result in the messages."""
    answer = await client.get(f"/runs/{run_id}/wait", params={"timeout_s": 15})
    run = cast("dict[str, Any]", answer.json())
    assert (answer.status_code, run["status"], run["interrupts"]) == (200, "success", [])
    told = read_events((await client.get(f"/runs/{run_id}/stream")).content)
    check_whole(told)
    steps = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
    assert names(told).count("action") == names(told).count("step") == len(steps)
    messages = (await client.get(f"/runs/{run_id}/messages")).json()["data"]
    wanted = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == wanted
    return run, told, [(await client.get(f"/runs/{run_id}/steps/{step['step']}")).json() for step in steps]


def lives(told: list[Event]) -> list[tuple[object, object]]:
    return [(item.data["status"], item.data["attempt"]) for item in told if item.event == "run"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_question_outlives_the_server_and_keeps_its_thread_busy(
    own: RunwireServer, own_tools: ToolServer, how: signal.Signals
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            thread_id = await thread(client)
            run = await begun(client, tool(own_tools, "refund", **ASKS), thread_id=thread_id)
            before = (await client.get(f"/runs/{run['id']}/wait")).json()
        await restart(own, how=how)
        async with own.client() as client:
            assert (await client.get(f"/runs/{run['id']}")).json() == before
            assert (before["status"], before["stop_reason"]) == ("interrupted", "awaiting_input")
            busy = await client.post("/runs", json=run_body(scripted(says("hi")), thread_id=thread_id))
            assert (busy.status_code, busy.json()["code"]) == (409, "thread_busy")
            assert own_tools.effects() == []
            await answered(client, before)
            after, told, (step,) = await ended(client, run["id"])
            again = await client.post("/runs/wait", json=run_body(scripted(says("hi")), thread_id=thread_id))
            assert again.json()["status"] == "success"
    assert lives(told) == [("running", 1), ("interrupted", 1), ("running", 1)]
    assert (after["attempt"], names(told).count("interrupt")) == (1, 1)
    assert [item["attempt"] for item in step["attempts"]] == [1]
    assert len(own_tools.effects()) == 1


async def test_an_answer_that_was_kept_just_before_the_kill_is_not_asked_for_again(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            run = await begun(client, tool(own_tools, "refund", **ASKS))
            run = (await client.get(f"/runs/{run['id']}/wait")).json()
        decided = Answer(run["interrupts"][0]["id"], {"decision": "edit", "tool_input": {"n": 7}})
        await restart(own, lambda stores: stores.waits.answer("acme", run["id"], [decided], "me"))
        async with own.client() as client:
            after, told, (step,) = await ended(client, run["id"])
    assert (after["attempt"], names(told).count("interrupt"), step["observation"]) == (1, 1, {"n": 7})
    assert lives(told) == [("running", 1), ("interrupted", 1), ("running", 1)]
    assert [effect["arguments"] for effect in own_tools.effects()] == [{"n": 7}]


@pytest.mark.parametrize(
    ("idempotent", "status", "effects"), [(False, "unknown", 1), (True, "success", 2)]
)  # fmt: skip
async def test_an_approved_call_that_was_sent_keeps_its_edited_arguments(
    own: RunwireServer, own_tools: ToolServer, idempotent: bool, status: str, effects: int
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            run = await begun(client, tool(own_tools, "refund", "/hold", idempotent=idempotent, **ASKS))
            run = (await client.get(f"/runs/{run['id']}/wait")).json()
            await answered(client, run, decision="edit", tool_input={"n": 7})
            await until_effects(own_tools, "refund", count=1)
        own.kill()
        own_tools.release()
        await restart(own)
        async with own.client() as client:
            after, told, (step,) = await ended(client, run["id"])
    assert (step["status"], after["attempt"]) == (status, 2)
    assert lives(told) == [("running", 1), ("interrupted", 1), ("running", 1), ("running", 2)]
    assert [item["attempt"] for item in step["attempts"]] == list(range(1, effects + 1))
    assert step["attempts"][0]["outcome"] == "lost"
    assert step["started_at"] == step["attempts"][0]["at"]
    assert step["duration_ms"] == step["envelope"]["meta"]["duration_ms"]
    assert names(told).count("interrupt") == 1
    assert [effect["arguments"] for effect in own_tools.effects()] == [{"n": 7}] * effects
    assert len({(effect["idempotency_key"], effect["body_sha256"]) for effect in own_tools.effects()}) == 1


async def test_of_two_questions_the_answered_one_is_kept_and_the_other_still_open(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            run = await begun(client, tool(own_tools, "first", **ASKS), tool(own_tools, "second", **ASKS))
            run = (await client.get(f"/runs/{run['id']}/wait")).json()
            await answered(client, run, 1, decision="edit", tool_input={"n": 9})
        await restart(own)
        async with own.client() as client:
            left = (await client.get(f"/runs/{run['id']}")).json()
            assert (left["status"], left["interrupts"]) == ("interrupted", run["interrupts"][:1])
            assert own_tools.effects() == []
            await answered(client, run, 0, decision="reject")
            after, told, steps = await ended(client, run["id"])
    assert [step["status"] for step in steps] == ["denied", "success"]
    assert (after["attempt"], names(told).count("interrupt")) == (1, 2)
    assert [effect["arguments"] for effect in own_tools.effects()] == [{"n": 9}]


async def test_a_kill_while_the_questions_siblings_run_asks_nothing_again(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    specs = [
        tool(own_tools, "ask", **ASKS),
        tool(own_tools, "hang", "/never"),
        tool(own_tools, "again", "/hold", idempotent=True),
        tool(own_tools, "quick"),
    ]
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            run = await begun(client, *specs)
            await until_effects(own_tools, "hang", "again", "quick", count=3)
            asked = await until(client, run["id"], "waiting", "running", "running", "success")
            assert asked["status"] == "running"
            # The answer may come before the run has parked.
            await answered(client, asked)
        own.kill()
        own_tools.release()
        await restart(own)
        async with own.client() as client:
            after, told, steps = await ended(client, run["id"])
    assert [step["status"] for step in steps] == ["success", "unknown", "success", "success"]
    assert (after["attempt"], names(told).count("interrupt")) == (2, 1)
    counts = [len([item for item in own_tools.effects() if item["tool"] == spec["name"]]) for spec in specs]
    assert counts == [1, 1, 2, 1]


@pytest.mark.parametrize("when", ["before", "after", "unread"])
async def test_a_deferred_calls_result_is_taken_whenever_the_server_died(
    own: RunwireServer, own_tools: ToolServer, when: str
) -> None:
    """`unread`: the result came while the tool's 202 was still on its way."""
    late = tool(own_tools, "later", "/never" if when == "unread" else "/202")
    result = {"output": {"refunded": 1}}
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            run = await begun(client, late, thread_id=await thread(client))
            (effect,) = await until_effects(own_tools, "later", count=1)
            await until(client, run["id"], "running" if when == "unread" else "waiting")
        if when == "unread":
            assert (await called_back(own, effect, result)).status_code == 200
            await restart(own)
        elif when == "after":
            await restart(own, lambda stores: stores.waits.deliver(str(effect["tool_call_id"]), {"body": result}))
        else:
            await restart(own)
            async with own.client() as client:
                assert (await client.get(f"/runs/{run['id']}")).json()["status"] == "running"
                busy = await client.post("/runs", json=run_body(scripted(says("x")), thread_id=run["thread_id"]))
                assert busy.status_code == 409
            assert (await called_back(own, effect, result)).status_code == 200
        async with own.client() as client:
            after, told, (step,) = await ended(client, run["id"])
        repeated = await called_back(own, effect, result)
    assert repeated.status_code in (200, 410)
    assert (step["status"], step["observation"]) == ("success", {"refunded": 1})
    attempt = 2 if when == "unread" else 1
    assert (after["attempt"], lives(told)[-1]) == (attempt, ("running", attempt))
    assert len(step["attempts"]) == len(own_tools.effects()) == 1


async def test_kills_right_after_an_answer_never_lose_it_or_send_the_call_twice(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    runs: list[dict[str, Any]] = []
    async with asyncio.timeout(3 * TIMEOUT_S):
        for _ in range(6):
            async with own.client() as client:
                for _ in range(3):
                    run = await begun(client, tool(own_tools, "refund", **ASKS), tool(own_tools, "other", **ASKS))
                    runs.append((await client.get(f"/runs/{run['id']}/wait")).json())
                for run in runs[-3:]:
                    await answered(client, run, 0, decision="edit", tool_input={"n": 100 + len(runs)})
                await asyncio.gather(*(answered(client, run, 1, decision="approve") for run in runs[-3:]))
            await restart(own)
        async with own.client() as client:
            for run in runs:
                _, told, steps = await ended(client, run["id"])
                assert {step["status"] for step in steps} <= {"success", "unknown"}
                assert names(told).count("interrupt") == 2
    ids = [effect["tool_call_id"] for effect in own_tools.effects()]
    assert len(ids) == len(set(ids))
