"""Requests that are odd in their line or headers, and what every answer carries."""

import json
import socket

import httpx
import pytest

from tests.api.problems import check_problem
from tests.support.bodies import run_body, says, scripted
from tests.support.server import ACME, RunwireServer

pytestmark = pytest.mark.anyio

HELLO = run_body(scripted(says("hello")))
UNKNOWN = "0190a0a0-0000-7000-8000-000000000000"


async def test_unknown_routes_and_methods_are_problems_too(client: httpx.AsyncClient) -> None:
    check_problem(await client.get("/nothing/here"), 404, "route_not_found")
    check_problem(await client.get("/"), 404, "route_not_found")
    patched = await client.patch("/runs")
    check_problem(patched, 405, "method_not_allowed")
    assert "GET" in patched.headers["allow"]
    check_problem(await client.put("/runs"), 405, "method_not_allowed")
    check_problem(await client.request("DELETE", "/tools"), 405, "method_not_allowed")


@pytest.mark.parametrize(
    "path",
    [
        f"/runs/{UNKNOWN}", f"/runs/{UNKNOWN}/stream", f"/runs/{UNKNOWN}/events", f"/runs/{UNKNOWN}/steps",
        f"/runs/{UNKNOWN}/steps/1", f"/runs/{UNKNOWN}/messages", f"/runs/{UNKNOWN}/wait", "/runs/x",
        "/runs/%00", "/runs/%ff%fe", "/runs/..%2f..%2fetc%2fpasswd", "/runs/%F0%9F%98%80", "/runs/'%20OR%201=1",
    ],
)  # fmt: skip
async def test_an_unknown_run_is_404_on_every_route(client: httpx.AsyncClient, path: str) -> None:
    check_problem(await client.get(path), 404)


@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ("/runs?limit=x", "/query/limit"),
        ("/runs?limit=101", "/query/limit"),
        ("/runs?status=finished", "/query/status"),
        ("/runs?metadata.=1", "/query/metadata."),
        ("/tools?source=x", "/query/source"),
        (f"/runs/{UNKNOWN}/wait?timeout_s=nan", "/query/timeout_s"),
        (f"/runs/{UNKNOWN}/wait?timeout_s=-1", "/query/timeout_s"),
        (f"/runs/{UNKNOWN}/steps/99999999999", "/path/step"),
        (f"/runs/{UNKNOWN}/stream?tail=maybe", "/query/tail"),
    ],
)
async def test_a_wrong_parameter_is_named(client: httpx.AsyncClient, path: str, pointer: str) -> None:
    check_problem(await client.get(path), 422, "invalid_request", pointer)


@pytest.mark.parametrize(
    "path", ["/runs?after=%00", "/runs?agent=%00", "/runs?thread_id=%00", "/runs?metadata.a=%00", "/agents?after=%00",
             "/tools?after=%00", "/agents/%00", "/tools/%00"],
)  # fmt: skip
async def test_a_nul_in_a_parameter_is_never_a_fault(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code in (200, 404, 422), answer.text


async def test_the_callers_request_id_comes_back_when_it_is_a_plain_token(client: httpx.AsyncClient) -> None:
    given = await client.get("/runs/x", headers={"X-Request-ID": "trace-1.2_3"})
    assert given.headers["x-request-id"] == given.json()["request_id"] == "trace-1.2_3"
    for odd in ("a b", "x" * 129, '"><script>'):
        answer = await client.get("/runs/x", headers={"X-Request-ID": odd})
        assert answer.headers["x-request-id"] != odd
        assert answer.headers["x-request-id"] == answer.json()["request_id"]
    for path in ("/livez", "/runs", "/nothing"):
        assert (await client.get(path)).headers["x-request-id"]


async def test_operations_need_no_key(server: RunwireServer) -> None:
    async with server.client(None) as client:
        for path in ("/livez", "/readyz", "/info", "/openapi.json", "/docs"):
            assert (await client.get(path)).status_code == 200, path


def raw(server: RunwireServer, request: bytes) -> bytes:
    """Send bytes as they are; the answer's, until the server closes or has said its head and body."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        parts: list[bytes] = []
        while data := connection.recv(65536):
            parts.append(data)
    return b"".join(parts)


@pytest.mark.parametrize("host", ["[", "[::1", "a b", "::::", "%", "x" * 5000, "\xff"])
async def test_an_odd_host_header_is_never_a_fault(server: RunwireServer, host: str) -> None:
    request = (
        f"GET /runs/x HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {ACME}\r\nConnection: close\r\n\r\n"
    ).encode("latin-1")
    assert raw(server, request).split(b" ", 2)[1] in (b"404", b"400")


async def test_a_body_that_never_comes_leaves_nothing_behind(server: RunwireServer, client: httpx.AsyncClient) -> None:
    head = f"POST /runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ACME}\r\nContent-Type: application/json\r\n"
    for rest in (b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"):
        raw(server, head.encode() + rest)
    assert (await client.post("/runs/wait", json=HELLO)).status_code == 200
    assert "Traceback" not in server.log()


async def test_a_trailing_slash_is_no_fault(client: httpx.AsyncClient) -> None:
    assert (await client.get("/runs/")).status_code in (307, 404)


async def test_the_served_document_is_valid_json_and_names_every_route(client: httpx.AsyncClient) -> None:
    document = json.loads((await client.get("/openapi.json")).content)
    assert {"/runs", "/runs/stream", "/runs/wait", "/runs/{run_id}/stream", "/agents", "/tools"} <= document[
        "paths"
    ].keys()
