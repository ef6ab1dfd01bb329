"""One server that the client's tests share; a test that stops one opens its own."""

from collections.abc import Callable, Iterator

import pytest

from app.client import Client
from tests.support.server import ACME, RunwireServer

Connect = Callable[..., Client]
"""Makes a client of a URL with short pauses; other options as `Client` has them."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with RunwireServer.open(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    for name in ("RUNWIRE_URL", "RUNWIRE_PORT", "RUNWIRE_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def make(url: str, *, pause_s: float = 0.001, api_key: str = ACME, **options: float) -> Client:
        client = Client(url, api_key=api_key, **options)  # pyright: ignore[reportArgumentType]
        client._connection.pause = lambda _failures: pause_s
        return client

    return make
