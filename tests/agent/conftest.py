"""A server with the tools that the recorded cases have."""

from collections.abc import Iterator

import pytest

from tests.support.server import RunwireServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    folder = tmp_path_factory.mktemp("cases")
    with RunwireServer.open(folder, env={"RUNWIRE_PLUGINS": "tests.agent.case_tools"}) as running:
        yield running
