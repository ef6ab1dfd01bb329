"""The loopback guard: which names a server without keys answers to."""

import re

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.problems import problem

_LOOPBACK = re.compile(rb"(?i)(localhost|127\.0\.0\.1|\[::1\]|testserver)(:\d{1,5})?")
"""A `Host` header of this machine. `testserver` is the in-process test client's; no name service knows it."""


class LoopbackHostMiddleware:
    """On a server without keys, only requests to a loopback name are answered.

    Otherwise a web page could reach it by a name of its own that resolves to 127.0.0.1 (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, *, enabled: bool) -> None:
        self._app = app
        self._enabled = enabled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._enabled and scope["type"] == "http":
            host = next((value for name, value in scope["headers"] if name == b"host"), b"")
            if host and not _LOOPBACK.fullmatch(host):
                detail = "This server has no keys, so it answers to loopback names only. Set RUNWIRE_API_KEYS."
                await problem(Request(scope), 403, "host_refused", detail)(scope, receive, send)
                return
        await self._app(scope, receive, send)
