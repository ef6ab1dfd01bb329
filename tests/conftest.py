"""Fixtures of the whole suite."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.contracts.postgres import PostgresServer
from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer


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


@pytest.fixture
def own_tools(tmp_path: Path) -> Iterator[ToolServer]:
    """A tool server of the test's own: `release` lets every call go, of all tests that share one."""
    with ToolServer.start(tmp_path) as running:
        yield running


@pytest.fixture
async def client(server: RunwireServer) -> AsyncIterator[httpx.AsyncClient]:
    """Of the server that the folder or the module has."""
    async with server.client() as opened:
        yield opened
