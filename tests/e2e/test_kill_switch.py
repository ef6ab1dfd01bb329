"""The kill switch and withdrawn rights: the next call of a run that is under way is stopped, and says why."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.ids import new_id
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.receiver import Receiver
from tests.support.server import ACME, KEYS, OTHER, READER, RUNNER, TIMEOUT_S, RunwireServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tool() -> AsyncIterator[Receiver]:
    async with Receiver.open() as opened:
        yield opened


def fresh_name() -> str:
    return "k" + new_id().replace("-", "")


async def registered(client: httpx.AsyncClient, tool: Receiver, **more: object) -> str:
    name = fresh_name()
    answer = await client.post("/tools", json=tool_spec(name, tool.url, **more))
    assert answer.status_code == 201, answer.text
    return name


async def begun(client: httpx.AsyncClient, tool: Receiver, name: str, *, times: int = 2) -> str:
    """A run whose first call is out and waits."""
    tool.hold = asyncio.Event()
    body = run_body(scripted(*[calls((name, {}))] * times, says("done")), name)
    run = (await client.post("/runs", json=body)).json()
    await tool.until(1)
    return run["id"]


async def steps_of(client: httpx.AsyncClient, run_id: str) -> list[dict[str, Any]]:
    assert (await client.get(f"/runs/{run_id}/wait")).json()["status"] == "success"
    numbers = [step["step"] for step in (await client.get(f"/runs/{run_id}/steps")).json()["data"]]
    return [(await client.get(f"/runs/{run_id}/steps/{number}")).json() for number in numbers]


@pytest.mark.parametrize("everything", [False, True])
async def test_a_switch_stops_the_next_call_of_a_run_under_way_and_does_not_cut_the_one_that_is_out(
    tmp_path: Path, tool: Receiver, everything: bool
) -> None:
    with RunwireServer.open(tmp_path) as server:
        async with server.client() as client, asyncio.timeout(TIMEOUT_S):
            name = await registered(client, tool)
            path = "/tool-calls/disabled" if everything else f"/tools/{name}/disabled"
            run_id = await begun(client, tool, name)
            answer = await client.put(path, json={"disabled": True, "reason": "it refunds too much"})
            assert (answer.status_code, answer.json()["disabled"]) == (200, True)
            assert tool.hold is not None
            tool.hold.set()
            first, second = await steps_of(client, run_id)
            assert (first["status"], first["observation"]) == ("success", "done")
            assert (second["status"], second["error"]["code"], second["attempts"]) == ("denied", "tool_disabled", [])
            assert second["observation"] == f"{name} was not called: it is switched off for now. Go on without it."
            denial = [item for item in second["chain"] if item["verdict"] == "denied"]
            assert denial[0]["stage"] == "authorization"
            assert "switched off by key_" in denial[0]["detail"]
            assert "it refunds too much" in denial[0]["detail"]
            assert len(tool.requests) == 1

            server.kill()
            server.start()
        async with server.client() as client, asyncio.timeout(TIMEOUT_S):
            assert (await client.get(path)).json()["disabled"] is True
            shown = (await client.get(f"/tools/{name}")).json()["disabled"]
            assert (shown["all_tools"], shown["reason"]) == (everything, "it refunds too much")
            refused = (await client.post(f"/tools/{name}/invoke", json={"arguments": {}})).json()
            assert (refused["status"], refused["error"]["code"]) == ("denied", "tool_disabled")
            assert len(tool.requests) == 1

            lifted = await client.put(path, json={"disabled": False})
            assert lifted.json()["disabled"] is False
            assert [item["lifted_by"] is not None for item in lifted.json()["history"]] == [True]
            assert (await client.get(f"/tools/{name}")).json()["disabled"] is None
            assert (await client.post(f"/tools/{name}/invoke", json={"arguments": {}})).json()["status"] == "success"


async def test_plugins_are_switched_off_too_and_only_for_their_tenant(
    client: httpx.AsyncClient, server: RunwireServer
) -> None:
    path = "/tools/repeat_text/disabled"
    body = run_body(scripted(calls(("repeat_text", {"text": "a", "times": 2})), says("done")), "repeat_text")
    try:
        assert (await client.put(path, json={"disabled": True})).status_code == 200
        for key, status in ((ACME, "denied"), (OTHER, "success")):
            async with server.client(key) as caller:
                run = (await caller.post("/runs/wait", json=body)).json()
                [step] = (await caller.get(f"/runs/{run['id']}/steps")).json()["data"]
                assert step["status"] == status
    finally:
        assert (await client.delete(path)).status_code == 204
    assert (await client.delete(path)).status_code == 204


async def test_who_may_switch_what(client: httpx.AsyncClient, server: RunwireServer) -> None:
    async with server.client(READER) as reader, server.client(RUNNER) as runner, server.client(OTHER) as other:
        said = [
            await reader.put("/tools/echo/disabled", json={"disabled": True}),
            await runner.put("/tool-calls/disabled", json={"disabled": True}),
            await other.put("/tools/no_such_tool/disabled", json={"disabled": True}),
            await client.get("/tools/no_such_tool/disabled"),
            await client.put("/tools/echo/disabled", json={}),
            await client.put("/tools/echo/disabled", json={"disabled": "true"}),
        ]
    assert [(answer.status_code, answer.json()["code"]) for answer in said] == [
        (403, "missing_scope"), (403, "missing_scope"), (404, "tool_not_found"), (404, "tool_not_found"),
        (422, "invalid_request"), (422, "invalid_request"),
    ]  # fmt: skip


async def test_another_reason_is_another_switch_and_the_first_stays_in_the_history(client: httpx.AsyncClient) -> None:
    path = (
        "/tools/flaky/disabled" if (await client.get("/tools/flaky")).status_code == 200 else "/tools/direct/disabled"
    )
    try:
        for reason in ("one", "one", "two"):
            state = (await client.put(path, json={"disabled": True, "reason": reason})).json()
        assert [item["reason"] for item in state["history"]] == ["two", "one"]
        assert (state["reason"], state["history"][0]["lifted_at"]) == ("two", None)
    finally:
        await client.delete(path)


async def test_the_operators_setting_stops_every_tenant_from_the_start(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path, env={"RUNWIRE_TOOLS_DISABLED": "true"}) as server:
        for key in (ACME, OTHER):
            async with server.client(key) as client:
                answer = (await client.post("/tools/echo/invoke", json={"arguments": {"text": "x"}})).json()
                assert (answer["status"], answer["error"]["code"]) == ("denied", "tool_disabled")
                state = (await client.get("/tool-calls/disabled")).json()
                assert (state["disabled"], state["by"]) == (True, "RUNWIRE_TOOLS_DISABLED")


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (f"{RUNNER}:acme:runs:read runs:write", "missing_scope"),
        (f"{RUNNER}:acme:runs:read orders:write", "missing_scope"),
        (f"{RUNNER}:elsewhere:runs:read runs:write orders:write", "missing_scope"),
        ("", "missing_scope"),
        (f"{RUNNER}:acme:runs:write orders:write", None),
    ],
)
async def test_a_scope_that_the_key_lost_by_a_restart_stops_the_runs_next_call(
    tmp_path: Path, tool: Receiver, now: str, code: str | None
) -> None:
    before_scopes = "runs:read runs:write agents:write orders:write"
    before = KEYS.replace(f"{RUNNER}:acme:runs:read runs:write", f"{RUNNER}:acme:{before_scopes}")
    with RunwireServer.open(tmp_path, keys=before) as server:
        async with server.client() as client, asyncio.timeout(TIMEOUT_S):
            name = await registered(client, tool, scopes=["orders:write"], effect="read")
            async with server.client(RUNNER) as runner:
                run_id = await begun(runner, tool, name)
        server.kill()
        server.env = {**server.env, "RUNWIRE_API_KEYS": ",".join(filter(None, (f"{ACME}:acme", now)))}
        server.start()
        assert tool.hold is not None
        tool.hold.set()
        async with server.client() as client, asyncio.timeout(TIMEOUT_S):
            steps = await steps_of(client, run_id)
    assert len(steps) == 2
    assert steps[1]["status"] == ("success" if code is None else "denied")
    if code is not None:
        assert (steps[1]["error"]["code"], len(tool.requests)) == (code, 1)
        assert steps[0]["status"] == "error"  # it was sent before: what became of it is not denied
