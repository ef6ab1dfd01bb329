"""The end of a request: what is counted and logged of each."""

from typing import Protocol

import structlog
from starlette.types import Scope

log = structlog.get_logger("runwire.http")

UNMATCHED = "unmatched"
"""The route of a request that no route took. A path is a caller's text, and no name for anything."""

SLOW_S = 10.0
"""An answer that begins later than this is told in the log."""

WAITS = ("/wait", "/cancel")
"""Ends of routes whose callers may ask to wait."""


class Answered(Protocol):
    """Counts a request (`app.observability`). It must not raise."""

    def __call__(self, route: str, method: str, status: int, seconds: float, /) -> None: ...


class RequestEnds:
    """Told of the end of every request."""

    def __init__(self, answered: Answered | None) -> None:
        self._answered = answered
        self._log = log.bind()  # made once: most requests are told at a level that is not written

    def __call__(self, scope: Scope, request_id: str, status: int, first_s: float, total_s: float) -> None:
        """`status` 0: it was left without an answer. `first_s`, `total_s`: seconds to the answer's begin and end."""
        route: str = getattr(scope.get("route"), "path", UNMATCHED)
        method: str = scope["method"]
        if self._answered is not None:
            self._answered(route, method, status, total_s)
        tell = self._log.debug
        if status >= 500 or (first_s >= SLOW_S and not route.endswith(WAITS)):
            tell = self._log.info
        tell(
            "http_request",
            method=method,
            route=route,
            status=status,
            duration_ms=round(total_s * 1000, 3),
            request_id=request_id,
        )
