"""One server with the middleware and tools of these tests."""

from collections.abc import Iterator

import pytest

from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer

PLUGINS = {"RUNWIRE_PLUGINS": "tests.middleware.plugin_hooks"}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with RunwireServer.open(tmp_path_factory.mktemp("middleware"), env=PLUGINS) as running:
        yield running


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServer]:
    """Its ledger grows over the whole session: look at effects by call."""
    with ToolServer.start(tmp_path_factory.mktemp("middleware_tools")) as running:
        yield running
