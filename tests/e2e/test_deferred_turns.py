"""The turns of calls that are answered later: kept until their result, their deadline or their cut, across a restart."""

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.e2e.ledger import until_effects
from tests.e2e.test_waiting_crashes import ASKS, answered, begun, called_back, ended, restart, until
from tests.e2e.test_waiting_crashes import tool as tool_at
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

DONE = {"output": "done"}


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    env = {"RUNWIRE_PUBLIC_URL": "http://runwire.test"}  # the port is another one after a restart
    with RunwireServer.open(tmp_path, env=env) as running:
        yield running


def later(tools: ToolServer, /, **more: object) -> dict[str, object]:
    """A tool that answers 202."""
    return tool_at(tools, "t_" + uuid4().hex[:12], "/202", **more)


def shared(key: str, *specs: dict[str, object]) -> list[dict[str, object]]:
    return [{**spec, "concurrency_key": key} for spec in specs]


async def until_tried(client: httpx.AsyncClient, tools: ToolServer) -> None:
    """What was sent until now has arrived: a call of another run, without a turn, went the whole way."""
    spec = tool_at(tools, "t_" + uuid4().hex[:12])
    run = await begun(client, spec)
    assert (await client.get(f"/runs/{run['id']}/wait")).json()["status"] == "success"


async def parked(client: httpx.AsyncClient, tools: ToolServer, spec: dict[str, object]) -> tuple[dict[str, Any], Any]:
    """A run whose one call was deferred, and what its tool was sent."""
    run = await begun(client, spec)
    effect = (await until_effects(tools, str(spec["name"]), count=1))[-1]
    await until(client, run["id"], "waiting")
    return run, effect


@pytest.mark.parametrize("line", [{"concurrency_key": "all"}, {"max_concurrency": 1}])
async def test_deferred_calls_of_a_round_come_one_after_another_across_a_restart(
    own: RunwireServer, own_tools: ToolServer, line: dict[str, object]
) -> None:
    spec = later(own_tools, **line)
    name = str(spec["name"])
    async with asyncio.timeout(2 * TIMEOUT_S):
        async with own.client() as client:
            turn = calls(*((name, {"n": number}) for number in (1, 2, 3)))
            run = (await client.post("/runs", json=run_body(scripted(turn, says("done")), spec))).json()
            first = (await until_effects(own_tools, name, count=1))[0]
            await until(client, run["id"], "waiting", "waiting", "waiting")
            await until_tried(client, own_tools)
        await restart(own)
        async with own.client() as client:
            await until_tried(client, own_tools)
            assert [item["arguments"] for item in own_tools.effects() if item["tool"] == name] == [{"n": 1}]
            assert (await called_back(own, first, DONE)).status_code == 200
            second = (await until_effects(own_tools, name, count=2))[1]
            await until(client, run["id"], "waiting", "waiting", "waiting")
        await restart(own, how=signal.SIGTERM)
        async with own.client() as client:
            await until_tried(client, own_tools)
            assert len([item for item in own_tools.effects() if item["tool"] == name]) == 2
            assert (await called_back(own, second, DONE)).status_code == 200
            third = (await until_effects(own_tools, name, count=3))[2]
            assert (await called_back(own, third, DONE)).status_code == 200
            _, _, steps = await ended(client, run["id"])
    assert [step["status"] for step in steps] == ["success"] * 3
    assert [item["arguments"] for item in own_tools.effects() if item["tool"] == name] == [{"n": n} for n in (1, 2, 3)]
    assert own_tools.repeated() == {}


@pytest.mark.parametrize(
    "how", ["cancel", "deadline", "time limit", "cancel after a restart", "deadline after a restart"]
)
async def test_a_deferred_call_that_is_cut_gives_up_its_turn(
    own: RunwireServer, own_tools: ToolServer, how: str
) -> None:
    key = uuid4().hex
    holder, other = shared(key, later(own_tools), tool_at(own_tools, "t_" + uuid4().hex[:12]))
    if how.startswith("deadline"):
        holder = {**holder, "deadline_s": 3.0}
    async with asyncio.timeout(2 * TIMEOUT_S):
        async with own.client() as client:
            if how == "time limit":
                beside = tool_at(own_tools, "t_" + uuid4().hex[:12], "/hold")
                holding = await begun(client, holder, beside, agent={"max_execution_time": 1.5})
                await until_effects(own_tools, str(holder["name"]), str(beside["name"]), count=2)
                await until(client, holding["id"], "waiting", "running")
            else:
                holding, _ = await parked(client, own_tools, holder)
            if how.endswith("restart"):
                await restart(own)
        async with own.client() as client:
            waiting = await begun(client, other)
            if not how.startswith("deadline"):
                await until(client, waiting["id"], "waiting")
                await until_tried(client, own_tools)
                assert not [item for item in own_tools.effects() if item["tool"] == other["name"]]
            if how.startswith("cancel"):
                await client.post(f"/runs/{holding['id']}/cancel")
            run, _, (other_step,) = await ended(client, waiting["id"])
            step = (await client.get(f"/runs/{holding['id']}/steps/1")).json()
    assert run["output"] == {"output": "done"}
    if how.startswith("deadline"):
        begun_at, sent_at = (datetime.fromisoformat(item["started_at"]) for item in (step, other_step))
        assert sent_at >= begun_at + timedelta(seconds=3)
    assert step["status"] == "unknown"


async def test_a_turn_is_given_up_when_the_tool_calls_back_though_its_run_has_no_place(
    tmp_path: Path, own_tools: ToolServer
) -> None:
    holder, other = shared(uuid4().hex, later(own_tools), tool_at(own_tools, "t_" + uuid4().hex[:12]))
    with RunwireServer.open(tmp_path, env={"RUNWIRE_MAX_CONCURRENT_RUNS": "1"}) as server:
        async with asyncio.timeout(TIMEOUT_S), server.client() as client:
            holding, effect = await parked(client, own_tools, holder)
            waiting = await begun(client, other)
            await until(client, waiting["id"], "waiting")
            assert (await called_back(server, effect, DONE)).status_code == 200
            await ended(client, waiting["id"])
            await ended(client, holding["id"])


async def test_a_call_that_waits_for_a_person_holds_no_turn_and_waits_for_none(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    name = "t_" + uuid4().hex[:12]
    holder, asks, other = shared(
        uuid4().hex, later(own_tools), tool_at(own_tools, name, **ASKS), tool_at(own_tools, "t_" + uuid4().hex[:12])
    )
    async with asyncio.timeout(TIMEOUT_S), own.client() as client:
        _, effect = await parked(client, own_tools, holder)
        asking = await begun(client, asks)
        asked = (await client.get(f"/runs/{asking['id']}/wait")).json()
        assert asked["status"] == "interrupted"
        waiting = await begun(client, other)
        await until(client, waiting["id"], "waiting")
        assert (await called_back(own, effect, DONE)).status_code == 200
        await ended(client, waiting["id"])
        second, effect = await parked(
            client, own_tools, {**later(own_tools), "concurrency_key": holder["concurrency_key"]}
        )
        await answered(client, asked)
        await until_tried(client, own_tools)
        assert not [
            item for item in own_tools.effects() if item["tool"] == name
        ]  # allowed, it takes its place in the line
        assert (await called_back(own, effect, DONE)).status_code == 200
        await ended(client, asking["id"])
        await ended(client, second["id"])
