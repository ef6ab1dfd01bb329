"""Plugins that do not stop when they are told to: their runs end all the same, honestly, and so does the server."""

import asyncio
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.text_runs import agent
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import check_whole, read_events, stream

pytestmark = pytest.mark.anyio

ENV = {"RUNWIRE_PLUGINS": "tests.e2e.plugin_deaf", "RUNWIRE_TOOL_POLICY": "deaf"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with RunwireServer.open(tmp_path_factory.mktemp("deaf"), env=ENV) as running:
        yield running


def calling(*tools: str) -> dict[str, Any]:
    return run_body(scripted(calls(*((name, dict[str, object]()) for name in tools)), says("x")), *tools)


def handled() -> dict[str, Any]:
    spec = agent("react", scripted(says("dunno")), handle_parsing_errors={"plugin": "deaf_handler"})
    return {"agent": spec, "input": "q"}


BODIES: Mapping[str, dict[str, Any]] = {
    "tool deaf_read": calling("deaf_read"),
    "tool deaf_write": calling("deaf_write"),
    "policy deaf": calling("asked_about"),
    "planner deaf_planner": {"agent": agent("deaf_planner", scripted()), "input": "q"},
    "parsing error handler deaf_handler": handled(),
    "model deaf_model": {"agent": {"model": "deaf_model:silent"}, "input": "q"},
    "model deaf_model, chatty": {"agent": {"model": "deaf_model:chatty"}, "input": "q"},
}
UNDER_WAY = {"tool": "action", "policy": "action", "parsing": "output", "model": "output"}
STEPS = {"tool deaf_read": ["cancelled"], "tool deaf_write": ["unknown"], "policy deaf": ["cancelled"]}


async def begun(client: httpx.AsyncClient, who: str, **settings: object) -> str:
    """A run whose plugin is at work."""
    body = {**BODIES[who], "agent": {**BODIES[who]["agent"], **settings}}
    async with stream(client, "POST", "/runs/stream", json=body) as reading:
        await reading.until(UNDER_WAY.get(who.split()[0], "run"))
        run_id = str(reading.events[0].data["run_id"])
        while who.startswith("tool") and settings == {}:
            steps = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
            if steps[0]["status"] == "running":
                break
    return run_id


async def statuses(client: httpx.AsyncClient, run_id: str) -> list[str]:
    check_whole(read_events((await client.get(f"/runs/{run_id}/stream")).content))
    return [step["status"] for step in (await client.get(f"/runs/{run_id}/steps")).json()["data"]]


@pytest.mark.parametrize("who", BODIES)
async def test_a_cancelled_run_leaves_it_behind(client: httpx.AsyncClient, server: RunwireServer, who: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run_id = await begun(client, who)
        run = (await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})).json()
        assert run["status"] == "cancelled"
        assert await statuses(client, run_id) == STEPS.get(who, [])
    kind, _, name = who.split(",")[0].rpartition(" ")
    lines = [line for line in server.log().splitlines() if "plugin_left_behind" in line]
    if "chatty" not in who:  # that one can be closed
        assert [line for line in lines if kind in line and name in line]


@pytest.mark.parametrize("who", BODIES)
async def test_a_run_out_of_time_leaves_it_behind(client: httpx.AsyncClient, who: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run_id = await begun(client, who, max_execution_time=0.5)
        run = (await client.get(f"/runs/{run_id}/wait")).json()
    assert (run["status"], run["stop_reason"]) == ("success", "max_execution_time")


async def test_a_tools_own_time_holds(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = (await client.post("/runs/wait", json=calling("deaf_brief"))).json()
        step = (await client.get(f"/runs/{run['id']}/steps/1")).json()
    assert (run["output"], step["status"]) == ({"output": "x"}, "unknown")
    assert step["error"]["code"] == "tool_timeout"


async def test_the_server_stops_with_all_of_them_under_way(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path, env={**ENV, "RUNWIRE_SHUTDOWN_GRACE_S": "3"}) as own:
        async with asyncio.timeout(TIMEOUT_S), own.client() as client:
            under_way = {who: await begun(client, who) for who in BODIES}
            left = await begun(client, "model deaf_model")
            await client.post(f"/runs/{left}/cancel", params={"wait": "true"})
            assert await asyncio.to_thread(own.kill, signal.SIGTERM) == 0
            assert "Task was destroyed" not in own.log()
        own.start()
        async with asyncio.timeout(TIMEOUT_S), own.client() as client:
            run_id = under_way["tool deaf_write"]
            assert (await client.get(f"/runs/{run_id}/wait")).json()["status"] == "success"
            assert await statuses(client, run_id) == ["unknown"]
