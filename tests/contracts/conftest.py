"""Both databases, for every test that asks for `database` or `stores`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.storage.database import Database
from app.storage.open import Stores, build_stores, open_database
from tests.contracts.postgres import PostgresServer
from tests.contracts.samples import Clock


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/db/runwire.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.new_database()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = open_database(database_url)
    await opened.start()
    yield opened
    await opened.stop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stores(database: Database, clock: Clock) -> Stores:
    return build_stores(database, "a key of sixteen or more characters", clock)
