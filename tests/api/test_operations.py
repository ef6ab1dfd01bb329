"""Probes and facts of the server: what they answer, to whom, and when they do not wait."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from app.api.readiness import DatabasePing
from app.core.errors import Unavailable
from tests.api.problems import check_problem
from tests.support.server import TIMEOUT_S, RunwireServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def nobody(server: RunwireServer) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client(None) as opened:
        yield opened


async def test_probes_and_facts_need_no_key(nobody: httpx.AsyncClient) -> None:
    assert (await nobody.get("/livez")).json() == {"status": "ok"}
    assert (await nobody.get("/readyz")).json() == {"status": "ready"}
    facts = (await nobody.get("/info")).json()
    assert facts["name"] == "runwire"
    assert {"scripted", "openai"} <= set(facts["model_providers"])
    assert {"tool_calling", "react"} <= set(facts["agent_types"])
    assert {"runs", "streams", "metrics"} <= set(facts["features"])


BY_ROUTE = {
    "threads": "/threads", "state": "/threads/{thread_id}/state", "store": "/store/items",
    "approvals": "/runs/{run_id}/resume", "deferred_tools": "/tool-calls/{tool_call_id}/result",
    "reconciliation": "/tool-calls/{tool_call_id}/reconcile", "audit": "/tool-calls",
    "kill_switches": "/tools/{name}/disabled", "secret_rotation": "/tools/{name}/rotate-secret", "models": "/models",
    "middleware": "/middleware",
}  # fmt: skip


async def test_what_the_server_can_do_is_in_its_features(nobody: httpx.AsyncClient) -> None:
    features = (await nobody.get("/info")).json()["features"]
    assert len(features) == len(set(features))
    paths = set((await nobody.get("/openapi.json")).json()["paths"])
    assert set(BY_ROUTE) <= set(features)
    assert set(BY_ROUTE.values()) <= paths
    covered = {"runs", "agents", "tools", "metrics", *BY_ROUTE.values()}
    assert {path.split("/")[1] for path in paths} - {"livez", "readyz", "info"} <= {
        item.split("/")[1] if item.startswith("/") else item for item in covered
    }


async def test_a_database_that_another_version_migrated_is_not_ready_but_alive(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path) as server:
        async with server.client(None) as client:
            assert (await client.get("/readyz")).status_code == 200
            other = sqlite3.connect(tmp_path / ".runwire" / "runwire.db", isolation_level=None)
            (version,) = other.execute("SELECT version_num FROM alembic_version").fetchone()
            other.execute("UPDATE alembic_version SET version_num = '9999'")
            answer = await client.get("/readyz")
            check_problem(answer, 503, "schema_unknown")
            assert "schema" in answer.json()["detail"]
            assert answer.headers["retry-after"]
            assert (await client.get("/livez")).status_code == 200
            other.execute("UPDATE alembic_version SET version_num = ?", (version,))
            other.close()
            assert (await client.get("/readyz")).status_code == 200


async def test_a_database_that_hangs_is_asked_once_and_not_waited_for() -> None:
    asked: list[int] = []
    back = asyncio.Event()

    async def hang() -> None:
        asked.append(1)
        await back.wait()

    ping = DatabasePing(hang, timeout_s=0.01)
    async with asyncio.timeout(TIMEOUT_S):
        for _ in range(3):
            with pytest.raises(Unavailable) as caught:
                await ping()
            assert (caught.value.code, "within 0.01 s" in caught.value.message) == ("storage_unavailable", True)
        assert len(asked) == 1
        back.set()
        while len(asked) == 1:  # the one under way comes to its end, and the next is a new one
            await DatabasePing(ping, timeout_s=TIMEOUT_S)()


async def test_a_database_that_refuses_says_so_to_all_who_ask() -> None:
    async def refuse() -> None:
        await asyncio.sleep(0)
        raise Unavailable("No.", code="storage_unavailable")

    ping = DatabasePing(refuse)
    for failure in await asyncio.gather(ping(), ping(), return_exceptions=True):
        assert isinstance(failure, Unavailable)
