"""One server as `make run` starts it, which the examples share."""

from collections.abc import Iterator

import pytest

from tests.support.server import RunwireServer

PAGE = "http://127.0.0.1:8000"
"""Where the browser's example says that it is served."""


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    """Without keys, with the demo agent; takes the page of the browser's example."""
    env = {"RUNWIRE_PLUGINS": "", "RUNWIRE_EGRESS_ALLOW": "", "RUNWIRE_CORS_ORIGINS": PAGE}
    with RunwireServer.open(tmp_path_factory.mktemp("demo"), keys="", env=env, args=("--demo",)) as running:
        yield running
