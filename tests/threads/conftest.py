"""A server whose tools read and write the thread's state."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer


@pytest.fixture(scope="session")
def state_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    plugins = {"RUNWIRE_PLUGINS": "tests.threads.plugin_state"}
    with RunwireServer.open(tmp_path_factory.mktemp("state"), env=plugins) as running:
        yield running


@pytest.fixture(scope="session")
def state_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServer]:
    with ToolServer.start(tmp_path_factory.mktemp("state_tools")) as running:
        yield running


@pytest.fixture
async def client(state_server: RunwireServer) -> AsyncIterator[httpx.AsyncClient]:
    async with state_server.client() as opened:
        yield opened
