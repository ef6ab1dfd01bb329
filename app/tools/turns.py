"""Turns: calls that must not run at once wait for each other, first come first served."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from app.core.values import immutable
from app.tools.concurrency_key import ConcurrencyKey

Key = tuple[str, str, str]
"""What is shared: `(tenant, "key", text)` or `(tenant, "tool", name)`."""


class _Line:
    __slots__ = ("inside", "waiting")

    def __init__(self) -> None:
        self.inside = 0
        self.waiting: OrderedDict[asyncio.Future[None], int] = OrderedDict()
        """In the order they came, each with how many may be inside when it enters."""


class Turns:
    """The turns of one process. A line is there only while somebody is in it."""

    def __init__(self) -> None:
        self._lines: dict[Key, _Line] = {}

    def __len__(self) -> int:
        return len(self._lines)

    async def take(self, key: Key, at_once: int) -> None:
        """Wait until fewer than `at_once` are inside and nobody who came earlier waits. `leave` must follow.

        The place in the line is taken before anything is awaited. Cancelled while waiting: the place is given up.
        """
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        if not line.waiting and line.inside < at_once:
            line.inside += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting[turn] = at_once
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                line.waiting.pop(turn, None)
            else:  # its turn had come just then
                line.inside -= 1
            self._admit(key, line)
            raise

    def leave(self, key: Key) -> None:
        line = self._lines[key]
        line.inside -= 1
        self._admit(key, line)

    def _admit(self, key: Key, line: _Line) -> None:
        while line.waiting:
            turn, at_once = next(iter(line.waiting.items()))
            if line.inside >= at_once:
                break
            del line.waiting[turn]
            if not turn.done():  # else it was cancelled, and gives up its place itself
                line.inside += 1
                turn.set_result(None)
        if not line.inside and not line.waiting and self._lines.get(key) is line:
            del self._lines[key]


@immutable
class CallLine:
    """Where the calls of one tool wait: by its `concurrency_key`, then by its `max_concurrency`."""

    turns: Turns
    tool: str
    key: ConcurrencyKey | None
    at_once: int | None

    @asynccontextmanager
    async def turn(self, tenant: str, arguments: Mapping[str, object]) -> AsyncGenerator[None]:
        """`arguments`: as they will be sent. Who holds a key only waits for a tool's place, never the other way round."""
        wanted: list[tuple[Key, int]] = []
        if self.key is not None:
            wanted.append(((tenant, "key", self.key.of(arguments)), 1))
        if self.at_once is not None:
            wanted.append(((tenant, "tool", self.tool), self.at_once))
        held: list[Key] = []
        try:
            for key, at_once in wanted:
                await self.turns.take(key, at_once)
                held.append(key)
            yield
        finally:
            for key in reversed(held):
                self.turns.leave(key)
