"""Readiness: whether the database answers, asked once at a time and not waited for long."""

import asyncio
from collections.abc import Awaitable, Callable

from app.core.errors import Unavailable

PING_S = 2.0
"""A database that takes longer does not answer."""


class DatabasePing:
    """`ping` with an end to the waiting. While one hangs, all who ask wait for that one: probes pile nothing up."""

    def __init__(self, ping: Callable[[], Awaitable[None]], timeout_s: float = PING_S) -> None:
        self._ping = ping
        self._timeout_s = timeout_s
        self._asking: asyncio.Future[None] | None = None

    async def __call__(self) -> None:
        """Raises `Unavailable` (`storage_unavailable`, `schema_unknown`)."""
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ping())
            self._asking.add_done_callback(self._asked)
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(self._asking)
        except TimeoutError:
            raise Unavailable(
                f"The database did not answer within {self._timeout_s:g} s.", code="storage_unavailable"
            ) from None

    def _asked(self, asking: "asyncio.Future[None]") -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # perhaps nobody waits for it any more
