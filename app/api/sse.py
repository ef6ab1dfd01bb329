"""Event streams: journaled bytes out over sse-starlette, with keep-alive, resumable aborts and no queue per client."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import cast

from sse_starlette.sse import AppStatus, EventSourceResponse, SendTimeoutError
from starlette.types import Message, Receive, Scope, Send

from app.api.context import Services
from app.core.errors import RunwireError

PREAMBLE = b"retry: 2000\n: runwire\n\n"
"""Sent first: how long a client waits before it reconnects (milliseconds), and a comment that opens every proxy."""

KEEP_ALIVE = b": keep-alive\n\n"

SEND_BYTES = 64 * 1024
"""At most so much is handed over at once. The send's time limit is for all of it, and a single event may have megabytes."""

SEND_TIMEOUT_S = 30.0
"""A client that takes nothing of a piece for so long is dropped; it can resume."""

AppStatus.disable_automatic_graceful_drain()  # we end streams ourselves, as resumable aborts (never a clean end)


class StreamAborted(Exception):
    """Ends a response without finishing it, so that the client knows the stream is not over."""


class RunStream(EventSourceResponse):
    """An `EventSourceResponse` with what we need of it: no pings and no shutdown watch of its own.

    It streams in the request's task, beside one task that waits for the client to leave; the library has a task group
    of three and an anyio scope for each send, which is a tenth of the CPU of a short run.
    """

    _sending_since: float | None = None
    """Loop time at which the send under way began."""
    _stalled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        streaming = asyncio.current_task()
        assert streaming is not None
        streams = cast("Services", scope["app"].state.services).streams
        streams.open += 1
        watching = asyncio.create_task(self._watch(receive, streaming))
        try:
            await self._stream_response(send)
        except asyncio.CancelledError:
            if self.active or streaming.uncancel():
                raise
            if self._stalled:
                streams.dropped += 1
                raise SendTimeoutError from None
        finally:
            streams.open -= 1
            watching.cancel()

    async def _watch(self, receive: Receive, streaming: "asyncio.Task[object]") -> None:
        """Cancel the stream when the client has left, or has taken nothing of a piece for the whole of the time limit.

        One timer a stream that looks now and then, so a stalled send ends after half of the time limit to the whole of it; a timer a
        send would cost every event.
        """
        loop = asyncio.get_running_loop()
        while self.active:
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S / 2):
                    gone = (await receive())["type"] == "http.disconnect"
            except TimeoutError:
                began = self._sending_since
                gone = self._stalled = began is not None and loop.time() - began >= SEND_TIMEOUT_S / 2
            if gone and self.active:
                self.active = False
                streaming.cancel()

    async def _send_with_timeout(self, send: Send, message: Message) -> None:
        self._sending_since = asyncio.get_running_loop().time()
        await send(message)
        self._sending_since = None


async def _pieces(
    events: AsyncGenerator[bytes], *, at_once: bool, on_leave: Callable[[], Awaitable[None]] | None
) -> AsyncGenerator[bytes]:
    """Preamble, then the events' pieces. `at_once`: there is an event already, so both travel together."""
    ended = False
    lead = PREAMBLE
    try:
        if not at_once:
            yield lead
            lead = b""
        async for piece in events:
            data = lead + piece if piece else KEEP_ALIVE
            lead = b""
            for at in range(0, len(data), SEND_BYTES):
                yield data[at : at + SEND_BYTES]
        ended = True
    except RunwireError as error:
        ended = True  # by us, not by the client
        raise StreamAborted(error.message) from error
    finally:
        await events.aclose()
        if not ended and on_leave is not None:
            await on_leave()


def event_stream(
    events: AsyncGenerator[bytes],
    *,
    location: str,
    at_once: bool,
    replayed: bool = False,
    on_leave: Callable[[], Awaitable[None]] | None = None,
) -> RunStream:
    headers = {
        "Cache-Control": "no-store, no-transform",
        "Location": location,
        "Content-Location": location,
    }
    if replayed:
        headers["Idempotency-Replayed"] = "true"
    return RunStream(
        _pieces(events, at_once=at_once, on_leave=on_leave),
        headers=headers,
        ping=0,
        sep="\n",
        send_timeout=SEND_TIMEOUT_S,
    )
