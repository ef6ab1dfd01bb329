"""One demo server for the tests of the command line, with agents that behave in known ways."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.server import RunwireServer

AGENTS: dict[str, list[dict[str, object]]] = {
    "broken": [{"content": "I begin", "error": {"code": "auth"}}],
    "slow": [{"content": "never", "delay_ms": 600_000}],
    "escaping": [{"content": "a\u001b[31mred\u009b0m é end"}],
    "talking": [{"content": "word " * 200, "chunk_size": 5, "chunk_delay_ms": 5}],
}

STRUCTURED: dict[str, object] = {
    "name": "structured",
    "model": {"provider": "scripted", "script": [{"tool_calls": [{"name": "Sum", "args": {"sum": 5}}]}]},
    "output_schema": {"title": "Sum", "type": "object", "required": ["sum"]},
}


@pytest.fixture(scope="module")
def demo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    folder: Path = tmp_path_factory.mktemp("server")
    with RunwireServer.open(folder, keys="", env={"RUNWIRE_PLUGINS": ""}, args=("--demo",)) as server:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
            for name, script in AGENTS.items():
                body = {"name": name, "model": {"provider": "scripted", "script": script}}
                client.post("/agents", json=body).raise_for_status()
            client.post("/agents", json=STRUCTURED).raise_for_status()
        yield server


@pytest.fixture
def closed_pipe() -> Iterator[Callable[[], int]]:
    """Makes the writing end of a pipe that nobody reads any more."""
    ends: list[int] = []

    def make() -> int:
        read, write = os.pipe()
        os.close(read)
        ends.append(write)
        return write

    yield make
    for end in ends:
        os.close(end)
