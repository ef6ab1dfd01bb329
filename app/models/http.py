"""The model client: one shared HTTP connection pool, and one request after which chunks come.

Everything has a defined end: connecting, the first chunk, each next chunk and the whole answer have their deadlines, the
answer's size has a limit. What fails before the first chunk and may pass is sent again; after it, never.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import field
from time import time
from typing import TypeVar

import httpx
import httpx_sse

from app.core import trace
from app.core.values import immutable
from app.models.failures import ProviderError, of_error_object, of_status
from app.models.openai_wire import decode_chunk
from app.models.pool import PooledTransport
from app.models.retries import Retries, retry_after_s
from app.tools.egress import EgressRefused

_T = TypeVar("_T")

ERROR_BODY_S = 10.0
"""How long an error's body is waited for."""

MAX_ERROR_BYTES = 64 * 1024
"""How much of an error's body is read."""

DRAIN_S = 0.05
"""How long the body's end is waited for after `[DONE]`, so that the connection can be used again."""


@immutable
class Timeouts:
    """Seconds. What counts is chunks, so a server that keeps sending comments or single bytes does not gain time."""

    connect_s: float = 10.0
    first_token_s: float = 120.0
    """From sending the request to the first chunk."""
    between_chunks_s: float = 60.0
    total_s: float = 1800.0
    """One whole answer."""


@immutable
class ModelCall:
    """One request. `secret` is the key in it, kept out of every error."""

    url: str
    body: bytes
    headers: dict[str, str] = field(repr=False)
    secret: str | None = field(default=None, repr=False)
    timeouts: Timeouts = field(default_factory=Timeouts)
    preamble: frozenset[str] = frozenset()
    """Values of a chunk's `type` that carry nothing of the answer: what fails right after them may still be repeated."""
    last: str | None = None
    """The `type` of the last chunk, where the API has one; `[DONE]` ends any stream."""


class ModelClient:
    """A pool of connections to model servers, made at its first use.

    The transport is used without `httpx.AsyncClient` around it, which would keep the cookies of one tenant's answers
    for another's requests.
    """

    def __init__(
        self,
        *,
        retries: Retries | None = None,
        transport: Callable[[], httpx.AsyncBaseTransport] | None = None,
        max_answer_bytes: int = 32 * 1024 * 1024,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`transport`: what to connect through, e.g. the egress guard; by default plain HTTP(S) without proxies."""
        self._retries = retries or Retries()
        self._transport = transport
        self._max_answer_bytes = max_answer_bytes
        self._sleep = sleep
        self._pool: PooledTransport | None = None

    async def chunks(self, call: ModelCall) -> AsyncGenerator[dict[str, object] | None]:
        """Send the request and yield the answer's chunks; `None` stands for `[DONE]`. A JSON body is one chunk.

        Chunks of the preamble come again when the request had to be sent again after them.

        Ends when the body ends. Raises `ProviderError`. Closing it, or cancelling, closes the connection.
        """
        attempt = 1
        while True:
            begun = False
            try:
                async with aclosing(self._attempt(call)) as chunks:
                    async for chunk in chunks:
                        begun = begun or chunk is None or chunk.get("type") not in call.preamble
                        yield chunk
                return
            except ProviderError as error:
                if begun or not error.repeat or attempt >= self._retries.max_attempts:
                    raise
                delay = self._retries.delay_s(attempt, error.retry_after_s, random.random())  # noqa: S311
            await self._sleep(delay)
            attempt += 1

    async def close(self) -> None:
        """Close every connection. Calls under way fail; a later call opens a new pool."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    async def _attempt(self, call: ModelCall) -> AsyncGenerator[dict[str, object] | None]:
        now = asyncio.get_running_loop().time
        end = now() + call.timeouts.total_s
        deadline = min(now() + call.timeouts.first_token_s, end)
        request = self._request(call)
        response = await _within(deadline, self._open().handle_async_request(request), "answer")
        try:
            self._limit(response)
            await _check_status(response, call.secret)
            if "text/event-stream" not in response.headers.get("content-type", "").lower():
                yield _body_chunk(await _within(deadline, response.aread(), "first chunk"), call.secret)
                return
            response.encoding = "utf-8"
            events = httpx_sse.EventSource(response).aiter_sse()
            async with aclosing(events):
                waiting_for = "first chunk"
                while True:
                    event = await _within(deadline, anext(events, None), waiting_for)
                    if event is None:
                        return
                    if not event.data:
                        continue
                    if event.data.strip() == "[DONE]":
                        await _drain(events)
                        yield None
                        return
                    chunk = _event_chunk(event, call.secret)
                    if call.last is not None and chunk.get("type") == call.last:
                        await _drain(events)
                        yield chunk
                        return
                    yield chunk
                    deadline = min(now() + call.timeouts.between_chunks_s, end)
                    waiting_for = "next chunk"
        finally:
            await response.aclose()

    def _open(self) -> PooledTransport:
        # A transport knows no proxy from the environment, which would see every prompt and key, and no redirects.
        if self._pool is None:
            self._pool = PooledTransport(self._transport or _plain_transport())
        return self._pool

    def _request(self, call: ModelCall) -> httpx.Request:
        timeouts = call.timeouts
        # Reading has no timeout here: our own deadlines look at chunks, not at bytes.
        timeout = httpx.Timeout(
            connect=timeouts.connect_s, write=timeouts.first_token_s, read=None, pool=timeouts.connect_s
        )
        current = trace.CURRENT.get()
        headers = call.headers if current is None else {**call.headers, **current.headers()}
        try:
            request = httpx.Request(
                "POST", call.url, content=call.body, headers=headers, extensions={"timeout": timeout.as_dict()}
            )
            url = request.url
            if url.userinfo:  # an operator's own address may have it; a tenant's may not
                return next(httpx.BasicAuth(url.username, url.password).auth_flow(request))
            return request
        except (httpx.InvalidURL, ValueError):  # ValueError: a header that is not ASCII
            raise _unsendable() from None

    def _limit(self, response: httpx.Response) -> None:
        """Refuse an encoded body (a compressed one could unfold without limit) and cap its size."""
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise ProviderError(
                "The model's server sent a compressed answer although none was asked for.",
                code="model_invalid_response",
            )
        if isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = _CappedStream(response.stream, self._max_answer_bytes)


def _plain_transport() -> Callable[[], httpx.AsyncBaseTransport]:
    """HTTP(S) as it is. No limit of connections: how many runs are under way at once is the server's own limit."""
    context = httpx.create_ssl_context()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=30.0)
    return lambda: httpx.AsyncHTTPTransport(verify=context, limits=limits)


class _CappedStream(httpx.AsyncByteStream):
    """A body that fails when it grows beyond a limit."""

    def __init__(self, stream: httpx.AsyncByteStream, limit: int) -> None:
        self._stream = stream
        self._left = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._stream:
            self._left -= len(data)
            if self._left < 0:
                raise ProviderError(
                    "The model's answer is larger than the server's limit.", code="model_invalid_response"
                )
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _within(deadline: float, step: Awaitable[_T], waiting_for: str) -> _T:
    """Await one step under a deadline (event loop time), and say in our words what went wrong."""
    before_headers = waiting_for == "answer"
    try:
        async with asyncio.timeout_at(deadline):
            return await step
    except TimeoutError as error:
        raise ProviderError(f"The model's server sent no {waiting_for} in time.", code="model_timeout") from error
    except httpx.ConnectTimeout as error:
        raise ProviderError(
            "The model's server could not be reached in time.", code="model_timeout", repeat=True
        ) from error
    except httpx.TimeoutException as error:
        raise ProviderError("The model's server took too long.", code="model_timeout") from error
    except (httpx.UnsupportedProtocol, httpx.LocalProtocolError):
        raise _unsendable() from None  # the cause quotes the header it does not like, which may be the key
    except httpx.ConnectError as error:
        raise ProviderError(
            "The model's server could not be reached; check base_url.", code="model_unavailable", repeat=True
        ) from error
    except httpx.TransportError as error:
        if before_headers:
            raise ProviderError(
                "The model's server closed the connection without an answer.", code="model_unavailable", repeat=True
            ) from error
        raise ProviderError(
            "The model's stream broke off before its end.", code="model_stream_broken", repeat=True
        ) from error
    except EgressRefused as error:
        raise ProviderError(f"The model's base_url is refused: {error}.", code="model_bad_request") from error


def _unsendable() -> ProviderError:
    return ProviderError(
        "The request to the model's server could not be made; check base_url and api_key.", code="model_bad_request"
    )


async def _drain(events: AsyncIterator[object]) -> None:
    """Read the body's end after `[DONE]`, for a moment: only a body read to its end gives its connection back."""
    with contextlib.suppress(TimeoutError, httpx.TransportError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in events:
                pass


async def _check_status(response: httpx.Response, secret: str | None) -> None:
    if response.status_code == 200:
        return
    body = b""
    # The status says enough if its explanation does not come.
    with contextlib.suppress(TimeoutError, httpx.TransportError):
        async with asyncio.timeout(ERROR_BODY_S):
            async for data in response.aiter_bytes():
                body += data
                if len(body) >= MAX_ERROR_BYTES:
                    break
    raise of_status(
        response.status_code,
        body[:MAX_ERROR_BYTES],
        is_html="html" in response.headers.get("content-type", ""),
        secret=secret,
        retry_after_s=retry_after_s(response.headers.get("retry-after"), time()),
    )


def _body_chunk(body: bytes, secret: str | None) -> dict[str, object]:
    if not body.strip():
        raise ProviderError("The model's server sent an empty answer.", code="model_empty_response")
    try:
        chunk = decode_chunk(body)
    except ValueError as error:
        raise ProviderError(
            "The model's server answered with something that is not JSON; check base_url.",
            code="model_invalid_response",
        ) from error
    return _checked(chunk, secret)


def _event_chunk(event: httpx_sse.ServerSentEvent, secret: str | None) -> dict[str, object]:
    try:
        chunk = decode_chunk(event.data)
    except ValueError as error:
        if event.event == "error":
            raise of_error_object(event.data, secret=secret) from error
        raise ProviderError(
            "The model's stream holds an event that is not a JSON object.", code="model_invalid_response"
        ) from error
    if event.event == "error" and not chunk.get("error"):
        raise of_error_object(chunk, secret=secret)
    return _checked(chunk, secret)


def _checked(chunk: dict[str, object], secret: str | None) -> dict[str, object]:
    """An error object is a failure here already, so that one that comes first can be tried again."""
    if chunk.get("error"):
        raise of_error_object(chunk["error"], secret=secret)
    return chunk
