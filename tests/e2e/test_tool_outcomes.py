"""What became of calls, over real HTTP: coerced arguments, outputs that do not fit, and asking a status_url."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.ledger import until_effects
from tests.e2e.test_bad_tools import called, code, new_name
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.server import OTHER, TIMEOUT_S, RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

NUMBERS = {
    "properties": {"n": {"type": "integer"}, "flags": {"type": "array", "items": {"type": "boolean"}}},
    "required": ["n"],
}


def mine(tools: ToolServer, name: str) -> list[dict[str, Any]]:
    return [item for item in tools.effects() if item["tool"] == name]


def verdicts(step: dict[str, Any]) -> list[tuple[str, str]]:
    return [(link["stage"], link["verdict"]) for link in step["chain"]]


async def test_loose_arguments_are_sent_as_the_schema_wants_them(client: httpx.AsyncClient, tools: ToolServer) -> None:
    loose = tool_spec(new_name(), tools.url("/echo"), parameters=NUMBERS, coerce=True, constants={"n": "9", "v": "1"})
    loose["constants"] = {"v": "1"}
    step = await called(client, loose, {"n": "3", "flags": ["true", False]})
    assert (step["status"], step["observation"]) == ("success", {"n": 3, "flags": [True, False], "v": "1"})
    assert step["action"]["tool_input"] == {"n": "3", "flags": ["true", False]}
    assert step["chain"][1]["detail"] == "coerced: /n, /flags/0"
    same = await called(client, loose, {"n": 3, "flags": [True, False]})
    assert same["arguments_sha256"] == step["arguments_sha256"]
    strict = await called(client, tool_spec(new_name(), tools.url("/echo"), parameters=NUMBERS), {"n": "3"})
    assert strict["observation"].endswith('at /n: expected an integer, got the text "3"')
    wrong = await called(client, loose, {"n": "1e5"})
    assert (wrong["status"], code(wrong)) == ("error", "invalid_arguments")


@pytest.mark.parametrize(("effect", "state"), [("read", "failed"), ("write", "unknown")])
async def test_an_output_that_does_not_fit_is_an_error_that_ran_once_and_keeps_its_data(
    client: httpx.AsyncClient, tools: ToolServer, effect: str, state: str
) -> None:
    name = new_name()
    schema = {"type": "object", "properties": {"temperature": {"type": "integer"}}, "required": ["place"]}
    spec = tool_spec(name, tools.url("/json"), effect=effect, idempotent=True, output_schema=schema)
    step = await called(client, spec)
    assert (step["status"], code(step), step["error"]["state"]) == ("error", "output_invalid", state)
    assert "ran, but its answer does not fit" in step["observation"]
    assert 'the property "place" is missing' in step["observation"]
    assert step["envelope"]["data"] == {"temperature": 21.5, "unit": "C"}
    assert len(mine(tools, name)) == 1
    fits = tool_spec(new_name(), tools.url("/json"), output_schema={"required": ["unit"]})
    assert (await called(client, fits))["status"] == "success"


async def test_a_long_output_is_checked_whole(client: httpx.AsyncClient, tools: ToolServer) -> None:
    for schema, status in (({"type": "string", "minLength": 3_000_000}, "success"), ({"type": "object"}, "error")):
        spec = tool_spec(new_name(), tools.url("/big"), max_result_bytes=100, output_schema=schema)
        assert (await called(client, spec))["status"] == status


@pytest.mark.parametrize("path", ["/never", "/close-after", "/half", "/500"])
async def test_an_uncertain_write_is_settled_by_its_status_url(
    client: httpx.AsyncClient, tools: ToolServer, path: str
) -> None:
    name = new_name()
    spec = tool_spec(name, tools.url(path), status_url=tools.url("/became?working=1"), timeout_s=0.5)
    step = await called(client, spec)
    assert (step["status"], step["observation"]) == ("success", "found")
    assert ("execution", "reconciled") in verdicts(step)
    assert step["envelope"]["meta"]["reconciled"] is True
    assert len(mine(tools, name)) == 1
    asked = [item for item in tools.effects() if item["idempotency_key"] == step["idempotency_key"]]
    assert [item["path"] for item in asked] == [path, "/became", "/became"]


async def test_a_write_that_never_arrived_is_sent_again_and_only_as_often_as_it_may(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    name = new_name()
    spec = tool_spec(name, tools.url("/close-before"), status_url=tools.url("/became"), retry={"max_attempts": 2})
    step = await called(client, spec)
    assert (step["status"], code(step), len(step["attempts"])) == ("error", "tool_not_received", 2)
    assert step["error"]["state"] == "failed"
    assert mine(tools, name) == []


@pytest.mark.parametrize("status", [500, 403, 302])
async def test_a_status_url_that_does_not_tell_leaves_the_call_unknown(
    client: httpx.AsyncClient, tools: ToolServer, status: int
) -> None:
    name = new_name()
    spec = tool_spec(name, tools.url("/500"), status_url=tools.url(f"/became?status={status}"))
    step = await called(client, spec)
    assert (step["status"], len(mine(tools, name))) == ("unknown", 1)
    asked = [item for item in tools.effects() if item["idempotency_key"] == step["idempotency_key"]]
    assert len(asked) - 1 == (3 if status == 500 else 1)


async def test_an_idempotent_write_asks_only_when_its_attempts_are_used_up(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    name = new_name()
    spec = tool_spec(
        name, tools.url("/500"), idempotent=True, retry={"max_attempts": 2}, status_url=tools.url("/became")
    )
    step = await called(client, spec)
    assert (step["status"], step["observation"], len(mine(tools, name))) == ("success", "found", 2)


async def test_after_a_crash_the_status_url_is_asked_and_a_waiting_call_keeps_its_turn(
    tmp_path: Path, own_tools: ToolServer
) -> None:
    name = new_name()
    spec = tool_spec(
        name, own_tools.url("/hold"), status_url=own_tools.url("/became"), concurrency_key=name, timeout_s=15
    )
    body = run_body(scripted(calls((name, {"n": 1}), (name, {"n": 2})), says("done")), spec)
    with RunwireServer.open(tmp_path) as server:
        async with asyncio.timeout(TIMEOUT_S):
            async with server.client() as client:
                run_id = (await client.post("/runs", json=body)).json()["id"]
                await until_effects(own_tools, name, count=1)
            server.kill()
            own_tools.release()
            await asyncio.to_thread(server.start)
            async with server.client() as client:
                run = (await client.get(f"/runs/{run_id}/wait")).json()
                first = (await client.get(f"/runs/{run_id}/steps/1")).json()
                second = (await client.get(f"/runs/{run_id}/steps/2")).json()
    assert run["status"] == "success"
    assert (first["status"], first["observation"], second["status"]) == ("success", "found", "success")
    assert [(item["attempt"], item["outcome"], item["at"] is None) for item in first["attempts"]] == [
        (1, "lost", False)
    ]
    assert [item["arguments"] for item in mine(own_tools, name)] == [{"n": 1}, {"n": 2}]


async def test_a_call_with_a_turn_is_repeated_with_the_same_bytes_after_a_crash(
    tmp_path: Path, own_tools: ToolServer
) -> None:
    name = new_name()
    spec = tool_spec(name, own_tools.url("/hold"), idempotent=True, concurrency_key=name, timeout_s=15)
    body = run_body(scripted(calls((name, {"n": 1})), says("done")), spec)
    env = {"RUNWIRE_PUBLIC_URL": "http://runwire.test"}  # the port is another one after a restart
    with RunwireServer.open(tmp_path, env=env) as server:
        async with asyncio.timeout(TIMEOUT_S):
            async with server.client() as client:
                run_id = (await client.post("/runs", json=body)).json()["id"]
                await until_effects(own_tools, name, count=1)
            server.kill()
            own_tools.release()
            await asyncio.to_thread(server.start)
            async with server.client() as client:
                run = (await client.get(f"/runs/{run_id}/wait")).json()
                step = (await client.get(f"/runs/{run_id}/steps/1")).json()
    assert (run["status"], step["status"]) == ("success", "success")
    assert [item["outcome"] for item in step["attempts"]] == ["lost", "success"]
    assert len({(item["body_sha256"], item["idempotency_key"]) for item in mine(own_tools, name)}) == 1
    assert len(mine(own_tools, name)) == 2


async def test_an_unknown_call_is_reconciled_later_beside_what_the_model_was_told(
    server: RunwireServer, client: httpx.AsyncClient, own_tools: ToolServer
) -> None:
    name, silent = new_name(), new_name()
    spec = tool_spec(
        name, own_tools.url("/never"), status_url=own_tools.url("/became?working=1"), timeout_s=0.3, deadline_s=0.31
    )
    step = await called(client, spec)
    assert step["status"] == "unknown"
    path = f"/tool-calls/{step['tool_call_id']}/reconcile"
    async with server.client(OTHER) as other:
        assert (await other.post(path)).json()["code"] == "tool_call_not_found"
    answers = [answer.json() for answer in await asyncio.gather(*(client.post(path) for _ in range(4)))]
    found = {str(answer["reconciled"]) for answer in answers}
    assert len(found) == 1, answers
    recorded = answers[0]["reconciled"]
    assert (recorded["status"], recorded["observation"], recorded["envelope"]["ok"]) == ("success", "found", True)
    run_id = answers[0]["run_id"]
    after = (await client.get(f"/runs/{run_id}/steps/1")).json()
    assert (after["status"], after["observation"], after["reconciled"]) == ("unknown", step["observation"], recorded)
    asked = len(own_tools.effects())
    assert (await client.post(path)).json()["reconciled"] == recorded
    assert len(own_tools.effects()) == asked
    ok = await called(client, tool_spec(new_name(), own_tools.url("/ok"), status_url=own_tools.url("/became")))
    for other_step in (ok, await called(client, tool_spec(silent, own_tools.url("/500")))):
        refused = await client.post(f"/tool-calls/{other_step['tool_call_id']}/reconcile")
        assert (refused.status_code, refused.json()["code"]) == (409, "not_unknown")


async def test_a_token_goes_to_a_status_url_of_the_same_origin_only(tmp_path: Path, own_tools: ToolServer) -> None:
    with RunwireServer.open(tmp_path) as server, ToolServer.start(tmp_path) as elsewhere:
        async with server.client() as client:
            for status, seen in ((own_tools, "Bearer secret-token"), (elsewhere, None)):
                spec = tool_spec(new_name(), own_tools.url("/500"), status_url=status.url("/became"))
                spec["http"] = {"url": own_tools.url("/500"), "auth": {"type": "bearer", "token": "secret-token"}}
                step = await called(client, spec)
                question = [item for item in status.effects() if item["path"] == "/became"][-1]
                assert (step["idempotency_key"], question["authorization"]) == (question["idempotency_key"], seen)
