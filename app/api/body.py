"""Reading a request's body: our own reader, because limits and odd values must be refused before they are parsed away."""

import asyncio

from starlette.requests import ClientDisconnect, Request

from app.core.errors import InvalidRequest, PayloadTooLarge, RequestTimeout, UnsupportedMediaType
from app.core.json import decode_strict

MAX_BODY_BYTES = 1024 * 1024
"""Contract, section 1: bodies over 1 MiB are refused while still reading."""

BODY_S = 25.0
"""How long a body may take to arrive, however it drips."""


async def read_json(request: Request) -> tuple[object, bytes]:
    """The body as checked JSON, and its bytes. Raises `PayloadTooLarge`, `UnsupportedMediaType`, `InvalidRequest`."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaType(
            "Send the body as JSON with the header `Content-Type: application/json` (curl: --json)."
        )
    raw = await read_body(request)
    if not raw:
        raise InvalidRequest("The body is empty; send a JSON object.", code="invalid_json")
    return decode_strict(raw), raw


async def read_body(request: Request) -> bytes:
    """All of the body, refused as soon as it is known to be too large, sent chunked or not, or takes too long.

    Raises `PayloadTooLarge`, `RequestTimeout`, `ClientDisconnect`.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
        raise _too_large()
    try:
        async with asyncio.timeout(BODY_S):
            return await _collect(request)
    except TimeoutError:
        raise RequestTimeout(f"The body did not arrive within {BODY_S:g} seconds.") from None


async def _collect(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise _too_large()
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def _too_large() -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {MAX_BODY_BYTES} bytes.")
