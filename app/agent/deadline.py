"""The moment at which a run's time is used up."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

ChunkT = TypeVar("ChunkT")


class OutOfTime(Exception):
    """The deadline came first. Never leaves the loop."""


class Deadline:
    """A loop time, or never. Once it has cut anything it stays passed.

    Asking the clock again is not enough: timers of an event loop may fire a millisecond early (uvloop counts whole
    ones), and a run that was cut would then go on to one more model call.
    """

    __slots__ = ("_at", "_cut")

    def __init__(self, at: float | None) -> None:
        self._at = at
        self._cut = False

    @property
    def never(self) -> bool:
        return self._at is None

    @property
    def passed(self) -> bool:
        return self._cut or (self._at is not None and asyncio.get_running_loop().time() >= self._at)

    @asynccontextmanager
    async def limit(self) -> AsyncGenerator[None]:
        """Stop the body at the deadline.

        Raises:
            OutOfTime: only for this deadline; the body's own `TimeoutError` passes through.
        """
        scope = asyncio.timeout_at(self._at)
        try:
            async with scope:
                yield
        except TimeoutError:
            if not scope.expired():
                raise
            self._cut = True
            raise OutOfTime from None


def within(chunks: AsyncGenerator[ChunkT], deadline: Deadline) -> AsyncGenerator[ChunkT]:
    """`chunks`, each awaited no longer than the deadline, which is then `OutOfTime`."""
    return chunks if deadline.never else until(chunks, deadline)


async def until(chunks: AsyncGenerator[ChunkT], deadline: Deadline) -> AsyncGenerator[ChunkT]:
    async with aclosing(chunks):
        while True:
            async with deadline.limit():
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk
