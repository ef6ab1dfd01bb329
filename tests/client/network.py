"""Bad networks and odd servers: a TCP proxy that cuts, and a server that says what it was told to say."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

Tasks = set["asyncio.Task[None] | None"]


async def _end(tasks: Tasks) -> None:
    running = [task for task in tasks if task is not None and not task.done()]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@dataclass(slots=True)
class Proxy:
    """Passes connections on to `target`, which may change. Set what happens to the connections made from then on."""

    target: str
    url: str = ""
    cut_after: int | None = None
    """Abort each connection after so many bytes of the answer."""
    cut_once: bool = False
    """`cut_after` is for the next connection only."""
    cut_each_event: bool = False
    """Abort each connection after the first whole event of the answer."""
    requests: list[bytes] = field(default_factory=list[bytes])
    """The first bytes of each connection's request."""
    open_connections: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    passed: int = 0
    """Bytes of the last answer that went through."""
    tasks: Tasks = field(default_factory=lambda: set())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        await self._count(1)
        left = self.cut_after
        if self.cut_once:
            self.cut_after, self.cut_once = None, False
        forward: asyncio.Task[None] | None = None
        outer: asyncio.StreamWriter | None = None
        try:
            first = await reader.read(65536)
            if not first:
                return
            self.requests.append(first)
            address = urlsplit(self.target)
            inner, outer = await asyncio.open_connection(address.hostname, address.port)
            outer.write(first)
            forward = asyncio.create_task(_copy(reader, outer))
            await self._answer(inner, writer, left)
        except (OSError, asyncio.CancelledError):
            pass  # cancelled: the test is over
        finally:
            writer.transport.abort()
            if forward is not None:
                forward.cancel()
                await asyncio.gather(forward, return_exceptions=True)
            if outer is not None:
                outer.transport.abort()
            await self._count(-1)

    async def _answer(self, inner: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None) -> None:
        self.passed = 0
        told = b""
        while data := await inner.read(65536):
            if self.cut_each_event:
                told += data
                start = told.find(b"\ndata: ")
                end = told.find(b"\n\n", start) + 2 if start >= 0 else 0
                if end > 1:
                    writer.write(told[len(told) - len(data) : end])
                    await writer.drain()
                    return
            part = data if left is None else data[:left]
            writer.write(part)
            await writer.drain()
            self.passed += len(part)
            left = None if left is None else left - len(part)
            if left == 0:
                return

    async def _count(self, by: int) -> None:
        async with self.changed:
            self.open_connections += by
            self.changed.notify_all()

    async def until_open(self, number: int) -> None:
        """Wait until so many connections are open."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.open_connections == number)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except OSError:
        pass  # left with something unread
    finally:
        writer.close()  # the client left, so the server must hear of it


@asynccontextmanager
async def proxy_to(target: str) -> AsyncGenerator[Proxy]:
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await _end(proxy.tasks)


def answer(status: int, body: object = None, **headers: str) -> bytes:
    """A response as bytes. `body`: JSON, or bytes as they are; `headers` with `_` for `-`."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    named = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if status != 204:
        named["content-length"] = str(len(raw))
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} Said\r\nconnection: close\r\n{lines}\r\n".encode() + raw


def problem(status: int, code: str, detail: str = "It is so.", **more: object) -> bytes:
    """A problem document as the server answers it. `headers`: more headers."""
    headers = cast("dict[str, str]", more.pop("headers", {}))
    document: dict[str, object] = {
        "type": f"urn:runwire:problem:{code}",
        "title": "Said",
        "status": status,
        "detail": detail,
        "instance": "/asked",
        "code": code,
        "request_id": "request-1",
        "errors": [],
        **more,
    }
    return answer(status, document, **{"content_type": "application/problem+json", **headers})


def event(number: int, name: str, **data: object) -> bytes:
    return f"id: {number}\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode()


def stream(*events: bytes, whole: bool = True, run_id: str | None = "run-1") -> bytes:
    """An event stream, chunked; `whole`: with its clean end."""
    location = f"content-location: /runs/{run_id}\r\n" if run_id else ""
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n{location}transfer-encoding: chunked\r\n"
    )
    body = b"retry: 2000\n: runwire\n\n" + b"".join(events)
    chunk = f"\r\n{len(body):x}\r\n".encode() + body + b"\r\n"
    return head.encode() + b"connection: close\r\n" + chunk + (b"0\r\n\r\n" if whole else b"")


SILENCE = b""
"""An answer that never comes: the connection is taken and held."""

DROP = b"drop"
"""The request is read, and the connection closed without an answer."""


@dataclass(slots=True)
class Canned:
    """A server that gives one answer after the other, each on its own connection; the last one again and again."""

    answers: Sequence[bytes]
    url: str = ""
    requests: list[bytes] = field(default_factory=list[bytes])
    tasks: Tasks = field(default_factory=lambda: set())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
            )
            request = head + await reader.readexactly(length)
            chosen = self.answers[min(len(self.requests), len(self.answers) - 1)]
            self.requests.append(request)
            if chosen == SILENCE:
                await reader.read()
            elif chosen != DROP:
                writer.write(chosen)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def keys(self) -> list[str]:
        """The `Idempotency-Key` of each request."""
        return [_header(request, "idempotency-key") for request in self.requests]

    def lines(self) -> list[str]:
        """Method and path of each request."""
        return [request.partition(b" HTTP/")[0].decode() for request in self.requests]

    def header(self, number: int, name: str) -> str:
        return _header(self.requests[number], name)


def _header(request: bytes, name: str) -> str:
    for line in request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]:
        found, _, value = line.partition(": ")
        if found.lower() == name:
            return value
    return ""


@asynccontextmanager
async def canned(*answers: bytes) -> AsyncGenerator[Canned]:
    said = Canned(answers)
    server = await asyncio.start_server(said.serve, "127.0.0.1", 0)
    said.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield said
    finally:
        server.close()
        await _end(said.tasks)


def run_json(status: str = "success", **more: object) -> dict[str, object]:
    """A Run as the server says it."""
    return {
        "id": "run-1",
        "thread_id": "thread-1",
        "agent": "demo",
        "status": status,
        "stop_reason": "finish",
        "input": "hi",
        "output": {"output": "done"},
        "error": None,
        "interrupts": [],
        "iterations": 1,
        "attempt": 1,
        "usage": {"total_tokens": 3},
        "created_at": "2026-01-31T12:00:00.123Z",
        "started_at": "2026-01-31T12:00:00.200Z",
        "finished_at": None,
        "metadata": {},
        **more,
    }
