"""The loopback guard: which names and which web pages a server without keys answers to."""

import re
from collections.abc import Collection

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.cors import ANY
from app.api.problems import problem

_LOOPBACK = re.compile(rb"(?i)(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")
"""A `Host` header of this machine."""


class LoopbackHostMiddleware:
    """On a server without keys, only requests to a loopback name are answered, and of web pages only those allowed.

    Otherwise a web page could reach it by a name of its own that resolves to 127.0.0.1 (DNS rebinding). A request
    without a name, or with two, is nobody's to trust either. A page need not even read the answer: a simple POST from
    anywhere would act, so a request that names a page (`Origin`) must name one of ours or one that the operator allows.
    """

    def __init__(self, app: ASGIApp, *, enabled: bool, origins: Collection[str] = ()) -> None:
        self._app = app
        self._enabled = enabled
        self._origins = {origin.encode() for origin in origins}
        self._any = ANY in origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._enabled and scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or not _LOOPBACK.fullmatch(hosts[0]):
                detail = "This server has no keys, so it answers to loopback names only. Set RUNWIRE_API_KEYS."
                await problem(Request(scope), 403, "host_refused", detail)(scope, receive, send)
                return
            pages = [value for name, value in scope["headers"] if name == b"origin"]
            if any(not self._may(page, hosts[0]) for page in pages):
                detail = "This server has no keys, so it refuses web pages of other origins. Set RUNWIRE_CORS_ORIGINS."
                await problem(Request(scope), 403, "origin_refused", detail)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _may(self, page: bytes, host: bytes) -> bool:
        return self._any or page in self._origins or page.partition(b"://")[2].lower() == host.lower()
