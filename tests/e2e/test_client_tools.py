"""Tools that the caller runs: asked about, handed over, answered, across a restart too."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.ids import new_id
from tests.e2e.ledger import until_effects
from tests.e2e.test_waiting import posted, resume, settled, steps_of
from tests.e2e.test_waiting_crashes import restart
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.server import ACME, KEYS, TIMEOUT_S, RunwireServer
from tests.support.streams import names, read_events
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

ASKS: dict[str, object] = {"requires_approval": True}
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    with RunwireServer.open(tmp_path) as running:
        yield running


def local(name: str = "read_file", /, **more: object) -> dict[str, object]:
    return {"name": name, "description": "Reads a local file.", "parameters": PARAMETERS, **more}


async def handed(client: httpx.AsyncClient, *tools: object, name: str = "read_file", **more: object) -> dict[str, Any]:
    """A run that waits for somebody about its one call."""
    script = scripted(calls((name, {"path": "a.txt"})), says("done"))
    return await posted(client, run_body(script, *tools, **more))


def asked(run: dict[str, Any], reason: str) -> dict[str, Any]:
    """The run's one open question."""
    assert [item["reason"] for item in run["interrupts"]] == [reason], run
    return run["interrupts"][0]


async def answer(client: httpx.AsyncClient, run: dict[str, Any], **said: object) -> dict[str, Any]:
    """The run when it waits again or is over."""
    (item,) = run["interrupts"]
    taken = await resume(client, run, {"interrupt_id": item["id"], **said})
    assert taken.status_code == 202, taken.text
    return await settled(client, run)


async def test_a_call_that_was_approved_is_handed_to_the_caller_whose_answer_ends_it(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await handed(client, local(**ASKS))
        first = asked(run, "tool_approval")
        run = await answer(client, run, decision="approve")
        second = asked(run, "client_tool")
        assert (second["tool_call_id"], second["tool_input"]) == (first["tool_call_id"], {"path": "a.txt"})
        again = await resume(client, run, {"interrupt_id": first["id"], "decision": "approve"})
        assert (again.status_code, again.json()["code"]) == (409, "interrupt_resolved")
        run = await answer(client, run, decision="respond", output="the text")
        assert (run["status"], run["interrupts"]) == ("success", [])
        (step,) = await steps_of(client, run)
        detail = (await client.get(f"/runs/{run['id']}/steps/1")).json()
    assert (step["status"], step["observation"]) == ("success", "the text")
    told = [(item["stage"], item["verdict"]) for item in detail["chain"]]
    assert told[-3:] == [("execution", "handed over"), ("execution", "answered"), ("state_update", "recorded")]
    assert told.count(("approval", "approved")) == 1


async def test_an_edited_call_is_handed_over_with_its_new_input(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await handed(client, local(**ASKS))
        run = await answer(client, run, decision="edit", tool_input={"path": "b.txt"})
        assert asked(run, "client_tool")["tool_input"] == {"path": "b.txt"}
        assert (await answer(client, run, decision="respond", output=1))["status"] == "success"


@pytest.mark.parametrize("kills", ["while it is asked about", "while the caller runs it"])
async def test_an_approved_call_of_the_callers_outlives_the_server(own: RunwireServer, kills: str) -> None:
    async with asyncio.timeout(2 * TIMEOUT_S):
        async with own.client() as client:
            run = await handed(client, local(**ASKS))
            if kills == "while the caller runs it":
                run = await answer(client, run, decision="approve")
        await restart(own)
        async with own.client() as client:
            assert (await client.get(f"/runs/{run['id']}")).json()["interrupts"] == run["interrupts"]
            if kills == "while it is asked about":
                run = await answer(client, run, decision="approve")
            asked(run, "client_tool")
            run = await answer(client, run, decision="respond", output={"n": 1})
            assert (run["status"], run["attempt"]) == ("success", 1)
            (step,) = await steps_of(client, run)
    assert (step["status"], step["observation"]) == ("success", {"n": 1})


async def test_a_call_that_the_policy_asks_about_is_handed_over_once_it_is_approved(tmp_path: Path) -> None:
    policy = {"RUNWIRE_PLUGINS": "tests.api.tool_policies", "RUNWIRE_TOOL_POLICY": "as_told"}
    with RunwireServer.open(tmp_path, env=policy) as server:
        async with asyncio.timeout(TIMEOUT_S), server.client() as client:
            run = await handed(client, local(), context={"policy": "ask"})
            asked(run, "tool_approval")
            run = await answer(client, run, decision="approve")
            asked(run, "client_tool")
            run = await answer(client, run, decision="respond", output="read")
            assert run["status"] == "success"
            (step,) = await steps_of(client, run)
    assert (step["status"], step["observation"]) == ("success", "read")


async def test_whoever_runs_a_write_decides_by_that_and_is_not_asked_first_by_default(tmp_path: Path) -> None:
    """A tool that says so itself asks all the same."""
    with RunwireServer.open(tmp_path, env={"RUNWIRE_APPROVE_WRITES": "true"}) as server:
        async with asyncio.timeout(TIMEOUT_S), server.client() as client:
            run = await handed(client, local(effect="write"))
            asked(run, "client_tool")
            assert (await answer(client, run, decision="respond", output=1))["status"] == "success"
            asked(await handed(client, local(effect="write", **ASKS)), "tool_approval")


async def test_a_tool_of_the_callers_has_no_signing_secret(client: httpx.AsyncClient) -> None:
    made = await client.post("/tools", json=local("unsigned"))
    assert (made.status_code, made.json()["signing_secret"]) == (201, None)
    rotated = await client.post("/tools/unsigned/rotate-secret")
    assert (rotated.status_code, rotated.json()["code"]) == (409, "conflict")
    given = await client.post("/tools", json=local("signed", signing_secret="whsec_" + "a" * 43 + "="))
    assert (given.status_code, given.json()["errors"][0]["pointer"]) == (422, "/signing_secret")


async def test_an_output_must_fit_the_tools_schema_and_a_wrong_one_keeps_nothing(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await handed(client, local(output_schema={"type": "integer"}))
        question = asked(run, "client_tool")
        assert question["response_schema"]["properties"]["output"] == {"type": "integer"}
        for said in ({"output": "no integer"}, {"message": "3"}):
            wrong = await resume(client, run, {"interrupt_id": question["id"], "decision": "respond", **said})
            assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (
                422,
                f"/responses/0/{next(iter(said))}",
            )
        assert (await client.get(f"/runs/{run['id']}")).json()["interrupts"] == run["interrupts"]
        assert (await answer(client, run, decision="respond", output=3))["status"] == "success"
        (step,) = await steps_of(client, run)
    assert (step["status"], step["observation"]) == ("success", 3)


@pytest.mark.parametrize("spec", [{}, ASKS], ids=["run by the caller", "answered in place of an approval"])
async def test_an_over_long_output_is_cut_for_the_model_and_kept_whole(
    client: httpx.AsyncClient, spec: dict[str, object]
) -> None:
    text = "x" * 5000
    async with asyncio.timeout(TIMEOUT_S):
        run = await handed(client, local(max_result_bytes=1000, **spec))
        run = await answer(client, run, decision="respond", output=text)
        assert run["status"] == "success"
        step = (await client.get(f"/runs/{run['id']}/steps/1")).json()
        whole = await client.get(f"/runs/{run['id']}/steps/1/result")
        messages = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    told = [message["content"] for message in messages if message["role"] == "tool"]
    assert told == [step["observation"]]
    assert step["observation"].startswith("x" * 1000 + "\n[cut: ")
    assert f"[the whole 5000 bytes: GET /runs/{run['id']}/steps/1/result]" in step["observation"]
    assert (whole.text, whole.headers["Runwire-Complete"]) == (text, "true")
    assert (step["envelope"]["meta"]["truncated"], step["envelope"]["meta"]["answered_by"]) == (True, "caller")


# --- what stops them -------------------------------------------------------------------------------------------------


async def registered(client: httpx.AsyncClient, **more: object) -> str:
    name = "c" + new_id().replace("-", "")
    made = await client.post("/tools", json=local(name, **more))
    assert made.status_code == 201, made.text
    return name


async def switched_off(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.put(f"/tools/{name}/disabled", json={"disabled": True, "reason": "leaks"})
    assert answer.status_code == 200


async def all_switched_off(client: httpx.AsyncClient, _: str) -> None:
    answer = await client.put("/tool-calls/disabled", json={"disabled": True, "reason": "leaks"})
    assert answer.status_code == 200


async def deleted(client: httpx.AsyncClient, name: str) -> None:
    assert (await client.delete(f"/tools/{name}")).status_code == 204


STOPS = [(switched_off, "tool_disabled"), (all_switched_off, "tool_disabled"), (deleted, "tool_withdrawn")]


@pytest.mark.parametrize(("stop", "code"), STOPS)
async def test_what_stops_a_tool_stops_its_hand_over_to_the_caller(
    own: RunwireServer, own_tools: ToolServer, stop: Callable[[httpx.AsyncClient, str], Awaitable[None]], code: str
) -> None:
    """Of a run that began before, in its next round; and of a call that was approved in the meantime."""
    async with asyncio.timeout(TIMEOUT_S), own.client() as client:
        name, asking = await registered(client), await registered(client, **ASKS)
        hold = tool_spec("hold", own_tools.url("/hold"))
        script = scripted(calls(("hold", {})), calls((name, {"path": "a"})), says("done"))
        begun = (await client.post("/runs", json=run_body(script, hold, name))).json()
        waits = await handed(client, asking, name=asking)
        await until_effects(own_tools, "hold", count=1)
        await stop(client, name)
        await stop(client, asking)
        own_tools.release()
        run = await settled(client, begun)
        assert (run["status"], run["interrupts"]) == ("success", [])
        step = (await client.get(f"/runs/{run['id']}/steps/2")).json()
        assert (step["status"], step["error"]["code"], step["attempts"]) == ("denied", code, [])
        told = read_events((await client.get(f"/runs/{run['id']}/stream")).content)
        assert "interrupt" not in names(told)
        run = await answer(client, waits, decision="approve")
        assert (run["status"], run["interrupts"]) == ("success", [])
        step = (await client.get(f"/runs/{run['id']}/steps/1")).json()
        assert (step["status"], step["error"]["code"]) == ("denied", code)


async def test_the_servers_own_switch_stops_them_too(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path, env={"RUNWIRE_TOOLS_DISABLED": "true"}) as server:
        async with asyncio.timeout(TIMEOUT_S), server.client() as client:
            run = await handed(client, local())
            assert (run["status"], run["interrupts"]) == ("success", [])
            (step,) = await steps_of(client, run)
    assert (step["status"], step["error"]["code"]) == ("denied", "tool_disabled")


async def test_a_scope_that_the_callers_key_has_lost_stops_the_hand_over(own: RunwireServer) -> None:
    spec = local(scopes=["files:read"], **ASKS)
    async with asyncio.timeout(2 * TIMEOUT_S):
        async with own.client() as client:
            run = await handed(client, spec)
            asked(run, "tool_approval")
        keys = KEYS.replace(f"{ACME}:acme", f"{ACME}:acme:runs:read runs:write tools:write")
        own.kill()
        own.env = {**own.env, "RUNWIRE_API_KEYS": keys}
        own.start()
        async with own.client() as client:
            run = await answer(client, run, decision="approve")
            assert (run["status"], run["interrupts"]) == ("success", [])
            (step,) = await steps_of(client, run)
    assert (step["status"], step["error"]["code"]) == ("denied", "missing_scope")


@pytest.mark.parametrize("stop", [stop for stop, _ in STOPS])
async def test_the_answer_to_a_call_that_is_out_is_taken_whatever_became_of_the_tool(
    own: RunwireServer, stop: Callable[[httpx.AsyncClient, str], Awaitable[None]]
) -> None:
    """What it did has happened: to refuse the answer would only hide that."""
    async with asyncio.timeout(TIMEOUT_S), own.client() as client:
        name = await registered(client)
        run = await handed(client, name, name=name)
        asked(run, "client_tool")
        await stop(client, name)
        run = await answer(client, run, decision="respond", output="it was deleted")
        (step,) = await steps_of(client, run)
    assert (run["status"], step["status"], step["observation"]) == ("success", "success", "it was deleted")
