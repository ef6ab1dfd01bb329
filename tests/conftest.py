"""Fixtures of the whole suite."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.postgres import PostgresServer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    # Not pytest's own folder: its names are too long for a socket, and the server's user may not enter it.
    folder = Path(tempfile.mkdtemp(prefix="rw-pg-"))
    server = PostgresServer(folder)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The address of a fresh, empty database."""
    return postgres_server.new_database()
