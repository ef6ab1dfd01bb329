"""What happens at once while a run waits: answers, callbacks, cancels, ends of time, and tools that change meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from dirty_equals import IsStr

from app.core.ids import new_id
from tests.e2e.ledger import until_effects
from tests.e2e.test_waiting_crashes import ASKS, answered, begun, called_back, ended, restart, tool, until
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.server import KEYS, TIMEOUT_S, RunwireServer
from tests.support.streams import check_whole, names, read_events, stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    with RunwireServer.open(tmp_path) as running:
        yield running


async def waiting(client: httpx.AsyncClient, *specs: dict[str, object], **more: object) -> dict[str, Any]:
    """A run that waits for people about each of its calls."""
    run = await begun(client, *specs, **more)
    run = cast("dict[str, Any]", (await client.get(f"/runs/{run['id']}/wait")).json())
    assert (run["status"], len(run["interrupts"])) == ("interrupted", len(specs)), run
    return run


async def over(client: httpx.AsyncClient, run: Mapping[str, Any]) -> dict[str, Any]:
    """The run at its end, whatever that is; its stream is whole."""
    async with stream(client, "GET", f"/runs/{run['id']}/stream?hold=true") as opened:
        told = await opened.rest()
    check_whole(told)
    assert names(told).count("action") == names(told).count("step")
    return cast("dict[str, Any]", (await client.get(f"/runs/{run['id']}")).json())


def of(effects: list[dict[str, object]], name: str) -> list[dict[str, object]]:
    return [effect for effect in effects if effect["tool"] == name]


async def test_answers_to_different_questions_at_once_are_all_kept(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    names_ = [f"both_{number}" for number in range(8)]
    async with asyncio.timeout(TIMEOUT_S):
        for _ in range(5):
            run = await waiting(client, *(tool(tools, name, **ASKS) for name in names_))
            await asyncio.gather(*(answered(client, run, number) for number in range(8)))
            after, told, steps = await ended(client, run["id"])
            assert {step["status"] for step in steps} == {"success"}
            assert after["attempt"] == 1
            assert [event.data["status"] for event in told if event.event == "run"].count("running") == 2


async def test_an_answer_and_a_cancel_at_once_leave_one_end_and_nothing_after_it(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    ends: set[str] = set()
    async with asyncio.timeout(2 * TIMEOUT_S):
        for first in (True, False) * 6:
            run = await waiting(client, tool(tools, "either", **ASKS))
            body = {"responses": [{"interrupt_id": run["interrupts"][0]["id"], "decision": "approve"}]}
            both = [
                client.post(f"/runs/{run['id']}/resume", json=body),
                client.post(f"/runs/{run['id']}/cancel", params={"wait": "true"}),
            ]
            one, other = await asyncio.gather(*(both if first else both[::-1]))
            resumed, cancelled = (one, other) if first else (other, one)
            assert resumed.status_code in (202, 409), resumed.text
            assert cancelled.status_code == 200
            after = await over(client, run)
            ends.add(after["status"])
            assert after["status"] in ("cancelled", "success")
            (step,) = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
            sent = [effect for effect in tools.effects() if effect["tool_call_id"] == step["tool_call_id"]]
            assert len(sent) <= 1
            assert step["status"] in (("success", "unknown") if sent else ("cancelled", "unknown"))
    assert "cancelled" in ends


async def test_a_cancel_while_the_run_is_just_parking_ends_it(client: httpx.AsyncClient, tools: ToolServer) -> None:
    async with asyncio.timeout(2 * TIMEOUT_S):
        for until in ("action", "interrupt", "run") * 4:
            body = run_body(scripted(calls(("park", {"n": 1})), says("done")), tool(tools, "park", **ASKS))
            async with stream(client, "POST", "/runs/stream", json=body) as opened:
                first = await opened.until("run")
                run = {"id": first.data["run_id"]}
                await opened.until(until)
                await client.post(f"/runs/{run['id']}/cancel", params={"wait": "true"})
            after = await over(client, run)
            assert (after["status"], after["interrupts"]) == ("cancelled", [])


async def test_a_cancel_that_was_recorded_just_before_a_kill_is_kept_while_the_run_waits(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            asked = await waiting(client, tool(own_tools, "refund", **ASKS))
            late = await begun(client, tool(own_tools, "later", "/202"))
            async with stream(client, "GET", f"/runs/{late['id']}/stream") as opened:
                await opened.until("action")
            await until_effects(own_tools, "later", count=1)
        for run in (asked, late):
            await restart(own, lambda stores, run=run: stores.runs.request_cancel("acme", run["id"]))
        async with own.client() as client:
            for run in (asked, late):
                assert (await over(client, run))["status"] == "cancelled"
    assert of(own_tools.effects(), "refund") == []


async def test_callbacks_of_all_calls_of_a_round_at_once_drive_the_run_once(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    specs = [tool(own_tools, f"later_{number}", "/202") for number in range(12)]
    async with asyncio.timeout(2 * TIMEOUT_S), own.client() as client:
        for turn in range(1, 6):
            run = await begun(client, *specs)
            effects = await until_effects(own_tools, *(str(spec["name"]) for spec in specs), count=12 * turn)
            mine = effects[-12:]
            for answer in await asyncio.gather(*(called_back(own, effect, {"output": 1}) for effect in mine)):
                assert answer.status_code == 200
            after, told, steps = await ended(client, run["id"])
            assert after["attempt"] == 1
            assert {step["status"] for step in steps} == {"success"}
            assert names(told).count("run") == 1


async def test_a_callback_before_the_tools_own_answer_is_the_result_if_that_is_202_or_lost(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    """Also where the call had to be approved first, within a time that is over by then."""
    approved = {"requires_approval": {"expires_s": 1.5}}
    late = tool(own_tools, "later", "/never", timeout_s=2, **approved)
    async with asyncio.timeout(TIMEOUT_S), own.client() as client:
        run = await waiting(client, late)
        await answered(client, run)
        (effect,) = await until_effects(own_tools, "later", count=1)
        assert (await called_back(own, effect, {"output": "early"})).status_code == 200
        assert (await called_back(own, effect, {"output": "other"})).status_code == 409
        _, _, (step,) = await ended(client, run["id"])
        assert (await called_back(own, effect, {"output": "early"})).status_code == 200
    assert (step["status"], step["observation"]) == ("success", "early")
    assert len(own_tools.effects()) == 1


async def test_a_callback_and_the_deadline_at_once_agree_on_one_end(own: RunwireServer, own_tools: ToolServer) -> None:
    async with asyncio.timeout(2 * TIMEOUT_S), own.client() as client:
        for turn in range(1, 9):
            run = await begun(client, tool(own_tools, "later", "/202", deadline_s=0.3))
            effect = (await until_effects(own_tools, "later", count=turn))[-1]
            async with stream(client, "GET", f"/runs/{run['id']}/stream") as opened:
                posted = [asyncio.create_task(called_back(own, effect, {"output": 1}))] if turn % 2 else []
                await opened.rest()
            last = await called_back(own, effect, {"output": 1})
            _, _, (step,) = await ended(client, run["id"])
            taken = bool(posted) and (await posted[0]).status_code == 200
            assert step["status"] == ("success" if taken else "unknown")
            assert last.status_code == (200 if taken else 410)


async def test_an_answer_and_its_expiry_at_once_agree_on_one_end(client: httpx.AsyncClient, tools: ToolServer) -> None:
    async with asyncio.timeout(2 * TIMEOUT_S):
        for turn in range(8):
            run = await waiting(client, tool(tools, "expires", requires_approval={"expires_s": 0.15}))
            interrupt = run["interrupts"][0]
            answers: list[httpx.Response] = []
            body = {"responses": [{"interrupt_id": interrupt["id"], "decision": "approve"}]}
            async with stream(client, "GET", f"/runs/{run['id']}/stream?hold=true") as opened:
                if turn % 2:
                    answers.append(await client.post(f"/runs/{run['id']}/resume", json=body))
                await opened.rest()
            answers.append(await client.post(f"/runs/{run['id']}/resume", json=body))
            _, _, (step,) = await ended(client, run["id"])
            won = answers[0].status_code == 202
            assert step["status"] == ("success" if won else "denied")
            assert answers[-1].status_code == 409


async def test_what_is_withdrawn_while_it_waits_is_not_sent_although_approved(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    async def disabled(client: httpx.AsyncClient, name: str) -> None:
        assert (await client.put(f"/tools/{name}/disabled", json={"disabled": True})).status_code == 200

    async def all_disabled(client: httpx.AsyncClient, _: str) -> None:
        assert (await client.put("/tool-calls/disabled", json={"disabled": True})).status_code == 200

    async def deleted(client: httpx.AsyncClient, name: str) -> None:
        assert (await client.delete(f"/tools/{name}")).status_code == 204

    async with asyncio.timeout(TIMEOUT_S), own.client() as client:
        for change, code in (
            (deleted, "tool_withdrawn"),
            (disabled, "tool_disabled"),
            (all_disabled, "tool_disabled"),
        ):
            name = "w" + new_id().replace("-", "")
            spec = tool(own_tools, name, **ASKS)
            assert (await client.post("/tools", json=spec)).status_code == 201
            body = run_body(scripted(calls((name, {"n": 1})), says("done")), name)
            run = (await client.post("/runs/wait", json=body)).json()
            await change(client, name)
            await answered(client, run)
            _, _, (step,) = await ended(client, run["id"])
            assert (step["status"], step["error"]["code"], step["attempts"]) == ("denied", code, [])
            assert ("approval", "approved") in [(item["stage"], item["verdict"]) for item in step["chain"]]
    assert own_tools.effects() == []


async def test_a_key_that_lost_its_scope_while_its_call_waited_is_denied(tmp_path: Path, own_tools: ToolServer) -> None:
    key = "scoped-key-0123456789"

    def keys(scopes: str) -> str:
        return f"{KEYS},{key}:acme:{scopes}"

    with RunwireServer.open(tmp_path, keys=keys("runs:read runs:write agents:write tools:write pay")) as server:
        async with asyncio.timeout(TIMEOUT_S):
            async with server.client(key) as client:
                run = await waiting(client, tool(own_tools, "refund", scopes=["pay"], **ASKS))
            server.kill()
            server.env = {**server.env, "RUNWIRE_API_KEYS": keys("runs:read runs:write")}
            await asyncio.to_thread(server.start)
            async with server.client(key) as client:
                await answered(client, run)
                _, _, (step,) = await ended(client, run["id"])
    assert (step["status"], step["attempts"]) == ("denied", [])
    assert own_tools.effects() == []


@pytest.mark.parametrize("decided", [{"decision": "approve"}, {"decision": "edit", "tool_input": {"n": 2}}])
@pytest.mark.parametrize("dies", [False, True])
async def test_an_approval_is_void_once_the_tool_was_replaced_and_the_model_may_ask_again(
    own: RunwireServer, own_tools: ToolServer, decided: dict[str, Any], dies: bool
) -> None:
    """The run keeps the version that it pinned: what is approved afterwards is called."""
    name = "r" + new_id().replace("-", "")
    async with asyncio.timeout(2 * TIMEOUT_S):
        async with own.client() as client:
            assert (await client.post("/tools", json=tool(own_tools, name, **ASKS))).status_code == 201
            body = run_body(scripted(calls((name, {"n": 1})), calls((name, {"n": 5})), says("done")), name)
            run = (await client.post("/runs/wait", json=body)).json()
            replaced = tool_spec(name, own_tools.url("/error"), parameters={"type": "object", "required": ["other"]})
            assert (await client.put(f"/tools/{name}", json=replaced)).status_code == 200
        if dies:
            await restart(own)
        async with own.client() as client:
            await answered(client, run, **decided)
            again = (await client.get(f"/runs/{run['id']}/wait")).json()
            assert [item["tool_input"] for item in again["interrupts"]] == [{"n": 5}]
            assert own_tools.effects() == []
            await answered(client, again)
            _, _, (first, second) = await ended(client, run["id"])
    assert (first["status"], first["error"]["code"], first["attempts"]) == ("denied", "approval_void", [])
    assert [item["verdict"] for item in first["chain"] if item["stage"] == "approval"][-1] == "void"
    assert (second["status"], second["observation"], second["tool_version"]) == ("success", {"n": 5}, 1)
    assert [effect["arguments"] for effect in own_tools.effects()] == [{"n": 5}]


async def test_a_replaced_tool_leaves_calls_alone_that_nobody_was_asked_about_or_that_are_of_no_registered_tool(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    """An inline tool has the name of a registered one here."""
    name, free = "i" + new_id().replace("-", ""), "f" + new_id().replace("-", "")
    async with asyncio.timeout(TIMEOUT_S):
        for spec in (tool(tools, name), tool(tools, free)):
            assert (await client.post("/tools", json=spec)).status_code == 201
        script = scripted(calls((name, {"n": 1})), calls((free, {"n": 2})), says("done"))
        run = (await client.post("/runs/wait", json=run_body(script, tool(tools, name, **ASKS), free))).json()
        for spec in (tool(tools, name, "/error"), tool(tools, free, "/error")):
            assert (await client.put(f"/tools/{spec['name']}", json=spec)).status_code == 200
        await answered(client, run)
        _, _, steps = await ended(client, run["id"])
    assert [(step["status"], step["observation"]) for step in steps] == [("success", {"n": 1}), ("success", {"n": 2})]


@pytest.mark.parametrize(("n", "asks"), [(11, True), (10, False)])
async def test_an_agents_own_rule_looks_at_the_arguments(
    client: httpx.AsyncClient, tools: ToolServer, n: int, asks: bool
) -> None:
    rule = {"when": {"properties": {"n": {"exclusiveMinimum": 10}}}}
    body = run_body(
        scripted(calls(("free", {"n": n})), says("done")), tool(tools, "free"), agent={"interrupt_on": {"free": rule}}
    )
    run = (await client.post("/runs/wait", json=body)).json()
    assert run["status"] == ("interrupted" if asks else "success")


# --- the last answer comes while a sibling runs -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decided", "observation"),
    [
        ({"decision": "approve"}, {"n": 1}),
        ({"decision": "edit", "tool_input": {"n": 5}}, {"n": 5}),
        ({"decision": "reject"}, IsStr(regex="User rejected the tool call for `ask` with id .*")),
        ({"decision": "respond", "output": "by hand"}, "by hand"),
    ],
)
async def test_a_run_is_never_shown_interrupted_with_nobody_asked(
    own: RunwireServer, own_tools: ToolServer, decided: dict[str, Any], observation: object
) -> None:
    async with asyncio.timeout(TIMEOUT_S), own.client() as client:
        run = await begun(client, tool(own_tools, "ask", **ASKS), tool(own_tools, "slow", "/hold"))
        await until_effects(own_tools, "slow", count=1)
        open_ = await until(client, run["id"], "waiting", "running")
        waited = asyncio.create_task(client.get(f"/runs/{run['id']}/wait"))
        await answered(client, open_, **decided)
        assert (await client.get(f"/runs/{run['id']}")).json()["status"] == "running"
        own_tools.release()
        assert (await waited).json()["status"] == "success"
        _, told, (step, _) = await ended(client, run["id"])
        (result, _) = [
            item for item in (await client.get(f"/runs/{run['id']}/messages")).json()["data"] if item["role"] == "tool"
        ]
    assert [event.data["status"] for event in told if event.event == "run"] == ["running"]
    assert (step["observation"], step["sent_input"]) == (observation, decided.get("tool_input"))
    assert result["content"].startswith("Note: a human reviewer replaced this tool call") is (
        decided["decision"] == "edit"
    )


async def test_a_call_of_the_callers_goes_on_from_answer_to_answer_while_a_sibling_runs(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    """Approved and edited before the run could park, it asks again, is answered, and keeps what it was handed over with."""
    local = {"name": "local", "description": "Here.", "parameters": {"type": "object"}, **ASKS}
    async with asyncio.timeout(TIMEOUT_S), own.client() as client:
        run = await begun(client, local, tool(own_tools, "slow", "/hold"))
        open_ = await until(client, run["id"], "waiting", "running")
        await answered(client, open_, decision="edit", tool_input={"n": 5})
        await until_effects(own_tools, "slow", count=1)
        own_tools.release()
        waits = (await client.get(f"/runs/{run['id']}/wait")).json()
        assert [(item["reason"], item["tool_input"]) for item in waits["interrupts"]] == [("client_tool", {"n": 5})]
        await answered(client, waits, decision="respond", output="done here")
        _, told, (step, _) = await ended(client, run["id"])
    assert [event.data["status"] for event in told if event.event == "run"] == ["running", "interrupted", "running"]
    assert (step["observation"], step["sent_input"]) == ("done here", {"n": 5})


async def test_answers_and_the_end_of_a_sibling_at_once_leave_no_run_behind_or_unasked(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    """Also a cancel that comes with them."""
    async with asyncio.timeout(3 * TIMEOUT_S):
        for turn in range(30):
            run = await begun(client, tool(tools, "raced", **ASKS), tool(tools, "short", f"/slow?ms={turn % 6}"))
            async with stream(client, "GET", f"/runs/{run['id']}/stream?hold=true") as opened:
                (question,) = cast("list[dict[str, Any]]", (await opened.until("interrupt")).data["interrupts"])
                body = {"responses": [{"interrupt_id": question["id"], "decision": "approve"}]}
                taken = client.post(f"/runs/{run['id']}/resume", json=body)
                if turn % 3 == 2:
                    cancelled = client.post(f"/runs/{run['id']}/cancel")
                    assert [item.status_code for item in await asyncio.gather(taken, cancelled)][1] == 202
                else:
                    assert (await taken).status_code == 202
                await opened.rest()
            events = read_events((await client.get(f"/runs/{run['id']}/stream")).content)
            check_whole(events)
            statuses = [event.data["status"] for event in events if event.event == "run"]
            assert statuses in (["running"], ["running", "interrupted", "running"])
            over = (await client.get(f"/runs/{run['id']}")).json()
            assert (over["status"] in ("success", "cancelled"), over["attempt"], over["interrupts"]) == (True, 1, [])
