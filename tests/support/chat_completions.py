"""A Chat Completions server: real sockets, OpenAI's own streaming shapes, and every way to misbehave.

    async with ChatCompletionsServer([says("hello")]) as server:
        ...  # a client with server.base_url
        assert server.requests[0].json["model"] == "m"

Replies are played in order, one a request, the last one again and again; a function `(request) -> Reply` chooses freely.
For many runs at once use `by_turn(...)`, which goes by how far the request's conversation is.
"""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self, cast

MODEL = "test-model"


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    connection: int
    """Number of the connection it came on, from 1."""

    @property
    def json(self) -> dict[str, object]:
        return cast("dict[str, object]", json.loads(self.body))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer and how it is sent. Offsets count bytes of the body."""

    body: bytes = b""
    status: int = 200
    content_type: str = "text/event-stream; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    pieces: Sequence[int] = ()
    """Sizes of the pieces the body is sent in, the last one repeated; empty = all at once."""
    delay_s: float = 0.0
    """Before each piece."""
    cut_after: int | None = None
    """Reset the connection (RST) after so many bytes."""
    pause_after: int | None = None
    """Stop after so many bytes until `resume` is set, or for ever. 0: after the head."""
    resume: asyncio.Event | None = None
    silent: bool = False
    """Never answer at all, not even the head."""
    drop: bool = False
    """Close the connection without a byte."""
    close: bool = False
    """Close the connection after the body (which then has no length, as HTTP/1.0 servers do it)."""


Replies = Sequence[Reply] | Callable[[RecordedRequest], Reply]


class ChatCompletionsServer:
    """Listens on a free loopback port while the context is open.

    `requests`: what came, in order. `connections`: how many were accepted. `open_connections`: how many are open now.
    """

    def __init__(self, replies: Replies, *, base_path: str = "/v1") -> None:
        """`base_path`: what `base_url` ends with; another API's has none."""
        self._replies = replies
        self._base_path = base_path
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self.base_url = ""
        self.requests: list[RecordedRequest] = []
        self.connections = 0
        self.open_connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=2**20)
        port = cast("int", self._server.sockets[0].getsockname()[1])
        self.base_url = f"http://127.0.0.1:{port}{self._base_path}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached()`; looked at when a request comes or a connection opens or closes."""
        async with self._changed:
            await self._changed.wait_for(reached)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open_connections += 1
        try:
            await self._notify()
            await self._serve(reader, writer, self.connections)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass  # the server is closing; asyncio would log a cancelled handler
        finally:
            writer.close()
            self.open_connections -= 1
            self._tasks.discard(task)
            with contextlib.suppress(asyncio.CancelledError):
                await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> None:
        while True:
            request = await _read_request(reader, connection)
            self.requests.append(request)
            await self._notify()
            reply = self._reply(request)
            if not await _send(reply, reader, writer):
                return

    def _reply(self, request: RecordedRequest) -> Reply:
        if callable(self._replies):
            return self._replies(request)
        return self._replies[min(len(self.requests), len(self._replies)) - 1]


async def _read_request(reader: asyncio.StreamReader, connection: int) -> RecordedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return RecordedRequest(method, path, headers, body, connection)


async def _send(reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Send one reply; whether the connection may serve another request."""
    if reply.silent:
        await reader.read()
        return False
    if reply.drop:
        return False
    end = "Connection: close" if reply.close else "Transfer-Encoding: chunked"
    lines = [f"HTTP/1.1 {reply.status} X", f"Content-Type: {reply.content_type}", end]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    sent = 0
    for piece in _pieces(reply):
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        if piece:
            writer.write(piece if reply.close else b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)  # let the reader see this piece on its own
        sent += len(piece)
        if reply.cut_after is not None and sent >= reply.cut_after:
            await asyncio.sleep(0.01)  # a reset drops what the reader has not taken yet
            _reset(writer)
            return False
        if reply.pause_after == sent:
            if reply.resume is None:
                await reader.read()
                return False
            await reply.resume.wait()
    if not reply.close:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return not reply.close


def _pieces(reply: Reply) -> list[bytes]:
    """The body in its pieces, with a border also where it is to be cut or to pause."""
    body = reply.body
    borders = {0, len(body)}
    at = 0
    sizes = list(reply.pieces)
    while sizes and at < len(body):
        at = min(at + max(sizes[0], 1), len(body))
        borders.add(at)
        if len(sizes) > 1:
            sizes.pop(0)
    for stop in (reply.cut_after, reply.pause_after):
        if stop is not None:
            borders.add(min(stop, len(body)))
    ordered = sorted(borders)
    pieces = [body[start:end] for start, end in pairwise(ordered)]
    return [b"", *pieces] if 0 in (reply.cut_after, reply.pause_after) or not pieces else pieces


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = cast("socket.socket", writer.get_extra_info("socket"))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


# --- what OpenAI sends ------------------------------------------------------------------------------------------------


def chunk(delta: Mapping[str, object] | None, *, finish: str | None = None, **extra: object) -> dict[str, object]:
    """One `chat.completion.chunk`; `delta` `None` gives the one without choices, which carries the usage."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {
        "id": "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG",
        "object": "chat.completion.chunk",
        "created": 1741570283,
        "model": MODEL,
        "service_tier": "default",
        "system_fingerprint": "fp_44add4a8c5",
        "choices": [] if delta is None else [choice],
        "usage": None,
        **extra,
    }


def answer_chunks(
    content: str = "",
    *,
    calls: Sequence[tuple[str, str, str]] = (),
    finish: str | None = None,
    usage: tuple[int, int] | None = (9, 3),
    size: int = 5,
) -> list[dict[str, object]]:
    """A whole answer in OpenAI's order: role, content, calls `(id, name, arguments text)` in fragments, finish, usage."""
    first: dict[str, object] = {"role": "assistant", "content": None if calls and not content else "", "refusal": None}
    chunks = [chunk(first)]
    chunks += [chunk({"content": content[at : at + size]}) for at in range(0, len(content), size)]
    for index, (call_id, name, args) in enumerate(calls):
        start = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        chunks.append(chunk({"tool_calls": [start]}))
        chunks += [
            chunk({"tool_calls": [{"index": index, "function": {"arguments": args[at : at + size]}}]})
            for at in range(0, len(args), size)
        ]
    chunks.append(chunk({}, finish=finish or ("tool_calls" if calls else "stop")))
    if usage is not None:
        given, made = usage
        counted = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
        chunks.append(chunk(None, usage=counted))
    return chunks


def events(chunks: Sequence[Mapping[str, object]], *, done: bool = True, newline: str = "\n") -> bytes:
    """Chunks as the bytes of an event stream."""
    lines = [f"data: {json.dumps(item, ensure_ascii=False, separators=(',', ':'))}" for item in chunks]
    lines += ["data: [DONE]"] if done else []
    return "".join(line + newline * 2 for line in lines).encode()


def says(content: str, *, usage: tuple[int, int] | None = (9, 3)) -> Reply:
    """A streamed text answer."""
    return Reply(body=events(answer_chunks(content, usage=usage)))


def calls(*proposed: tuple[str, str, str], content: str = "") -> Reply:
    """A streamed answer that calls tools: `(id, name, arguments text)` each."""
    return Reply(body=events(answer_chunks(content, calls=proposed)))


def fails(
    status: int, message: str = "failed", *, code: str | None = None, headers: Mapping[str, str] | None = None
) -> Reply:
    """An error in OpenAI's shape."""
    body = json.dumps({"error": {"message": message, "type": "error", "param": None, "code": code}}).encode()
    return Reply(status=status, body=body, content_type="application/json", headers=headers or {})


def by_turn(*replies: Reply) -> Callable[[RecordedRequest], Reply]:
    """Choose by how many answers the conversation holds already, so that any number of runs can share the server."""

    def choose(request: RecordedRequest) -> Reply:
        messages = cast("list[dict[str, object]]", request.json["messages"])
        answers = sum(message["role"] == "assistant" for message in messages)
        return replies[min(answers, len(replies) - 1)]

    return choose
