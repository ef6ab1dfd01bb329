"""What may not be reached is refused when it is registered and when it is called, without one TCP connection."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address

import httpx
import pytest
from ssrfguard import Policy

from app.core.errors import InvalidRequest
from app.tools.egress import EgressGuard, EgressRefused
from tests.tools.egress_corpus import NOT_URLS, REFUSED_HOSTS, REFUSED_PORTS

pytestmark = pytest.mark.anyio

INVALID = [
    "file:///etc/passwd", "gopher://example.com/", "ftp://example.com", "//example.com", "example.com", "", "http://",
    "http://user@example.com/", "http://user:pw@example.com/", "http://example.com@127.0.0.1/",
    "http://exa\nmple.com/", "http://example.com/\r\nX: y", "http://example.com/\x00", "http://exam ple.com/",
    "http://example.com:0/", "http://example.com:65536/", "http://example.com:x/", "http://[::1%25eth0]/",
    "http://example.com\\@127.0.0.1/", "http://example.com/" + "a" * 2048, "http://[::1", "http://%31%32%37.0.0.1/",
]  # fmt: skip

Answers = dict[str, list[str]]


def resolver(answers: Answers) -> Callable[..., list[tuple[int, int, int, str, tuple[object, ...]]]]:
    def lookup(
        host: str, port: int, family: int, kind: int, proto: int, flags: int
    ) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
        if host not in answers:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [
            (socket.AF_INET6, kind, 6, "", (ip, port, 0, 0)) if ":" in ip else (socket.AF_INET, kind, 6, "", (ip, port))
            for ip in answers[host]
        ]

    return lookup


@dataclass(slots=True)
class Canary:
    port: int
    connections: int = 0
    hosts: tuple[str, ...] = ()


@asynccontextmanager
async def canary() -> AsyncGenerator[Canary]:
    """A server on every IPv4 address of this machine that counts who connects."""
    state = Canary(0)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        with suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                state.hosts += (head.decode().lower().split("host: ")[1].split("\r\n")[0],)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(connected, "0.0.0.0")
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()


@pytest.mark.parametrize("host", REFUSED_HOSTS)
@pytest.mark.parametrize("port", REFUSED_PORTS)
def test_a_refused_address_is_refused_at_registration(host: str, port: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        EgressGuard().check_url(f"https://{host}{port}/hook")
    assert (caught.value.code, caught.value.errors[0].pointer) == ("egress_refused", "/http/url")


def test_the_corpus_is_as_large_as_it_should_be() -> None:
    assert len(set(REFUSED_HOSTS)) >= 80


@pytest.mark.parametrize("url", [*INVALID, *NOT_URLS])
def test_what_is_no_callable_url_is_refused_as_such(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        EgressGuard().check_url(url)
    assert caught.value.code == "invalid_url"


@pytest.mark.parametrize(
    "url",
    ["https://example.com", "http://example.com:8443/a?b=c", "https://8.8.8.8/", "https://[2606:4700::1111]/", "https://bücher.example/"],
)  # fmt: skip
def test_public_addresses_and_names_are_taken_on_any_port(url: str) -> None:
    EgressGuard().check_url(url)


async def test_no_refused_address_sees_a_connection() -> None:
    async with canary() as seen, httpx.AsyncClient(transport=EgressGuard().transport(), trust_env=False) as client:
        for host in REFUSED_HOSTS:
            try:
                url = httpx.URL(f"http://{host}:{seen.port}/")
            except httpx.InvalidURL:
                continue
            with pytest.raises(EgressRefused):
                await client.post(url)
        assert seen.connections == 0


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["::ffff:127.0.0.1"], ["64:ff9b::1"]]
)  # fmt: skip
async def test_a_name_with_one_refused_answer_is_refused_whole(addresses: list[str]) -> None:
    guard = EgressGuard(resolver=resolver({"sneaky.example": addresses}))
    async with canary() as seen, httpx.AsyncClient(transport=guard.transport(), trust_env=False) as client:
        with pytest.raises(EgressRefused):
            await client.post(f"http://sneaky.example:{seen.port}/")
        assert seen.connections == 0


def is_address(text: str) -> bool:
    with suppress(ValueError):
        return bool(ip_address(text))
    return False


@pytest.mark.parametrize("address", sorted(filter(is_address, (host.strip("[]") for host in REFUSED_HOSTS))))
async def test_a_name_that_resolves_to_a_refused_address_is_refused(address: str) -> None:
    guard = EgressGuard(resolver=resolver({"sneaky.example": [address], "mixed.example": ["8.8.8.8", address]}))
    async with canary() as seen, httpx.AsyncClient(transport=guard.transport(), trust_env=False) as client:
        for name in ("sneaky.example", "mixed.example"):
            with pytest.raises(EgressRefused):
                await client.post(f"http://{name}:{seen.port}/")
        assert seen.connections == 0


async def test_a_name_that_changes_its_answer_is_connected_to_where_it_was_checked() -> None:
    """DNS rebinding: a public answer for the check, a private one for the connection. There is one lookup for both."""
    answers = iter(["127.0.0.2", "127.0.0.1", "127.0.0.1"])
    lookups: list[str] = []

    def changing(host: str, port: int, *rest: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
        lookups.append(next(answers))
        return resolver({host: [lookups[-1]]})(host, port, *rest)  # pyright: ignore[reportCallIssue]

    async with canary() as seen:
        guard = EgressGuard(["127.0.0.2/32"], resolver=changing)  # pyright: ignore[reportArgumentType]
        url = f"http://changing.example:{seen.port}/"
        async with httpx.AsyncClient(transport=guard.transport(), trust_env=False) as client:
            assert (await client.post(url)).status_code == 200
            assert (seen.connections, lookups) == (1, ["127.0.0.2"])
            assert (await client.post(url)).status_code == 200  # the connection that was checked is used again
        assert (seen.connections, lookups) == (1, ["127.0.0.2"])
        async with httpx.AsyncClient(transport=guard.transport(), trust_env=False) as client:
            with pytest.raises(EgressRefused):
                await client.post(url)
        assert seen.connections == 1


async def test_a_failed_lookup_connects_nowhere() -> None:
    guard = EgressGuard(resolver=resolver({}))
    async with httpx.AsyncClient(transport=guard.transport(), trust_env=False) as client:
        with pytest.raises(httpx.ConnectError):
            await client.post("http://nowhere.example/")


async def test_an_allowed_name_is_looked_up_once_and_keeps_its_host_and_its_connection() -> None:
    lookups: list[str] = []
    answer = resolver({"tools.internal": ["127.0.0.1"]})

    def counting(host: str, *rest: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
        lookups.append(host)
        return answer(host, *rest)

    async with canary() as seen:
        guard = EgressGuard([f"tools.internal:{seen.port}"], resolver=counting)  # pyright: ignore[reportArgumentType]
        async with httpx.AsyncClient(transport=guard.transport(), trust_env=False) as client:
            for _ in range(3):
                assert (await client.post(f"http://tools.internal:{seen.port}/")).status_code == 200
        assert (seen.connections, lookups) == (1, ["tools.internal"])
        assert set(seen.hosts) == {f"tools.internal:{seen.port}"}


async def test_an_entry_opens_only_itself() -> None:
    async with canary() as seen:
        guard = EgressGuard([f"tools.internal:{seen.port}", "127.0.0.2"], resolver=resolver({
            "tools.internal": ["127.0.0.1"], "other.internal": ["127.0.0.1"], "a.tools.internal": ["127.0.0.1"],
            "127.0.0.2": ["127.0.0.2"],
        }))  # fmt: skip
        async with httpx.AsyncClient(transport=guard.transport(), trust_env=False) as client:
            for host in ("other.internal", "a.tools.internal", "127.0.0.1"):
                with pytest.raises(EgressRefused):
                    await client.post(f"http://{host}:{seen.port}/")
            with pytest.raises(EgressRefused):
                await client.post("http://tools.internal:1/")
            assert seen.connections == 0
            await client.post(f"http://127.0.0.2:{seen.port}/")
            await client.post(f"http://tools.internal:{seen.port}/")


async def test_a_network_opens_its_addresses_under_any_name() -> None:
    async with canary() as seen:
        guard = EgressGuard(["127.0.0.0/8"])
        guard.check_url(f"http://localhost:{seen.port}/")
        guard.check_url("http://127.0.0.1/")
        async with httpx.AsyncClient(transport=guard.transport(), trust_env=False) as client:
            assert (await client.post(f"http://localhost:{seen.port}/")).status_code == 200
        with pytest.raises(InvalidRequest):
            guard.check_url("http://[::1]/")
        with pytest.raises(InvalidRequest):
            guard.check_url("http://10.0.0.1/")


@pytest.mark.parametrize("entry", ["http://a", "a/b", "user@host", "10.0.0.0/33", ":80"])
def test_an_entry_that_means_nothing_is_refused_at_start(entry: str) -> None:
    with pytest.raises(ValueError):
        EgressGuard([entry])


def test_ipv6_entries_are_compared_without_brackets() -> None:
    guard = EgressGuard(["[::1]:9000", "fd00::1"])
    guard.check_url("http://[::1]:9000/")
    guard.check_url("http://[fd00::1]:1/")
    with pytest.raises(InvalidRequest):
        guard.check_url("http://[::1]:9001/")
    assert isinstance(guard.policy_for("::1", 9000), Policy)
