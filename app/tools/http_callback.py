"""The HTTP callback of a tool: the request we send, and what its answer means."""

import asyncio
import email.utils
import functools
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol, cast

import httpx
import orjson
import structlog

from app.core import trace
from app.core.clock import rfc3339
from app.core.values import immutable
from app.tools.answer_body import AnswerBody
from app.tools.attempt import Attempt, Send, Sending
from app.tools.egress import EgressGuard, EgressRefused
from app.tools.result import ANSWER_MEMBERS, kept, printable, read_body, whole_value
from app.tools.signing import RotatingKeys, sign
from app.tools.turns import Turns

CONNECT_S = 10.0
"""Longest wait for a connection, within the attempt's own timeout: what was not connected was certainly not sent."""

MAX_CODE = 128
"""Characters of a tool's own error code that are kept."""

_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([\w.:+-]{1,64})", re.IGNORECASE | re.ASCII)
_SERVER_FAULTS = (500, 502, 503, 504)
_FIXED_HEADERS = {
    "user-agent": "Runwire",
    "accept": "application/json, */*",
    "accept-encoding": "identity",
    "content-type": "application/json",
}
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class CallbackAddress(Protocol):
    """Where a tool that answers later calls back (`app.tools.callbacks`)."""

    def url(self, tool_call_id: str) -> str: ...

    def token(self, tool_call_id: str) -> str | None: ...


@immutable
class HttpTarget:
    """Where and how a tool is called. Secrets are here in the clear, in memory only."""

    url: httpx.URL
    method: str
    headers: Mapping[str, str]
    token: str | None
    keys: Sequence[bytes]
    """Signing keys, newest first; none for an unsigned inline tool."""
    max_result_bytes: int


class HttpToolClient:
    """One shared transport for all tools: keep-alive, no proxy from the environment, no redirects.

    The transport is used without `httpx.AsyncClient` around it, which would keep the cookies of one tenant's tool for
    another's, and costs as much CPU again as the request.
    """

    def __init__(
        self,
        guard: EgressGuard,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        callbacks: CallbackAddress | None = None,
    ) -> None:
        """`transport` replaces the guarded one (for tests only: it is not guarded). `callbacks`: where late answers go."""
        self._guard = guard
        self._transport = transport
        self.callbacks = callbacks
        self.turns = Turns()
        """Where the calls that go through here wait for each other."""

    @property
    def transport(self) -> httpx.AsyncBaseTransport:
        """Made at first use: its TLS context costs a start-up 20 ms."""
        if self._transport is None:
            self._transport = self._guard.transport()
        return self._transport

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    async def send(self, target: HttpTarget, sending: Sending, body: bytes, number: int, timeout_s: float) -> Attempt:
        """Send the call once. The timeout covers everything from the connection to the answer's last byte."""
        if isinstance(target.keys, RotatingKeys):
            await target.keys.refresh()
        connect = min(CONNECT_S, timeout_s * 0.9)
        request = httpx.Request(
            target.method,
            target.url,
            content=body,
            headers=_headers(target, sending, body, number),
            extensions={"timeout": {"connect": connect, "pool": connect, "read": None, "write": None}},
        )
        timer = asyncio.timeout(timeout_s)
        taken = AnswerBody(target.max_result_bytes)
        response: httpx.Response | None = None
        try:
            async with timer:
                response = await self.transport.handle_async_request(request)
                try:
                    await taken.read(response)
                finally:
                    await response.aclose()
        except EgressRefused as error:
            return Attempt("failed", code="egress_refused", message=f"{sending.tool} may not be called: {error}.")
        except TimeoutError:
            if not timer.expired():
                raise
            if response is not None and taken.over:
                return _answered(sending, target, response, taken)
            text = f"{sending.tool} did not answer within {timeout_s:g} s."
            return Attempt("uncertain", code="tool_timeout", message=text, timed_out=True)
        except _NOT_SENT as error:
            _log.info("tool_unreachable", tool=sending.tool, tool_call_id=sending.tool_call_id, error=repr(error))
            text = f"{sending.tool} could not be reached; nothing was sent."
            return Attempt("not_executed", code="tool_unreachable", message=text, retryable=True)
        except (httpx.TransportError, httpx.DecodingError, zlib.error) as error:
            _log.info("tool_connection_lost", tool=sending.tool, tool_call_id=sending.tool_call_id, error=repr(error))
            if response is not None and taken.over:
                return _answered(sending, target, response, taken)
            return Attempt("uncertain", code="tool_connection_lost", message="its connection was lost")
        return _answered(sending, target, response, taken)


@immutable
class HttpExecutor:
    """Reaches one tool over HTTP."""

    client: HttpToolClient
    target: HttpTarget

    def prepare(self, sending: Sending) -> Send:
        return functools.partial(self.client.send, self.target, sending, compose(sending, self.client.callbacks))


@immutable
class StatusExecutor:
    """Asks a tool over HTTP what became of a call: the same headers, guard and limits as the call itself."""

    client: HttpToolClient
    target: HttpTarget

    def prepare(self, sending: Sending) -> Send:
        question = {"tool_call_id": sending.tool_call_id, "idempotency_key": sending.idempotency_key}
        return functools.partial(self.client.send, self.target, sending, orjson.dumps(question))


def compose(sending: Sending, callbacks: CallbackAddress | None = None) -> bytes:
    """The body of a call: sorted keys and no time of its own, so that every retry has the same bytes."""
    # Only a run can wait for a late answer.
    token = None if callbacks is None or sending.run_id is None else callbacks.token(sending.tool_call_id)
    url = None if callbacks is None or token is None else callbacks.url(sending.tool_call_id)
    return orjson.dumps(
        {
            "type": "tool.call",
            "timestamp": rfc3339(sending.timestamp_ms),
            "data": {
                "tool_call_id": sending.tool_call_id,
                "run_id": sending.run_id,
                "thread_id": sending.thread_id,
                "tool": sending.tool,
                "arguments": sending.arguments,
                "context": dict(sending.context),
                "principal": {"tenant": sending.principal.tenant, "subject": sending.principal.subject},
                "deadline": rfc3339(sending.deadline_ms),
                "callback_url": url,
                "callback_token": token,
            },
        },
        option=orjson.OPT_SORT_KEYS,
    )


def _answered(sending: Sending, target: HttpTarget, response: httpx.Response, taken: AnswerBody) -> Attempt:
    limit = target.max_result_bytes
    return read_answer(sending.tool, response.status_code, response.headers, taken.data(), taken.more, limit)


def read_answer(tool: str, status: int, headers: Mapping[str, str], data: bytes, more: bool, limit: int) -> Attempt:
    """What an answer means (contract, section 4; the outcome table in docs/tools.md). Pure."""
    if status == 202:
        text = "it answered that it is still working, and outside a run nobody waits for a later answer"
        return Attempt("deferred", code="deferred", message=text, http_status=status)
    if 200 <= status < 300:
        return _success(status, headers, data, more, limit)
    if status == 429:
        return Attempt(
            "not_executed",
            code="tool_rate_limited",
            message=f"{tool} is asked too often; it did nothing. Try again later.",
            retryable=True,
            retry_after_s=_retry_after(headers),
            http_status=status,
        )
    if status in _SERVER_FAULTS:
        text = f"{tool} answered HTTP {status}"
        wait = _retry_after(headers)
        return Attempt("uncertain", code="tool_server_error", message=text, retry_after_s=wait, http_status=status)
    if 300 <= status < 400:
        text = f"{tool} answered with a redirect (HTTP {status}); redirects are not followed."
        return Attempt("failed", code="tool_redirect", message=text, http_status=status)
    more = more or len(data) > limit
    told = None if more else _envelope_error(data)
    if told is not None:
        return _told(told, status)
    said = None if more else _said(data)
    text = f"{tool} answered HTTP {status}" + (f": {said}" if said else ".")
    return Attempt("failed", code="tool_http_error", message=text, http_status=status)


def _success(status: int, headers: Mapping[str, str], data: bytes, more: bool, limit: int) -> Attempt:
    value, meta = read_body(data, limit, more=more, charset=_charset(headers))
    if meta.get("truncated"):
        whole = kept(data, headers.get("content-type", ""), more=more)
        update, goto = _command(whole_value(data)) if whole.complete else (None, None)
        return Attempt("output", value, http_status=status, meta=meta, whole=whole, update=update, goto=goto)
    members = cast("dict[str, object]", value) if isinstance(value, dict) else None
    if members is not None:
        error = members.get("error")
        if "output" in members and error is None and members.keys() <= ANSWER_MEMBERS:
            update, goto = _command(members)
            return Attempt("output", members["output"], http_status=status, update=update, goto=goto)
        if isinstance(error, dict) and "output" not in members:
            return _told(cast("dict[str, object]", error), status)
    return Attempt("output", cast("object", value), http_status=status, meta=meta)


def _command(answer: object) -> tuple[object, object]:
    """An answer's `update` and `goto`, where it has the contract's shape."""
    members = cast("dict[str, object]", answer) if isinstance(answer, dict) else {}
    if "output" not in members or not members.keys() <= ANSWER_MEMBERS:
        return None, None
    return members.get("update"), members.get("goto")


def _envelope_error(data: bytes) -> dict[str, object] | None:
    """The `error` of an answer in the contract's shape, whatever its HTTP status."""
    try:
        value: object = orjson.loads(data)
    except ValueError:
        return None
    error = cast("dict[str, object]", value).get("error") if isinstance(value, dict) else None
    if isinstance(error, dict) and "message" in error:
        return cast("dict[str, object]", error)
    return None


def _told(error: Mapping[str, object], status: int) -> Attempt:
    """An error that the tool told in its own words: definite."""
    message, code = error.get("message"), error.get("code")
    return Attempt(
        "failed",
        code=printable(code[:MAX_CODE]) if isinstance(code, str) and code else "tool_error",
        message=printable(message) if isinstance(message, str) and message else "Tool execution error",
        retryable=error.get("retryable") is True,
        http_status=status,
    )


def _headers(target: HttpTarget, sending: Sending, body: bytes, number: int) -> dict[str, str]:
    headers = {**_FIXED_HEADERS, **target.headers}
    now = int(time.time())
    headers["webhook-id"] = sending.tool_call_id
    headers["webhook-timestamp"] = str(now)
    if target.keys:
        headers["webhook-signature"] = " ".join(sign(key, sending.tool_call_id, now, body) for key in target.keys)
    headers["Idempotency-Key"] = sending.idempotency_key
    headers["Runwire-Attempt"] = str(number)
    headers |= (trace.CURRENT.get() or _own_trace(sending)).headers()
    if target.token is not None:
        headers["authorization"] = f"Bearer {target.token}"
    return headers


def _own_trace(sending: Sending) -> trace.TraceContext:
    """All attempts of a call that stands in no trace are one, after a restart too; each is a span of its own."""
    return trace.TraceContext(trace.derived_trace_id(sending.tool_call_id))


def _said(data: bytes) -> str | None:
    """The sentence in an error answer that was meant to be read, if there is one."""
    try:
        value: object = orjson.loads(data)
    except ValueError:
        return None
    for key in ("error", "detail", "message"):
        if isinstance(value, dict) and key in value:
            value = cast("dict[str, object]", value)[key]
    return printable(value[:1000]) if isinstance(value, str) and value else None


def _charset(headers: Mapping[str, str]) -> str | None:
    """The charset that the answer declares, if any."""
    found = _CHARSET.search(headers.get("content-type", "")[:256])
    return found.group(1) if found else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds, from either of its two forms (RFC 9110, 10.2.3)."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        until = email.utils.parsedate_to_datetime(text)
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError, TypeError, IndexError):  # a date, or a zone, that no calendar has
        return None
