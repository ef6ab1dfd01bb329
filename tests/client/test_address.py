"""Where a client connects to, and what it refuses before anything is sent."""

import pytest

from app.client import Client
from app.client.address import Address
from app.client.keys import idempotency_key

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for name in ("RUNWIRE_URL", "RUNWIRE_PORT", "RUNWIRE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_arguments_come_before_the_environment_and_that_before_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Address.of(None, None) == Address("http://127.0.0.1:8080", None, loopback=True)
    monkeypatch.setenv("RUNWIRE_PORT", "9000")
    assert Address.of(None, None).url == "http://127.0.0.1:9000"
    monkeypatch.setenv("RUNWIRE_URL", "HTTPS://runwire.example/base/")
    monkeypatch.setenv("RUNWIRE_API_KEY", " the-key-of-the-environment\n")
    assert Address.of(None, None) == Address("https://runwire.example/base", "the-key-of-the-environment")
    assert Address.of("http://[::1]:1", "mine") == Address("http://[::1]:1", "mine", loopback=True)
    assert Address.of("http://localhost", "").api_key is None


@pytest.mark.parametrize(
    "url",
    [
        "runwire.example", "ftp://runwire.example", "http://", "http://:80", "http://h:0", "http://h:99999", "http://h:x",
        "http://[::1", "http://user:secret@h", "http://secret@h", "http://h/?api_key=secret", "http://h/#secret",
        "http://h /secret", "http://h\\secret", "http://h\r\nsecret", "http://hö.example", "http://h/" + "x" * 3000,
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="The server's URL") as refused:
        Client(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("key", ["schlüssel-schlüssel", "key\r\nX-Other: 1", "key\x00"])
def test_a_key_that_cannot_be_sent_is_refused_without_repeating_it(key: str) -> None:
    with pytest.raises(ValueError, match="RUNWIRE_API_KEY") as refused:
        Client("http://h", api_key=key)
    assert key not in str(refused.value)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "schlüssel", " a", "a "])
def test_an_idempotency_key_that_cannot_be_sent_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="idempotency key"):
        idempotency_key(key)


def test_options_that_make_no_sense_are_refused() -> None:
    for options in ({"max_attempts": 0}, {"timeout_s": 0}, {"connect_timeout_s": -1}, {"timeout_s": float("nan")}):
        with pytest.raises(ValueError, match="above 0"):
            Client("http://h", **options)  # pyright: ignore[reportArgumentType]


async def test_an_id_that_would_change_the_path_is_refused() -> None:
    async with Client("http://127.0.0.1:1") as client:
        for bad in ("", ".", ".."):
            with pytest.raises(ValueError, match="no id or name"):
                await client.runs.get(bad)
            with pytest.raises(ValueError, match="no id or name"):
                client.runs.follow(bad)
        with pytest.raises(TypeError):
            client.runs.follow("run-1", events="action")
        with pytest.raises(ValueError, match="`after`"):
            client.runs.follow("run-1", after=-1)
        with pytest.raises(TypeError, match="not JSON serializable"):
            await client.runs.create("demo", {"input": object()})


def test_proxies_of_the_environment_are_for_other_machines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("ALL_PROXY", "http://proxy.example:3128")
    for url, proxied in (("http://127.0.0.1:1", False), ("http://localhost:1", False), ("http://h.example", True)):
        assert bool(Client(url)._connection._http._mounts) is proxied
