"""One server for the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.support.server import RunwireServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with RunwireServer.open(tmp_path_factory.mktemp("server")) as running:
        yield running
