"""Servers that tests share. A test that stops or fills one opens its own."""

from collections.abc import Iterator

import pytest

from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with RunwireServer.open(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServer]:
    """A tool server whose ledger grows over the whole session: look at effects by tool or key."""
    with ToolServer.start(tmp_path_factory.mktemp("tools")) as running:
        yield running
