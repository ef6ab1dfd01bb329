"""The connection: uvicorn's HTTP protocol with an end to what a peer can make it hold, read or wait for.

uvicorn alone waits for ever for a request that never completes, keeps a head of any size, queues any number of
pipelined requests, and reads a body to its end although its request was refused. The limits here are per connection;
how many connections there may be is `uvicorn.Config(limit_concurrency=…)`.
"""

import asyncio
import math
from http import HTTPStatus
from typing import Any, Literal, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.core.ids import new_id
from app.core.json import encode

HEAD_S = 20.0
"""From the connection, or the first byte of a request, to the end of its headers."""

BODY_S = 28.0
"""From the headers to the end of the body, whoever reads it. Our reader gives up before (`app.api.body.BODY_S`); this is
for bodies that nobody reads. Both with the lingering below stay under the 30 s that we promise."""

KEEP_ALIVE_S = 15
"""How long a connection may be idle between two requests."""

MAX_HEAD_BYTES = 64 * 1024
"""Request line and headers together; counted in pieces, so up to one `PIECE_BYTES` more may pass."""

MAX_HEADERS = 256
"""Each costs more in memory than its few bytes on the wire."""

MAX_SENT_BYTES = 8 * 1024 * 1024
"""What a body may take on the wire, with the framing of its chunks and its trailers (bodies themselves: 1 MiB)."""

MAX_QUEUED = 16
"""Pipelined requests that wait; beyond, nothing is read until half of them are answered. One piece may add more."""

PIECE_BYTES = 2048
"""What is parsed at once, so that one read of 256 KB cannot become ten thousand requests."""

LINGER_S = 2.0
"""How long, and `MAX_SENT_BYTES` how much, is read and dropped after a refusal: closing at once while the peer still
sends would reset the connection and could cost it the answer (RFC 9112, 9.6)."""

Phase = Literal["idle", "head", "body"]


class _Flow(FlowControl):
    """Reading, which stays off while the connection is full whatever the application asks for."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.full = False

    def resume_reading(self) -> None:  # pyright: ignore[reportImplicitOverride]
        if not self.full:
            super().resume_reading()


class _Lingering:
    """A transport whose `close` lets the peer read the answer first."""

    def __init__(self, protocol: "BoundedProtocol", transport: asyncio.Transport) -> None:
        self._protocol = protocol
        self.write = transport.write
        self.is_closing = transport.is_closing

    def close(self) -> None:
        self._protocol.linger(only_within_body=True)


class _TooManyHeaders(Exception):
    """Raised into the parser, which stops and carries it out as the context of its own error."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection of the server."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._max_connections = config.limit_concurrency or math.inf
        self.limit_concurrency = None  # enforced when a connection is made, not for each request
        self._phase: Phase = "idle"
        self._head_bytes = 0
        self._sent_bytes = 0
        self._deadline = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._held = bytearray()
        self._keep_alive = True
        self._lingering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self._max_connections:
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)
        self.flow = self._gate = _Flow(transport)
        self._deadline = self.loop.time() + HEAD_S
        self._timer = self.loop.call_later(HEAD_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._unset_keepalive_if_required()
        self._held.clear()
        self.pipeline.clear()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """The peer sends no more: `None` closes the connection, as uvicorn has it."""

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            self._drop(len(data))
        elif self._gate.full:
            self._held += data
        else:
            self._unset_keepalive_if_required()
            self._take(data)

    def _take(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            if not self._parse(data if len(data) <= PIECE_BYTES else data[start : start + PIECE_BYTES]):
                return
            if len(self.pipeline) >= MAX_QUEUED:
                self._gate.full = True
                self._gate.pause_reading()
                self._held += data[start + PIECE_BYTES :]
                break
        self._watch()

    def _parse(self, piece: bytes) -> bool:
        """Feed the parser; whether the connection goes on."""
        parser = self.parser
        if parser is None:  # the connection was lost
            return False
        try:
            parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._keep_alive = self.cycle.keep_alive = False  # what follows would be another protocol
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _TooManyHeaders):
                self.refuse(431, "headers_too_large", f"There are more than {MAX_HEADERS} headers.")
                return False
            self.refuse(400, "invalid_http", "This is not a valid HTTP request.")
            return False
        if self._phase == "body":
            self._sent_bytes += len(piece)
            if self._sent_bytes > MAX_SENT_BYTES:
                self.refuse(413, "payload_too_large", f"The body takes more than {MAX_SENT_BYTES} bytes as it is sent.")
                return False
        else:
            self._head_bytes += len(piece)
            if self._head_bytes > MAX_HEAD_BYTES + PIECE_BYTES:
                detail = f"The request line and headers are larger than {MAX_HEAD_BYTES} bytes."
                self.refuse(431, "headers_too_large", detail)
                return False
        return True

    def _watch(self) -> None:
        """After a read: what is not complete gets a deadline, and its answer will close the connection."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if self._phase == "body":
            assert cycle is not None
            if not cycle.response_started:  # uvicorn says `connection: close` for these
                cycle.keep_alive = False
                cycle.transport = cast("asyncio.Transport", _Lingering(self, self.transport))
            if self._deadline == math.inf:
                self._deadline = self.loop.time() + BODY_S
        elif self._deadline == math.inf and (cycle is None or cycle.response_complete):
            self._deadline = self.loop.time() + HEAD_S

    def _look(self) -> None:
        """The timer, which looks at the deadline now and then: arming one for each request would cost each request."""
        now = self.loop.time()
        if now >= self._deadline and self._phase == "body" and self.pipeline and not self._lingering:
            self._deadline = now + BODY_S  # its turn has not come: earlier requests are being answered
        if now < self._deadline:
            self._timer = self.loop.call_later(min(self._deadline - now, HEAD_S), self._look)
        elif self._lingering or self._phase == "body":
            self.transport.abort()
        elif self._phase == "head":
            self.refuse(408, "request_timeout", "The request's headers did not arrive in time.")
        else:
            self.transport.close()

    def refuse(self, status: int, code: str, detail: str) -> None:
        """Answer what never became a request of the application, or no longer is one, and close."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started or self._phase != "body" or self.pipeline:
                self.transport.close()  # an answer here would be taken for that of an earlier request
                return
            cycle.disconnected = True
            cycle.message_event.set()
        request_id = new_id()
        title = HTTPStatus(status).phrase
        body = encode(
            {
                "type": f"urn:runwire:problem:{code}",
                "title": title,
                "status": status,
                "detail": detail,
                "instance": "",
                "code": code,
                "request_id": request_id,
                "errors": [],
            }
        )
        head = (
            f"HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\ncontent-length: {len(body)}\r\n"
            f"x-request-id: {request_id}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.linger()

    def linger(self, *, only_within_body: bool = False) -> None:
        """Close, after the peer has had a moment to stop sending and read the answer."""
        if self._lingering or self.transport.is_closing():
            return
        if (only_within_body and self._phase != "body") or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._lingering = True
        self._sent_bytes = 0
        self._held.clear()
        self.transport.write_eof()
        self._gate.full = False
        self._gate.resume_reading()
        self._deadline = self.loop.time() + LINGER_S
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(LINGER_S, self._look)

    def _drop(self, size: int) -> None:
        self._sent_bytes += size
        if self._sent_bytes > MAX_SENT_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._phase = "head"
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase != "head":
            return  # a trailer, which nobody reads
        if len(self.headers) >= MAX_HEADERS:
            raise _TooManyHeaders
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._phase = "body"
        self._head_bytes = self._sent_bytes = 0
        self._deadline = math.inf
        self._keep_alive = self.cycle.keep_alive

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._phase = "idle"
        self._deadline = math.inf
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keep_alive
            self.cycle.transport = self.transport

    def on_response_complete(self) -> None:
        if self._lingering:
            self.server_state.total_requests += 1
            return
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._phase == "body":
            self._deadline = self.loop.time() + BODY_S
        if self._gate.full and len(self.pipeline) <= MAX_QUEUED // 2:
            self._gate.full = False
            held = bytes(self._held)
            self._held.clear()
            if held:
                self._take(held)
            self._gate.resume_reading()

    def shutdown(self) -> None:
        self._keep_alive = False
        super().shutdown()
