"""Readers that do not read: they slow nobody, and what they missed is still there."""

import asyncio
import json
import socket

import httpx
import pytest

from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import ACME, TIMEOUT_S, RunwireServer
from tests.support.streams import check_whole, read_events

pytestmark = pytest.mark.anyio

BIG = run_body(
    scripted(calls(("repeat_text", {"text": "0123456789", "times": 80_000})), {"content": "x" * 400_000, "chunk_size": 4_000}),
    "repeat_text",
)  # fmt: skip
"""More than two megabytes of events."""


def open_and_never_read(server: RunwireServer, body: object) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.connect((host, int(port)))
    data = json.dumps(body).encode()
    head = (
        f"POST /runs/stream HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {ACME}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    connection.sendall(head.encode() + data)
    return connection


async def test_clients_that_never_read_slow_nobody(server: RunwireServer, client: httpx.AsyncClient) -> None:
    label = {"metadata": {"readers": "slow"}}
    deaf = [open_and_never_read(server, {**BIG, **label}) for _ in range(10)]
    try:
        async with asyncio.timeout(TIMEOUT_S):
            quick = await client.post("/runs/wait", json=run_body(scripted(says("quick"))))
            assert quick.json()["status"] == "success"
            whole = await client.post("/runs/stream", json=BIG)
            told = read_events(whole.content)
            check_whole(told)
            assert len(whole.content) > 1_200_000
            runs = (await client.get("/runs", params={"metadata.readers": "slow"})).json()["data"]
            assert len(runs) == 10
            done = await asyncio.gather(*(client.get(f"/runs/{run['id']}/wait") for run in runs))
            assert {answer.json()["status"] for answer in done} == {"success"}
            for run in runs[:2]:
                answer = await client.get(f"/runs/{run['id']}/stream")
                check_whole(read_events(answer.content))
                assert len(read_events(answer.content)) == len(told)
    finally:
        for connection in deaf:
            connection.close()


async def test_clients_that_connect_and_reset_leave_nothing_behind(
    server: RunwireServer, client: httpx.AsyncClient
) -> None:
    before = len(server.log())
    for _ in range(20):
        connection = open_and_never_read(server, run_body(scripted(says("hello"))))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        connection.close()
    assert (await client.post("/runs/wait", json=run_body(scripted(says("quick"))))).status_code == 200
    assert "Traceback" not in server.log()[before:]
