"""Idempotency-Key: the same POST any number of times, one run."""

import asyncio
import json
from uuid import uuid4

import httpx
import pytest

from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.server import OTHER, TIMEOUT_S, RunwireServer
from tests.support.streams import check_whole, read_events
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

HELLO = run_body(scripted(says("hello")))


def key() -> dict[str, str]:
    return {"Idempotency-Key": str(uuid4())}


async def test_a_repeat_gives_the_same_run_as_it_is_now(client: httpx.AsyncClient) -> None:
    headers = key()
    first = await client.post("/runs", json=HELLO, headers=headers)
    assert "idempotency-replayed" not in first.headers
    await client.get(f"/runs/{first.json()['id']}/wait")
    again = await client.post("/runs", json=HELLO, headers=headers)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    assert again.json()["id"] == first.json()["id"]
    assert again.json()["status"] == "success"
    waited = await client.post("/runs/wait", json=HELLO, headers=headers)
    assert waited.json() == again.json()


async def test_another_body_under_the_same_key_is_refused(client: httpx.AsyncClient) -> None:
    headers = key()
    await client.post("/runs", json=HELLO, headers=headers)
    for path in ("/runs", "/runs/stream", "/runs/wait"):
        other = await client.post(path, json={**HELLO, "input": "other"}, headers=headers)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


async def test_fifty_equal_posts_at_once_make_one_run(client: httpx.AsyncClient) -> None:
    headers = key()
    async with asyncio.timeout(TIMEOUT_S):
        answers = await asyncio.gather(*(client.post("/runs", json=HELLO, headers=headers) for _ in range(50)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1


async def test_equal_streams_attach_to_one_run_from_its_first_event(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    headers = key()
    name = "once_" + headers["Idempotency-Key"][:8]
    body = run_body(scripted(calls((name, {})), says("done")), tool_spec(name, tools.url("/ok")))
    async with asyncio.timeout(TIMEOUT_S):
        answers = await asyncio.gather(*(client.post("/runs/stream", json=body, headers=headers) for _ in range(20)))
        later = await client.post("/runs/stream", json=body, headers=headers)
    events = [read_events(answer.content) for answer in (*answers, later)]
    check_whole(events[0])
    assert all(item == events[0] for item in events)
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    assert later.headers["idempotency-replayed"] == "true"
    assert len([effect for effect in tools.effects() if effect["tool"] == name]) == 1


async def test_another_tenants_equal_key_is_its_own(client: httpx.AsyncClient, server: RunwireServer) -> None:
    headers = key()
    mine = await client.post("/runs", json=HELLO, headers=headers)
    async with server.client(OTHER) as other:
        theirs = await other.post("/runs", json=HELLO, headers=headers)
    assert (theirs.status_code, "idempotency-replayed" in theirs.headers) == (201, False)
    assert theirs.json()["id"] != mine.json()["id"]


async def test_a_refused_post_leaves_its_key_unused(client: httpx.AsyncClient) -> None:
    headers = key()
    bad = {**HELLO, "input": {"messages": None}}
    assert (await client.post("/runs", json=bad, headers=headers)).status_code == 422
    assert (await client.post("/runs", json=HELLO, headers=headers)).status_code == 201


@pytest.mark.parametrize("value", ["", "x" * 256, "a\tb"])
async def test_a_key_that_is_no_key_is_refused(client: httpx.AsyncClient, value: str) -> None:
    answer = await client.post("/runs", json=HELLO, headers={"Idempotency-Key": value})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/header/Idempotency-Key"


async def test_agents_and_tools_are_made_once_under_a_key(client: httpx.AsyncClient, tools: ToolServer) -> None:
    for path, body in (
        ("/agents", {"name": "keyed_agent", "model": scripted(says("x"))}),
        ("/tools", tool_spec("keyed_tool", tools.url("/ok"))),
    ):
        headers = {**key(), "Content-Type": "application/json"}
        raw = json.dumps(body).encode()
        first = await client.post(path, content=raw, headers=headers)
        again = await client.post(path, content=raw, headers=headers)
        assert (first.status_code, again.status_code) == (201, 201), again.text
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json() == first.json()
        taken = await client.post(path, content=raw, headers={**headers, **key()})
        assert (taken.status_code, taken.json()["code"]) == (409, path.strip("/s") + "_exists")
