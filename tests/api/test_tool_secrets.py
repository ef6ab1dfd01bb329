"""Rotating a signing secret: which secrets calls are signed with, over HTTP, as a receiver with a public library sees them."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import httpx
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from app.core.ids import new_id
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.receiver import Received, Receiver
from tests.support.server import OTHER, READER, TIMEOUT_S, RunwireServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tool() -> AsyncIterator[Receiver]:
    async with Receiver.open() as opened:
        yield opened


def fresh_name() -> str:
    return "t" + new_id().replace("-", "")


async def registered(client: httpx.AsyncClient, tool: Receiver, name: str) -> str:
    answer = await client.post("/tools", json=tool_spec(name, tool.url, effect="write"))
    assert answer.status_code == 201, answer.text
    return cast("str", answer.json()["signing_secret"])


async def rotate(client: httpx.AsyncClient, name: str, **more: str) -> str:
    answer = await client.post(f"/tools/{name}/rotate-secret", headers=more)
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"signing_secret", "old_secret_expires_at"}
    assert answer.headers["cache-control"] == "no-store"
    return cast("str", answer.json()["signing_secret"])


def accepts(secret: str, request: Received) -> bool:
    try:
        Webhook(secret).verify(request.body, request.headers)
    except WebhookVerificationError:
        return False
    return True


async def invoked(client: httpx.AsyncClient, tool: Receiver, name: str) -> Received:
    answer = await client.post(f"/tools/{name}/invoke", json={"arguments": {}})
    assert answer.json()["status"] == "success", answer.text
    return tool.requests[-1]


async def test_after_a_rotation_a_receiver_with_either_secret_accepts_a_call(
    client: httpx.AsyncClient, tool: Receiver
) -> None:
    name = fresh_name()
    old = await registered(client, tool, name)
    first = await invoked(client, tool, name)
    new = await rotate(client, name)
    second = await invoked(client, tool, name)
    assert [accepts(secret, first) for secret in (old, new)] == [True, False]
    assert [accepts(secret, second) for secret in (old, new)] == [True, True]
    assert [part[:3] for part in second.headers["webhook-signature"].split(" ")] == ["v1,", "v1,"]
    at = datetime.fromtimestamp(int(second.headers["webhook-timestamp"]), UTC)
    newest = Webhook(new).sign(second.headers["webhook-id"], at, second.body.decode())
    assert second.headers["webhook-signature"].startswith(f"{newest} ")


async def test_rotated_twice_the_newest_two_sign(client: httpx.AsyncClient, tool: Receiver) -> None:
    name = fresh_name()
    secrets = [await registered(client, tool, name), await rotate(client, name), await rotate(client, name)]
    request = await invoked(client, tool, name)
    assert [accepts(secret, request) for secret in secrets] == [False, True, True]
    assert len(request.headers["webhook-signature"].split(" ")) == 2


async def test_a_run_under_way_with_an_older_version_signs_with_both(client: httpx.AsyncClient, tool: Receiver) -> None:
    name = fresh_name()
    old = await registered(client, tool, name)
    tool.hold = asyncio.Event()
    body = run_body(scripted(calls((name, {})), calls((name, {})), says("done")), name)
    async with asyncio.timeout(TIMEOUT_S):
        run = (await client.post("/runs", json=body)).json()
        await tool.until(1)
        assert (await client.put(f"/tools/{name}", json=tool_spec(name, tool.url))).status_code == 200
        new = await rotate(client, name)
        tool.hold.set()
        assert (await client.get(f"/runs/{run['id']}/wait")).json()["status"] == "success"
    before, after = tool.requests
    assert [accepts(secret, before) for secret in (old, new)] == [True, False]
    assert [accepts(secret, after) for secret in (old, new)] == [True, True]


async def test_a_replayed_rotation_gives_the_same_secret_and_rotates_nothing(
    client: httpx.AsyncClient, tool: Receiver
) -> None:
    name = fresh_name()
    old = await registered(client, tool, name)
    key = {"Idempotency-Key": new_id()}
    first = await client.post(f"/tools/{name}/rotate-secret", headers=key)
    again = await client.post(f"/tools/{name}/rotate-secret", headers=key)
    assert (again.status_code, again.json()) == (200, first.json())
    assert (first.headers.get("idempotency-replayed"), again.headers["idempotency-replayed"]) == (None, "true")
    request = await invoked(client, tool, name)
    assert accepts(old, request)
    other = await client.post(f"/tools/{name}/rotate-secret", headers=key, content=b"{}")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    for _ in range(2):
        await rotate(client, name)
        late = await client.post(f"/tools/{name}/rotate-secret", headers=key)
        assert (late.status_code, late.headers["idempotency-replayed"]) == (200, "true")
        assert late.json() == {**first.json(), "signing_secret": None}


async def test_a_replayed_registration_shows_its_secret_until_another_takes_its_place(
    client: httpx.AsyncClient, tool: Receiver
) -> None:
    name = fresh_name()
    key, body = {"Idempotency-Key": new_id()}, tool_spec(name, tool.url)

    async def replayed() -> dict[str, object]:
        answer = await client.post("/tools", json=body, headers=key)
        assert (answer.status_code, answer.headers["idempotency-replayed"]) == (201, "true")
        return answer.json()

    made = (await client.post("/tools", json=body, headers=key)).json()
    assert made["signing_secret"].startswith("whsec_")
    assert await replayed() == made
    replaced = await client.put(f"/tools/{name}", json={**body, "description": "Another text."})
    assert replaced.status_code == 200
    assert (await replayed())["signing_secret"] == made["signing_secret"]
    new = await rotate(client, name)
    told = await replayed()
    assert (told["name"], told["version"], told["signing_secret"]) == (name, 2, None)
    request = await invoked(client, tool, name)
    assert [accepts(secret, request) for secret in (made["signing_secret"], new)] == [True, True]


async def test_a_replayed_registration_never_shows_the_secret_of_a_later_one(
    client: httpx.AsyncClient, tool: Receiver
) -> None:
    name = fresh_name()
    key, body = {"Idempotency-Key": new_id()}, tool_spec(name, tool.url)
    assert (await client.post("/tools", json=body, headers=key)).status_code == 201
    given = {**body, "signing_secret": "whsec_" + "QUJD" * 11}
    assert (await client.put(f"/tools/{name}", json=given)).status_code == 200
    assert (await client.post("/tools", json=body, headers=key)).json()["signing_secret"] is None
    assert (await client.delete(f"/tools/{name}")).status_code == 204
    assert (await client.post("/tools", json=body)).status_code == 201
    assert (await client.post("/tools", json=body, headers=key)).json()["signing_secret"] is None


async def test_rotations_at_the_same_time_come_one_after_the_other(client: httpx.AsyncClient, tool: Receiver) -> None:
    """Each shows the secret that it made, also where the next one has replaced it by then."""
    name = fresh_name()
    await registered(client, tool, name)
    await invoked(client, tool, name)
    async with asyncio.timeout(TIMEOUT_S):
        secrets = await asyncio.gather(*(rotate(client, name) for _ in range(20)))
        request = await invoked(client, tool, name)
    assert len(set(secrets)) == 20
    assert [accepts(secret, request) for secret in secrets].count(True) == 2


async def test_who_may_rotate_what(client: httpx.AsyncClient, server: RunwireServer, tool: Receiver) -> None:
    name = fresh_name()
    await registered(client, tool, name)
    async with server.client(READER) as reader, server.client(OTHER) as other:
        said = [
            await reader.post(f"/tools/{name}/rotate-secret"),
            await other.post(f"/tools/{name}/rotate-secret"),
            await client.post("/tools/echo/rotate-secret"),
            await client.post(f"/tools/{name}/rotate-secret", json={"signing_secret": "x"}),
        ]
    assert [(answer.status_code, answer.json()["code"]) for answer in said] == [
        (403, "missing_scope"), (404, "tool_not_found"), (409, "plugin_tool"), (422, "invalid_request"),
    ]  # fmt: skip


async def test_rotations_survive_a_restart_and_no_secret_stays_in_the_clear(tmp_path: Path, tool: Receiver) -> None:
    name = fresh_name()
    with RunwireServer.open(tmp_path) as server:
        async with server.client() as client:
            old = await registered(client, tool, name)
            new = await rotate(client, name)
        server.kill()
        server.start()
        async with server.client() as client:
            request = await invoked(client, tool, name)
            assert [accepts(secret, request) for secret in (old, new)] == [True, True]
            assert (await client.delete(f"/tools/{name}")).status_code == 204
        server.kill()
        with closing(sqlite3.connect(tmp_path / ".runwire/runwire.db")) as database:
            assert database.execute("SELECT count(*) FROM secrets").fetchone() == (0,)
            assert database.execute("SELECT count(*) FROM tool_signing").fetchone() == (0,)
        everything = b"".join(path.read_bytes() for path in (tmp_path / ".runwire").iterdir())
        assert not any(
            secret.removeprefix("whsec_").encode() in everything + server.log().encode() for secret in (old, new)
        )
