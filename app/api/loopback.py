"""The loopback guard: which names a server without keys answers to."""

import re

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.problems import problem

_LOOPBACK = re.compile(rb"(?i)(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")
"""A `Host` header of this machine."""


class LoopbackHostMiddleware:
    """On a server without keys, only requests to a loopback name are answered.

    Otherwise a web page could reach it by a name of its own that resolves to 127.0.0.1 (DNS rebinding). A request
    without a name, or with two, is nobody's to trust either.
    """

    def __init__(self, app: ASGIApp, *, enabled: bool) -> None:
        self._app = app
        self._enabled = enabled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._enabled and scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or not _LOOPBACK.fullmatch(hosts[0]):
                detail = "This server has no keys, so it answers to loopback names only. Set RUNWIRE_API_KEYS."
                await problem(Request(scope), 403, "host_refused", detail)(scope, receive, send)
                return
        await self._app(scope, receive, send)
