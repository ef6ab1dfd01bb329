"""The Postgres database: the single-server guard, lost connections, a failing sibling."""

import asyncio

import psycopg
import pytest

from app.core.errors import InvalidRequest, Unavailable
from app.storage import postgres
from app.storage.open import build_stores
from app.storage.postgres import PostgresDatabase
from tests.contracts.postgres import PostgresServer
from tests.contracts.samples import Driver, started

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "LOCK_MS", 500)


async def test_a_second_server_is_told_that_the_database_is_in_use(postgres_server: PostgresServer) -> None:
    url = postgres_server.new_database()
    first = PostgresDatabase(url)
    await first.start()
    with pytest.raises(Unavailable) as failure:
        await PostgresDatabase(url).start()
    assert failure.value.code == "database_in_use"
    await first.stop()
    second = PostgresDatabase(url)
    await second.start()
    await second.stop()


async def test_a_server_that_is_not_there_is_unavailable_and_its_password_stays_secret() -> None:
    with pytest.raises(Unavailable) as failure:
        await PostgresDatabase("postgresql://me:hunter2@/db?host=/nowhere").start()
    assert failure.value.code == "storage_unavailable"
    assert "hunter2" not in failure.value.message


async def test_lost_connections_fail_what_was_under_way_and_are_made_anew(postgres_server: PostgresServer) -> None:
    url = postgres_server.new_database()
    database = PostgresDatabase(url)
    await database.start()
    stores = build_stores(database, None)
    driver = await started(stores.runs)
    assert await stores.runs.get("acme", driver.run.id) == driver.run
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    outcomes = await asyncio.gather(
        *(stores.runs.append(append) for append in (driver.next(("output", {})), driver.next(("output", {})))),
        return_exceptions=True,
    )
    assert [getattr(outcome, "code", None) for outcome in outcomes] == ["storage_unavailable"] * 2
    with pytest.raises(Unavailable):
        await database.ping()
    await database.ping()
    assert await stores.runs.get("acme", driver.run.id) == driver.run, "nothing was half-written"
    again = Driver(stores.runs, driver.run)
    assert not (await again.append(("output", {}))).fenced
    with pytest.raises(Unavailable):
        await PostgresDatabase(url).start()
    await database.stop()


async def test_secrets_need_a_given_key(postgres_server: PostgresServer) -> None:
    database = PostgresDatabase(postgres_server.new_database())
    await database.start()
    with pytest.raises(InvalidRequest) as failure:
        await build_stores(database, None).secrets.put("acme", "x")
    assert failure.value.code == "invalid_secret_key"
    await database.stop()
