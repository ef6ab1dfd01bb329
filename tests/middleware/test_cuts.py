"""Middleware that is cut: by a crash, a cancel, the run's time. What was journaled of it is not done again."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.middleware.conftest import PLUGINS
from tests.middleware.support import events
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import TIMEOUT_S, RunwireServer

pytestmark = pytest.mark.anyio

STAGES = ["before_agent", "before_model", "after_model", "after_agent"]


def waits(at: str) -> dict[str, object]:
    return {"name": "waits", "config": {"at": at}}


async def until_told(client: httpx.AsyncClient, run_id: str, word: str) -> None:
    """Follow the run's stream until a middleware has said the word."""
    async with client.stream("GET", f"/runs/{run_id}/stream") as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data: ") and f'"{word}"' in line:
                return
    raise AssertionError("the stream ended before")


@pytest.mark.parametrize("stage", STAGES)
async def test_a_hook_cut_by_a_crash_runs_again_and_those_before_the_agent_do_not(tmp_path: Path, stage: str) -> None:
    script = scripted(calls(("echo", {"x": "1"})), says("fin"))
    ran = tmp_path / "ran"
    body = run_body(script, "echo", agent={"middleware": [waits(stage)]}, context={"file": str(ran)})
    async with asyncio.timeout(3 * TIMEOUT_S):
        with RunwireServer.open(tmp_path, env=PLUGINS) as server:
            async with server.client() as client:
                run_id = (await client.post("/runs", json=body)).json()["id"]
                await until_told(client, run_id, "waiting")
            server.kill()
            (tmp_path / "go").touch()
            server.start()
            async with server.client() as client:
                run = (await client.get(f"/runs/{run_id}/wait", params={"timeout_s": TIMEOUT_S})).json()
                values = (await client.get(f"/threads/{run['thread_id']}/state")).json()["values"]
                data = await events(client, run)
    whole = ["before_agent", "before_model", "after_model", "before_model", "after_model", "after_agent"]
    assert (run["status"], run["output"]) == ("success", {"output": "fin"})
    assert values["marks"] == whole
    lines = ran.read_text().split()
    assert lines.count("before_agent") == (2 if stage == "before_agent" else 1)
    assert [event["id"] for event in data] == list(range(1, len(data) + 1))
    assert sum(event["event"] == "end" for event in data) == 1


@pytest.mark.parametrize("stage", STAGES)
async def test_a_cancel_stops_a_hook_and_every_call_has_its_result(
    client: httpx.AsyncClient, stage: str, tmp_path: Path
) -> None:
    script = scripted(*([] if stage == "after_agent" else [calls(("echo", {"x": "1"}))]), says("fin"))
    body = run_body(script, "echo", agent={"middleware": [waits(stage)]}, context={"file": str(tmp_path / "ran")})
    async with asyncio.timeout(2 * TIMEOUT_S):
        run_id = (await client.post("/runs", json=body)).json()["id"]
        await until_told(client, run_id, "waiting")
        run = (await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})).json()
        messages = (await client.get(f"/runs/{run_id}/messages")).json()["data"]
    assert run["status"] == "cancelled"
    asked = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == asked
    assert len(asked) == (1 if stage == "after_model" else 0)


@pytest.mark.parametrize("stage", STAGES)
async def test_a_hook_counts_against_the_runs_time(client: httpx.AsyncClient, stage: str) -> None:
    settings: dict[str, Any] = {"middleware": [waits(stage)], "max_execution_time": 0.3}
    body = run_body(scripted(says("fin")), "echo", agent=settings)
    async with asyncio.timeout(2 * TIMEOUT_S):
        run = (await client.post("/runs/wait", json=body)).json()
    assert run["stop_reason"] == "max_execution_time"
    assert (run["status"], run["output"]) == (
        "success", {"output": "Agent stopped due to iteration limit or time limit."},
    )  # fmt: skip
    messages = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    assert messages[-1]["content"] == run["output"]["output"]


@pytest.mark.parametrize("hook", ["before_model", "wrap_model_call", "wrap_tool_call"])
async def test_a_hook_that_does_not_stop_is_left_behind(client: httpx.AsyncClient, hook: str) -> None:
    deaf = {"name": "deaf", "config": {"at": hook}}
    body = run_body(scripted(calls(("echo", {"x": "1"})), says("fin")), "echo", agent={"middleware": [deaf]})
    async with asyncio.timeout(TIMEOUT_S):
        run_id = (await client.post("/runs", json=body)).json()["id"]
        await until_told(client, run_id, "waiting")
        run = (await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})).json()
        steps = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
    assert run["status"] == "cancelled"
    assert [step["error"]["code"] for step in steps] == (["result_withheld"] if hook == "wrap_tool_call" else [])
