"""The client of HTTP hooks: one signed POST, and an answer of at most one mebibyte."""

import asyncio
import time
import zlib
from collections.abc import Mapping, Sequence

import httpx

from app.core import trace
from app.tools.answer_body import pieces_of
from app.tools.egress import EgressRefused
from app.tools.http_callback import CONNECT_S, HttpToolClient
from app.tools.signing import sign

MAX_ANSWER_BYTES = 1 << 20


class HookFailed(Exception):
    """The hook did not answer as it must. The text is for the log."""


class HookClient:
    """Posts through the same guarded transport as tools are called by."""

    def __init__(self, http: HttpToolClient) -> None:
        self._http = http

    async def post(
        self,
        url: httpx.URL,
        message_id: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        keys: Sequence[bytes],
        timeout_s: float,
    ) -> bytes:
        """The body of a 2xx answer; empty for 204. Raises `HookFailed`. The timeout covers it all, to the last byte."""
        now = int(time.time())
        sent = {
            "user-agent": "Runwire", "accept": "application/json", "accept-encoding": "identity",
            "content-type": "application/json", **headers,
            "webhook-id": message_id, "webhook-timestamp": str(now),
        }  # fmt: skip
        if keys:
            sent["webhook-signature"] = " ".join(sign(key, message_id, now, body) for key in keys)
        current = trace.CURRENT.get()
        if current is not None:
            sent |= current.headers()
        connect = min(CONNECT_S, timeout_s)
        timeouts = {"connect": connect, "pool": connect, "read": None, "write": None}
        request = httpx.Request("POST", url, content=body, headers=sent, extensions={"timeout": timeouts})
        timer = asyncio.timeout(timeout_s)
        try:
            async with timer:
                response = await self._http.transport.handle_async_request(request)
                try:
                    if not 200 <= response.status_code < 300:
                        raise HookFailed(f"status {response.status_code}")
                    return await _read(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            if not timer.expired():
                raise
            raise HookFailed(f"no answer within {timeout_s:g} s") from None
        except (EgressRefused, httpx.TransportError, httpx.DecodingError, zlib.error) as error:
            raise HookFailed(repr(error)) from error


async def _read(response: httpx.Response) -> bytes:
    found: list[bytes] = []
    size = 0
    async for piece in pieces_of(response, MAX_ANSWER_BYTES + 1):
        found.append(piece)
        size += len(piece)
    if size > MAX_ANSWER_BYTES:
        raise HookFailed(f"more than {MAX_ANSWER_BYTES} bytes")
    return b"".join(found)
