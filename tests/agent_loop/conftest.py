"""One server with the cases' tools, and a tool server with a ledger, for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    plugins = {"RUNWIRE_PLUGINS": "tests.agent_loop.plugin_tools"}
    with RunwireServer.open(tmp_path_factory.mktemp("agent_loop"), env=plugins) as running:
        yield running


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServer]:
    """Its ledger grows over the whole session: look at effects by call."""
    with ToolServer.start(tmp_path_factory.mktemp("agent_loop_tools")) as running:
        yield running
