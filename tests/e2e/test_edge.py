"""The edge of the server: what a peer can make a connection hold, read or wait for, on raw sockets."""

import asyncio
import json
import resource
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import ACME, TIMEOUT_S, RunwireServer

pytestmark = pytest.mark.anyio

GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
POST = f"POST /runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ACME}\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
MIB = 1024 * 1024


class Peer:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """What comes until the server closes; a reset is a close, too."""
        received = bytearray()
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    piece = await self.reader.read(65536)
                except ConnectionError:
                    break
                if not piece:
                    break
                received += piece
        return bytes(received)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """One response with a length."""
        async with asyncio.timeout(TIMEOUT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.rstrip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(first.split()[1]), headers, body


@asynccontextmanager
async def peer_of(server: RunwireServer, first: bytes = b"") -> AsyncGenerator[Peer]:
    url = urlsplit(server.url)
    assert url.port is not None
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write(first)
        yield Peer(reader, writer)
    finally:
        writer.close()


async def dripped(peer: Peer, data: bytes) -> bytes:
    """What the server says while `data` is sent again and again, until it closes."""

    async def drip() -> None:
        while True:
            await peer.send(data)
            await asyncio.sleep(0.02)  # the pace of the attack, not a wait for anything

    dripping = asyncio.create_task(drip())
    try:
        return await peer.rest()
    finally:
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


async def endless(peer: Peer, piece: bytes, limit: int) -> int:
    """How much of an endless upload the server took before it closed; at most `limit` is sent."""
    sent = 0
    async with asyncio.timeout(TIMEOUT_S):
        try:
            while sent < limit:
                await peer.send(piece)
                sent += len(piece)
        except ConnectionError:
            pass
    return sent


def resident_kb(server: RunwireServer) -> int:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    """A server whose deadlines are fractions of a second."""
    env = {"RUNWIRE_PLUGINS": "tests.support.short_deadlines:tools"}
    with RunwireServer.open(tmp_path_factory.mktemp("hasty"), env=env) as running:
        yield running


@pytest.mark.parametrize("sent", [b"", b"GET /li", GET + b"X-A: ", b"\r\n", b"\r\n\r\n"])
async def test_a_request_that_never_completes_is_closed(hasty: RunwireServer, sent: bytes) -> None:
    async with peer_of(hasty, sent) as peer:
        said = await peer.rest()
    assert said == b"" or said.startswith(b"HTTP/1.1 408 ")


async def test_dripped_headers_and_line_ends_are_closed(hasty: RunwireServer) -> None:
    async with peer_of(hasty, GET + b"X-A: ") as peer:
        said = await dripped(peer, b"x")
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"request_timeout"' in said
    async with peer_of(hasty, GET + b"\r\n") as peer:
        assert (await peer.answer())[0] == 200
        await dripped(peer, b"\r\n")


@pytest.mark.parametrize(
    "rest",
    [b"Content-Length: 100\r\n\r\n{", CHUNKED + b"1\r\n{\r\n", b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n"],
)
async def test_a_body_that_never_completes_is_answered_408_and_closed(hasty: RunwireServer, rest: bytes) -> None:
    async with peer_of(hasty, POST.encode() + rest) as peer:
        said = (await peer.rest()).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in said
    assert b'"code":"request_timeout"' in said


async def test_a_dripped_body_is_answered_408_and_closed(hasty: RunwireServer) -> None:
    async with peer_of(hasty, POST.encode() + b"Content-Length: 100000\r\n\r\n") as peer:
        assert (await dripped(peer, b" ")).startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_nobody_reads_closes_the_connection(hasty: RunwireServer) -> None:
    async with peer_of(hasty, b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{") as peer:
        said = await peer.rest()
    assert said.startswith(b"HTTP/1.1 405 ")
    assert b"connection: close" in said


async def test_streams_and_waits_outlive_the_deadlines(hasty: RunwireServer) -> None:
    body = run_body(scripted(calls(("wait_for", {"ms": 2500})), says("late")), "wait_for")
    async with hasty.client() as client, asyncio.timeout(TIMEOUT_S):
        stream, wait = await asyncio.gather(
            client.post("/runs/stream", json=body), client.post("/runs/wait", json=body)
        )
    assert stream.content.count(b"event: end") == 1
    assert wait.json()["output"] == {"output": "late"}


async def test_requests_behind_a_long_answer_are_answered_after_it(hasty: RunwireServer) -> None:
    body = json.dumps(run_body(scripted(calls(("wait_for", {"ms": 2500})), says("late")), "wait_for")).encode()
    wait = POST.replace("/runs", "/runs/wait").encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with peer_of(hasty, wait + GET + b"X-A: ") as peer:
        assert (await peer.answer())[0] == 200
        await peer.send(b"1\r\n\r\n")
        assert (await peer.answer())[0] == 200


async def test_an_idle_connection_is_kept_for_a_while(hasty: RunwireServer) -> None:
    async with peer_of(hasty, GET + b"\r\n") as peer:
        assert (await peer.answer())[1].get("connection") != "close"
        await peer.send(GET + b"\r\n")
        assert (await peer.answer())[0] == 200
        assert await peer.rest() == b""


@pytest.mark.parametrize("start", [b"GET /", GET + b"X-A: ", b"GET /livez HTTP/1.1\r\n" + b"X: 1\r\n" * 100])
async def test_a_head_over_64_kib_is_refused_and_not_read(server: RunwireServer, start: bytes) -> None:
    async with peer_of(server, start) as peer:
        assert await endless(peer, b"a" * 65536, 64 * MIB) < 64 * MIB
    async with peer_of(server, start + b"a" * 100_000) as peer:
        said = await peer.rest()
    assert said.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"headers_too_large"' in said
    async with peer_of(server, GET + b"X-A: " + b"a" * 60_000 + b"\r\n\r\n") as peer:
        assert (await peer.answer())[0] == 200


async def test_more_than_256_headers_are_refused(server: RunwireServer) -> None:
    async with peer_of(server, b"GET /livez HTTP/1.1\r\n" + b"a:\r\n" * 5000 + b"\r\n") as peer:
        assert (await peer.rest()).startswith(b"HTTP/1.1 431 ")
    async with peer_of(server, GET + b"a:\r\n" * 250 + b"\r\n") as peer:
        assert (await peer.answer())[0] == 200


async def test_nonsense_behind_a_request_is_not_answered_in_its_place(server: RunwireServer) -> None:
    body = json.dumps(run_body(scripted(calls(("hang", {}))), "hang")).encode()
    wait = POST.replace("/runs", "/runs/wait").encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with peer_of(server, wait + b"\x00\x01 nonsense\r\n\r\n") as peer:
        assert await peer.rest() == b""


async def test_an_offer_of_another_protocol_is_not_taken(server: RunwireServer) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    async with peer_of(server, GET + offer) as peer:
        status, headers, _ = await peer.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert await peer.rest() == b""


async def test_a_flood_of_pipelined_requests_is_not_read(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path) as server:
        before = resident_kb(server)
        async with peer_of(server) as peer:
            sending = asyncio.create_task(endless(peer, (GET + b"\r\n") * 3000, 64 * MIB))
            done, _ = await asyncio.wait((sending,), timeout=3)
            assert not done  # it never reads the answers, so the server must not go on reading either
            sending.cancel()
            grown = resident_kb(server) - before
        assert grown < 100_000


async def test_more_pipelined_requests_than_are_queued_are_all_answered_in_order(server: RunwireServer) -> None:
    count = 1000
    requests = [b"GET /r%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number for number in range(count)]
    async with peer_of(server, b"".join(requests)) as peer:
        paths = [json.loads((await peer.answer())[2])["instance"] for _ in range(count)]
    assert paths == [f"/r{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n", 401),
        (POST.encode(), 413),
        (POST.replace("application/json", "text/plain").encode(), 415),
        (b"POST /livez HTTP/1.1\r\nHost: x\r\n", 405),
    ],
)
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_refused_body_is_not_read_to_its_end(
    server: RunwireServer, head: bytes, status: int, chunked: bool
) -> None:
    framing = CHUNKED if chunked else b"Content-Length: 1000000000000\r\n\r\n"
    piece = b"10000\r\n" + b"a" * 65536 + b"\r\n" if chunked else b"a" * 65536
    async with peer_of(server, head + framing + piece * 20) as peer:
        said, headers, _ = await peer.answer()
        assert (said, headers["connection"]) == (status, "close")
        assert await endless(peer, piece, 64 * MIB) < 64 * MIB


async def test_a_client_that_sends_all_before_it_reads_still_gets_the_refusal(client: httpx.AsyncClient) -> None:
    answer = await client.post("/runs", content=b"a" * (5 * MIB), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


async def test_a_body_in_pieces_keeps_the_connection(server: RunwireServer) -> None:
    body = json.dumps(run_body(scripted(says("hello")), input="x" * 200_000)).encode()
    head = POST.encode() + b"Content-Length: %d\r\n\r\n" % len(body)
    async with peer_of(server, head) as peer:
        for start in range(0, len(body), 50_000):
            await peer.send(body[start : start + 50_000])
        status, headers, _ = await peer.answer()
        assert (status, headers.get("connection")) == (201, None)
        await peer.send(GET + b"\r\n")
        assert (await peer.answer())[0] == 200


async def test_trailers_do_not_pile_up(server: RunwireServer) -> None:
    async with peer_of(server, POST.encode() + CHUNKED + b"2\r\n{}\r\n0\r\n") as peer:
        assert await endless(peer, b"X-T: " + b"a" * 60_000 + b"\r\n", 64 * MIB) < 64 * MIB


async def test_connections_beyond_the_bound_are_closed_at_once(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path, env={"RUNWIRE_MAX_CONNECTIONS": "3"}) as server:
        async with peer_of(server, GET + b"\r\n") as a, peer_of(server, GET + b"\r\n") as b:
            async with peer_of(server, GET + b"\r\n") as c:
                for peer in (a, b, c):
                    assert (await peer.answer())[0] == 200
                async with peer_of(server) as refused:
                    assert await refused.rest() == b""
            await a.send(GET + b"\r\n")
            assert (await a.answer())[0] == 200


def test_the_server_may_open_as_many_files_as_the_system_lets_it(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))  # a child begins with its parent's
    try:
        with RunwireServer.open(tmp_path) as server:
            assert server.process is not None
            limits = Path(f"/proc/{server.process.pid}/limits").read_text(encoding="ascii")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (
        next(line for line in limits.splitlines() if line.startswith("Max open files")).split()[3:5] == [str(hard)] * 2
    )


async def test_what_is_not_http_is_refused_with_a_problem(server: RunwireServer) -> None:
    async with peer_of(server, b"\x16\x03\x01 hello\r\n\r\n") as peer:
        said = await peer.rest()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in said
    assert b"x-request-id: " in said


async def test_a_slash_too_many_is_not_found_instead_of_sent_elsewhere(client: httpx.AsyncClient) -> None:
    answer = await client.get("/runs/", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["code"]) == (404, "route_not_found")
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    ("version", "host", "status"),
    [
        ("1.1", "Host: localhost:8080\r\n", 200),
        ("1.1", "Host: 127.0.0.1\r\n", 200),
        ("1.0", "Host: [::1]:1\r\n", 200),
        ("1.1", "Host: \r\n", 403),
        ("1.1", "", 403),
        ("1.0", "", 403),
        ("1.1", "Host: testserver\r\n", 403),
        ("1.1", "Host: localhost\r\nHost: evil.example\r\n", 403),
    ],
)
async def test_a_server_without_keys_answers_to_loopback_names_only(
    keyless: RunwireServer, version: str, host: str, status: int
) -> None:
    async with peer_of(keyless, f"GET /runs HTTP/{version}\r\n{host}\r\n".encode()) as peer:
        assert (await peer.answer())[0] == status


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with RunwireServer.open(tmp_path_factory.mktemp("keyless"), keys="") as running:
        yield running


@pytest.mark.parametrize(
    "path",
    [
        "/runs?limit=0",
        "/runs?status=x",
        "/runs?agent=%00",
        "/runs/" + "a" * 65,
        "/runs/x/wait?timeout_s=-1",
        "/tools?limit=x",
        "/agents?limit=x",
    ],
)
async def test_a_wrong_parameter_is_told_only_to_who_has_a_key(server: RunwireServer, path: str) -> None:
    async with server.client(None) as nobody, server.client() as somebody:
        refused = await nobody.get(path)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        assert refused.headers["WWW-Authenticate"] == "Bearer"
        assert (await somebody.get(path)).status_code == 422


async def test_a_wrong_selection_of_events_is_told_only_to_who_has_a_key(server: RunwireServer) -> None:
    async with server.client(None) as nobody:
        assert (await nobody.post("/runs/stream?stream=bogus", json={})).status_code == 401


def _body(**changes: Any) -> dict[str, Any]:
    return {"agent": {"model": scripted(says("x"))}, "input": "x", **changes}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (_body(agent={"model": "demo", "tools": [0] * 200_000}), "/agent/tools"),
        (_body(agent={"model": "demo", "middleware": [0] * 200_000}), "/agent/middleware"),
        (_body(stream=["bogus"] * 100_000), "/stream"),
        (_body(**{f"field{number}": 0 for number in range(50_000)}), ""),
        (_body(agent={"model": "demo", **{f"field{number}": 0 for number in range(50_000)}}), "/agent"),
        (
            _body(input={"messages": [{"role": "assistant", "tool_calls": [0] * 200_000}]}),
            "/input/messages/0/tool_calls",
        ),
    ],
)
async def test_a_body_wrong_in_very_many_places_is_refused_in_few_words(
    client: httpx.AsyncClient, body: dict[str, Any], pointer: str
) -> None:
    answer = await client.post("/runs", json=body)
    assert answer.status_code == 422
    assert len(answer.content) < 10_000
    errors = answer.json()["errors"]
    assert 1 <= len(errors) <= 21
    assert errors[0]["pointer"].startswith(pointer)


async def test_twenty_wrong_places_are_told_and_the_rest_counted(client: httpx.AsyncClient) -> None:
    answer = await client.post("/runs", json=_body(**{f"field{number}": 0 for number in range(30)}))
    errors = answer.json()["errors"]
    assert [error["pointer"] for error in errors[:20]] == [f"/field{number}" for number in range(20)]
    assert len(errors) == 20
    assert "10 more" in answer.json()["detail"]


async def test_metadata_is_64_short_keys_at_most(client: httpx.AsyncClient) -> None:
    fits = await client.post("/runs", json=_body(metadata={f"{number:064}": number for number in range(64)}))
    assert fits.status_code == 201
    for metadata in ({str(number): 1 for number in range(65)}, {"k" * 65: 1}):
        refused = await client.post("/runs", json=_body(metadata=metadata))
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"].startswith("/metadata")


async def test_a_list_is_filtered_by_16_metadata_keys_at_most(client: httpx.AsyncClient) -> None:
    few = await client.get("/runs", params={f"metadata.k{number}": "1" for number in range(16)})
    assert few.status_code == 200
    many = await client.get("/runs", params={f"metadata.k{number}": "1" for number in range(17)})
    assert (many.status_code, many.json()["errors"][0]["pointer"]) == (422, "/query")
