"""Which web pages may call: the browser origins of `RUNWIRE_CORS_ORIGINS` (the Fetch standard's CORS protocol)."""

import re
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

ANY = "*"

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

REQUEST_HEADERS = (
    "Authorization", "X-API-Key", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Request-ID", "traceparent",
)  # fmt: skip

RESPONSE_HEADERS = ("Location", "Content-Location", "X-Request-ID", "Idempotency-Replayed", "Retry-After")

PREFLIGHT_S = 7200
"""How long a browser may keep a preflight's answer; Chromium takes no more."""

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")


def parse_origins(text: str) -> frozenset[str]:
    """The origins of a comma-separated list, as browsers write them. Raises `ValueError` that says what to write."""
    return frozenset(_origin(entry.strip()) for entry in text.split(",") if entry.strip())


def _origin(entry: str) -> str:
    if entry == ANY:
        return ANY
    if "*" in entry:
        raise ValueError(f"{_shown(entry)} has a wildcard; write each origin in full, or * alone for every page")
    try:
        if not entry.isprintable():
            raise ValueError  # urlsplit would leave line ends and tabs out
        parts = urlsplit(entry)
        port = parts.port
    except ValueError:
        raise ValueError(
            f"{_shown(entry)} is no origin; write scheme://host[:port], e.g. https://app.example"
        ) from None
    host = parts.netloc.lower().rpartition("@")[2]
    name = host.removesuffix(f":{port}") if port is not None else host
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(name):
        raise ValueError(f"{_shown(entry)} is no origin; write scheme://host[:port], e.g. https://app.example")
    if "@" in parts.netloc or parts.path or parts.query or parts.fragment or entry.endswith(("?", "#")):
        raise ValueError(f"{_shown(entry)} has more than an origin; write only {parts.scheme}://{host}")
    default = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{name}" if port in (None, default) else f"{parts.scheme}://{name}:{port}"


def _shown(entry: str) -> str:
    """An entry as a message may repeat it: without what could be a password."""
    return repr(re.sub(r"//[^/@]*@", "//…@", entry)[:200])


def cors(app: ASGIApp, origins: frozenset[str]) -> CORSMiddleware:
    """`app` for the pages of these origins. Cookies are never allowed: a key goes in a header."""
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=METHODS,
        allow_headers=REQUEST_HEADERS,
        expose_headers=RESPONSE_HEADERS,
        max_age=PREFLIGHT_S,
    )
