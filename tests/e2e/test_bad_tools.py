"""Tools over real HTTP that misbehave: each call ends with an honest outcome, and effects are never repeated blindly."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio


def new_name() -> str:
    return "t_" + uuid4().hex[:12]


async def called(
    client: httpx.AsyncClient, spec: dict[str, object], arguments: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """The step of a run that calls this inline tool once."""
    return await called_by_name(client, str(spec["name"]), arguments, tool=spec)


async def called_by_name(
    client: httpx.AsyncClient, name: str, arguments: Mapping[str, object] | None = None, *, tool: object = None
) -> dict[str, Any]:
    body = run_body(scripted(calls((name, arguments or {})), says("went on")), tool or name)
    async with asyncio.timeout(TIMEOUT_S):
        run = (await client.post("/runs/wait", json=body)).json()
        assert run["output"] == {"output": "went on"}, run
        return (await client.get(f"/runs/{run['id']}/steps/1")).json()


def code(step: Mapping[str, Any]) -> object:
    return step["error"]["code"]


@pytest.mark.parametrize(
    ("path", "observation"),
    [
        ("/ok", True),
        ("/text", "plain text"),
        ("/null", None),
        ("/empty", ""),
        ("/json", {"temperature": 21.5, "unit": "C"}),
        ("/invalid-utf8", "caf\ufffd \ufffd"),
    ],
)
async def test_any_answer_is_the_output(
    client: httpx.AsyncClient, tools: ToolServer, path: str, observation: object
) -> None:
    step = await called(client, tool_spec(new_name(), tools.url(path)))
    assert (step["status"], step["observation"]) == ("success", observation)


async def test_an_answer_that_is_too_long_is_cut_and_says_so(client: httpx.AsyncClient, tools: ToolServer) -> None:
    step = await called(client, tool_spec(new_name(), tools.url("/big"), max_result_bytes=1000))
    assert step["status"] == "success"
    assert "longer than 1000 bytes" in str(step["observation"])
    assert step["envelope"]["meta"]["truncated"] is True


async def test_three_megabytes_pass_when_they_are_allowed(client: httpx.AsyncClient, tools: ToolServer) -> None:
    step = await called(client, tool_spec(new_name(), tools.url("/big"), max_result_bytes=4_000_000))
    assert (step["status"], len(str(step["observation"]))) == ("success", 3_000_000)


@pytest.mark.parametrize("path", ["/never", "/drip", "/close-after", "/half", "/500"])
@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_lost_answer_is_unknown_for_a_write_and_asked_again_with_one_key_when_idempotent(
    client: httpx.AsyncClient, tools: ToolServer, path: str, idempotent: bool
) -> None:
    name = new_name()
    spec = tool_spec(
        name, tools.url(path), effect="write", idempotent=idempotent, timeout_s=0.3, retry={"max_attempts": 2}
    )
    step = await called(client, spec)
    effects = [item for item in tools.effects() if item["tool"] == name]
    assert len(effects) == (2 if idempotent else 1)
    assert len({(item["idempotency_key"], item["tool_call_id"], item["body_sha256"]) for item in effects}) == 1
    assert [item["attempt"] for item in effects] == [1, 2][: len(effects)]
    timed_out = path in ("/never", "/drip")
    assert step["status"] == ("timeout" if idempotent and timed_out else "unknown")
    assert step["error"]["state"] == "unknown"
    assert step["idempotency_key"] == effects[0]["idempotency_key"]


async def test_an_idempotent_write_is_repeated_until_it_answers(client: httpx.AsyncClient, tools: ToolServer) -> None:
    step = await called(client, tool_spec(new_name(), tools.url("/half-then-ok"), idempotent=True))
    assert (step["status"], step["observation"]) == ("success", True)


async def test_a_connection_closed_before_the_effect_is_not_repeated_blindly(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    write = await called(client, tool_spec(new_name(), tools.url("/close-before")))
    assert write["status"] == "unknown"
    read = await called(client, tool_spec(new_name(), tools.url("/close-before"), effect="read"))
    assert (read["status"], len(read["attempts"])) == ("error", 3)


@pytest.mark.parametrize(
    ("path", "status", "wanted"),
    [
        ("/error", "error", "no_order"),
        ("/status/404", "error", "tool_http_error"),
        ("/redirect", "error", "tool_redirect"),
    ],
)
async def test_a_definite_answer_is_not_asked_for_again(
    client: httpx.AsyncClient, tools: ToolServer, path: str, status: str, wanted: str
) -> None:
    step = await called(client, tool_spec(new_name(), tools.url(path), idempotent=True))
    assert (step["status"], code(step), len(step["attempts"])) == (status, wanted, 1)


@pytest.mark.parametrize("path", ["/retryable-then-ok", "/429-then-ok"])
async def test_what_certainly_did_nothing_is_tried_again_whatever_the_effect(
    client: httpx.AsyncClient, tools: ToolServer, path: str
) -> None:
    step = await called(client, tool_spec(new_name(), tools.url(path)))
    assert (step["status"], len(step["attempts"])) == ("success", 2)


async def test_arguments_that_do_not_fit_are_never_sent(client: httpx.AsyncClient, tools: ToolServer) -> None:
    name = new_name()
    schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    spec = tool_spec(name, tools.url("/ok"), parameters=schema)
    for arguments in ({}, {"n": "3"}, {"n": 1, "more": 2}):
        step = await called(client, spec, arguments)
        assert (step["status"], code(step), step["attempts"]) == ("error", "invalid_arguments", [])
    assert not [item for item in tools.effects() if item["tool"] == name]


@pytest.mark.parametrize("url", ["http://10.0.0.1/x", "http://169.254.169.254/latest", "http://[fd00::1]/x"])
async def test_a_private_address_is_refused_at_registration(client: httpx.AsyncClient, url: str) -> None:
    for answer in (
        await client.post("/tools", json=tool_spec(new_name(), url)),
        await client.post("/runs", json=run_body(scripted(says("x")), tool_spec(new_name(), url))),
        await client.post("/runs", json=run_body({"provider": "openai", "model": "m", "base_url": url})),
    ):
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["pointer"].endswith("url")


async def test_an_address_that_is_private_only_later_is_refused_at_the_call(tmp_path: Path, tools: ToolServer) -> None:
    name = new_name()
    with RunwireServer.open(tmp_path) as server:
        async with server.client() as client:
            assert (await client.post("/tools", json=tool_spec(name, tools.url("/ok")))).status_code == 201
        server.kill()
        server.env = {**server.env, "RUNWIRE_EGRESS_ALLOW": "192.0.2.1"}
        server.start()
        async with server.client() as client:
            step = await called_by_name(client, name)
    assert (step["status"], code(step)) == ("error", "egress_refused")
    assert not [item for item in tools.effects() if item["tool"] == name]


async def test_a_tool_deleted_while_a_run_goes_on_is_denied(client: httpx.AsyncClient, tools: ToolServer) -> None:
    name = new_name()
    await client.post("/tools", json=tool_spec(name, tools.url("/ok")))
    turns = (calls((name, {})), calls(("wait_for", {"ms": 300})), calls((name, {})), says("done"))
    body = run_body(scripted(*turns), name, "wait_for")
    async with asyncio.timeout(TIMEOUT_S), stream(client, "POST", "/runs/stream", json=body) as reading:
        await reading.until("step")
        assert (await client.delete(f"/tools/{name}")).status_code == 204
        events = await reading.rest()
    assert [item.data["status"] for item in events if item.event == "step"] == ["success", "success", "denied"]
    assert len([item for item in tools.effects() if item["tool"] == name]) == 1


async def test_a_run_keeps_the_version_of_a_tool_it_began_with(client: httpx.AsyncClient, tools: ToolServer) -> None:
    name = new_name()
    await client.post("/tools", json=tool_spec(name, tools.url("/text")))
    turns = (calls(("wait_for", {"ms": 300})), calls((name, {})), says("done"))
    body = run_body(scripted(*turns), name, "wait_for")
    async with asyncio.timeout(TIMEOUT_S), stream(client, "POST", "/runs/stream", json=body) as reading:
        await reading.until("action")
        replaced = await client.put(f"/tools/{name}", json=tool_spec(name, tools.url("/json")))
        assert (replaced.status_code, replaced.json()["version"]) == (200, 2)
        events = await reading.rest()
    assert [item.data["observation"] for item in events if item.event == "step"] == ["waited 300", "plain text"]
    now = (await client.post("/runs/wait", json=run_body(scripted(calls((name, {})), says("x")), name))).json()
    step = (await client.get(f"/runs/{now['id']}/steps/1")).json()
    assert (step["tool_version"], step["observation"]) == (2, {"temperature": 21.5, "unit": "C"})


async def test_registering_replacing_and_deleting(client: httpx.AsyncClient, tools: ToolServer) -> None:
    name = new_name()
    secret, token = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "token-that-is-secret"
    spec = tool_spec(name, tools.url("/ok"), signing_secret=secret)
    spec["http"] = {"url": tools.url("/ok"), "auth": {"type": "bearer", "token": token}}
    made = await client.post("/tools", json=spec)
    assert (made.status_code, made.headers["location"]) == (201, f"/tools/{name}")
    again = await client.post("/tools", json=spec)
    assert (again.status_code, again.json()["code"]) == (409, "tool_exists")
    for answer in (await client.get(f"/tools/{name}"), await client.get("/tools", params={"limit": 100})):
        assert name in answer.text
        assert secret not in answer.text
        assert token not in answer.text
    created = await client.put(f"/tools/{name}2", json=tool_spec(f"{name}2", tools.url("/ok")))
    assert (created.status_code, created.json()["signing_secret"][:6]) == (201, "whsec_")
    mismatch = await client.put(f"/tools/{name}", json={**spec, "name": "another"})
    assert mismatch.json()["errors"][0]["pointer"] == "/name"
    assert (await client.delete(f"/tools/{name}")).status_code == 204
    assert (await client.delete(f"/tools/{name}")).json()["code"] == "tool_not_found"
    assert (await client.get(f"/tools/{name}")).status_code == 404
    plugin = await client.delete("/tools/echo")
    assert (plugin.status_code, plugin.json()["code"]) == (409, "plugin_tool")
    listed = (await client.get("/tools", params={"source": "plugin", "limit": 100})).json()["data"]
    assert {"echo", "hang"} <= {tool["name"] for tool in listed}
    assert {tool["source"] for tool in listed} == {"plugin"}


async def test_invoking_a_tool_outside_a_run(client: httpx.AsyncClient, tools: ToolServer) -> None:
    name = new_name()
    schema = {"properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
    await client.post("/tools", json=tool_spec(name, tools.url("/add"), parameters=schema))
    path = f"/tools/{name}/invoke"
    good = (await client.post(path, json={"arguments": {"a": 1, "b": 2}})).json()
    assert (good["ok"], good["status"], good["data"], good["error"]) == (True, "success", 3, None)
    bad = (await client.post(path, json={"arguments": {"a": 1}})).json()
    assert (bad["ok"], bad["error"]["code"]) == (False, "invalid_arguments")
    assert (await client.post("/tools/nothing/invoke", json={"arguments": {}})).status_code == 404
    assert (await client.post(path, json={"argument": {}})).status_code == 422
    headers = {"Idempotency-Key": uuid4().hex}
    for _ in range(2):
        await client.post(path, json={"arguments": {"a": 5, "b": 5}}, headers=headers)
    mine = [json.dumps(item) for item in tools.effects() if item["tool"] == name]
    assert len({json.loads(item)["idempotency_key"] for item in mine}) == 2


async def test_a_tool_knows_who_calls_whatever_the_model_says(client: httpx.AsyncClient) -> None:
    body = run_body(scripted(calls(("whoami", {})), says("ok")), "whoami", context={"locale": "de", "tenant": "other"})
    run = (await client.post("/runs/wait", json=body)).json()
    observed = (await client.get(f"/runs/{run['id']}/steps/1")).json()["observation"]
    assert observed == {"tenant": "acme", "context": {"locale": "de", "tenant": "other"}}
