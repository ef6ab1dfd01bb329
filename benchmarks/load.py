"""The load client: posts runs over keep-alive connections and reads each stream to its end, as cheaply as Python can.

A process of its own, `python -m benchmarks.load` with the job as JSON on stdin, so that what is measured is the server.
A stream has LF line ends only, so the bytes of the last chunk, CR LF "0" CR LF CR LF, can only be its end.
"""

import asyncio
import json
import sys
import time
from typing import cast

import uvloop

LAST = b"\r\n0\r\n\r\n"
EVENT = b"event: "
ENDS = (b"event: end\n", b'"status":"success"')


class Client(asyncio.Protocol):
    """One connection: sends the next request as soon as the last answer ended."""

    def __init__(self, load: "Load") -> None:
        self._load = load
        self._first = 0.0
        self._tail = b""
        self._done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def _next(self) -> None:
        if not self._load.take():
            self._done = True
            self._transport.close()
            return
        self._first = 0.0
        self._tail = b""
        self._head = b""
        self._sent = time.perf_counter()
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        load = self._load
        load.size += len(data)
        if not self._head:
            self._head = data
            if not data.startswith(b"HTTP/1.1 200"):
                load.fail(data.decode(errors="replace"))
        if not self._first and EVENT in data:
            self._first = time.perf_counter() - self._sent
        if load.keep:
            load.pieces.append((time.perf_counter() - self._sent, data))
        self._tail = (self._tail + data)[-600:]
        if not self._tail.endswith(LAST):
            return
        load.first_ms.append(self._first * 1000)
        load.total_ms.append((time.perf_counter() - self._sent) * 1000)
        load.keep = False
        if not all(mark in self._tail for mark in ENDS):
            load.fail("a stream ended without a successful run:\n" + self._tail.decode(errors="replace"))
        load.ended()
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done:
            self._load.fail(f"the server closed a connection: {exc}")


class Load:
    """The requests left to send, and what came of those sent."""

    def __init__(self, port: int, path: str, body: str, requests: int, *, keep: bool) -> None:
        """`keep`: whether the first answer is kept whole (only sensible with one client)."""
        data = body.encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        self.request = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
        self._left = requests
        self.open = requests
        self.size = 0
        self.first_ms: list[float] = []
        self.total_ms: list[float] = []
        self.pieces: list[tuple[float, bytes]] = []
        self.keep = keep
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def ended(self) -> None:
        self.open -= 1
        if not self.open and not self.done.done():
            self.done.set_result(None)

    def fail(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(reason))


def unchunk(pieces: list[tuple[float, bytes]]) -> tuple[bytes, list[tuple[float, int]]]:
    """The body of a kept answer, and how much of it was there after each read."""
    raw = b"".join(data for _, data in pieces)
    position = raw.index(b"\r\n\r\n") + 4
    spans: list[tuple[int, int]] = []
    while True:
        line = raw.index(b"\r\n", position)
        size = int(raw[position:line], 16)
        if not size:
            break
        spans.append((line + 2, line + 2 + size))
        position = line + 2 + size + 2
    at: list[tuple[float, int]] = []
    read = 0
    for moment, data in pieces:
        read += len(data)
        at.append((moment * 1000, sum(min(end, read) - start for start, end in spans if start < read)))
    return b"".join(raw[start:end] for start, end in spans), at


async def main(job: dict[str, object]) -> dict[str, object]:
    port, clients, requests = (cast("int", job[name]) for name in ("port", "clients", "requests"))
    load = Load(port, str(job["path"]), str(job["body"]), requests, keep=clients == 1)
    loop = asyncio.get_running_loop()
    begun = time.perf_counter()
    for _ in range(clients):
        await loop.create_connection(lambda: Client(load), "127.0.0.1", port)
    await load.done
    seconds = time.perf_counter() - begun
    sample, at = unchunk(load.pieces) if load.pieces else (b"", [])
    return {
        "seconds": seconds,
        "first_ms": load.first_ms,
        "total_ms": load.total_ms,
        "size": load.size,
        "sample": sample.decode(),
        "at": at,
    }


if __name__ == "__main__":
    print(json.dumps(uvloop.run(main(json.load(sys.stdin)))))
