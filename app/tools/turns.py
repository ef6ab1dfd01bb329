"""Turns: calls that must not run at once wait for each other, first come first served."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field

from app.core.clock import now_ms
from app.core.values import immutable
from app.tools.concurrency_key import ConcurrencyKey

Key = tuple[str, str, str]
"""What is shared: `(tenant, "key", text)` or `(tenant, "tool", name)`."""

LATE_S = 0.05
"""How much after its deadline a deferred call gives up its turn: the run is told of the deadline then, too."""

LONGEST_TIMER_S = 86_400.0


class _Line:
    __slots__ = ("inside", "waiting")

    def __init__(self) -> None:
        self.inside = 0
        self.waiting: OrderedDict[asyncio.Future[None], int] = OrderedDict()
        """In the order they came, each with how many may be inside when it enters."""


@dataclass(slots=True, eq=False)
class Turn:
    """The turn of one call: of one that is under way here, or of one that was deferred and answers later."""

    call_id: str
    keys: list[Key] = field(default_factory=list[Key])
    run_id: str | None = None
    """Set when it was deferred: its run, which may end before it answers."""
    over: bool = False
    """Its tool has called back already."""
    timer: asyncio.TimerHandle | None = None

    @property
    def kept(self) -> bool:
        return self.run_id is not None

    @property
    def shared(self) -> list[tuple[str, str]]:
        """Its keys without the tenant, as they are stored with a deferred call."""
        return [(kind, text) for _, kind, text in self.keys]


class Turns:
    """The turns of one process. A line is there only while somebody is in it."""

    def __init__(self) -> None:
        self._lines: dict[Key, _Line] = {}
        self._turns: dict[str, Turn] = {}
        """By tool call: who is inside."""
        self._deferred: dict[str, list[Turn]] = {}
        """By run: the kept turns among them."""
        self._nothing = Context()
        """What a timer keeps of where it was set: it would hold what its run was at, for as long as the call may take."""

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

    def begin(self, turn: Turn) -> None:
        """A call is under way in the turn that it took."""
        self._turns[turn.call_id] = turn

    def end(self, turn: Turn) -> None:
        """A call is no longer under way: it gives up its turn, unless it was deferred and keeps it."""
        if not turn.kept:
            self._give_up(turn)

    def keep(self, turn: Turn, run_id: str, until_ms: int) -> None:
        """A deferred call keeps its turn until `release`, `release_run` or its deadline (milliseconds since the epoch).

        No task waits for that, and it needs no driver: calls behind it may hold every place for a run that there is.
        """
        if turn.over:
            return
        turn.run_id = run_id
        self._deferred.setdefault(run_id, []).append(turn)
        self._until(turn, until_ms)

    def take_back(self, call_id: str, run_id: str, keys: Sequence[Key], until_ms: int) -> None:
        """Give a deferred call the turn that it had before the server was started again, whoever else is inside."""
        turn = Turn(call_id)
        for key in keys:
            self._lines.setdefault(key, _Line()).inside += 1
            turn.keys.append(key)
        self.begin(turn)
        self.keep(turn, run_id, until_ms)

    def release(self, call_id: str) -> None:
        """A deferred call has its result, or was cut. Of one that is still being sent it is noted: it will not keep its turn."""
        turn = self._turns.get(call_id)
        if turn is None:
            return
        if turn.kept:
            self._give_up(turn)
        else:
            turn.over = True

    def release_run(self, run_id: str) -> None:
        """A run is over: so are its deferred calls."""
        for turn in tuple(self._deferred.get(run_id, ())):
            self._give_up(turn)

    def _until(self, turn: Turn, until_ms: int) -> None:
        left = (until_ms - now_ms()) / 1000 + LATE_S
        if left <= 0:
            self._give_up(turn)
            return
        # A longer timer than the loop takes, or a clock that is set back, only makes it look once more.
        turn.timer = asyncio.get_running_loop().call_later(
            min(left, LONGEST_TIMER_S), self._until, turn, until_ms, context=self._nothing
        )

    def _give_up(self, turn: Turn) -> None:
        if self._turns.get(turn.call_id) is turn:
            del self._turns[turn.call_id]
        if turn.timer is not None:
            turn.timer.cancel()
        if turn.run_id is not None:
            others = self._deferred[turn.run_id]
            others.remove(turn)
            if not others:
                del self._deferred[turn.run_id]
        for key in reversed(turn.keys):
            self.leave(key)

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
    async def turn(self, tenant: str, arguments: Mapping[str, object], call_id: str) -> AsyncGenerator[Turn]:
        """`arguments`: as they will be sent. Who holds a key only waits for a tool's place, never the other way round."""
        wanted: list[tuple[Key, int]] = []
        if self.key is not None:
            wanted.append(((tenant, "key", self.key.of(arguments)), 1))
        if self.at_once is not None:
            wanted.append(((tenant, "tool", self.tool), self.at_once))
        turn = Turn(call_id)
        try:
            for key, at_once in wanted:
                await self.turns.take(key, at_once)
                turn.keys.append(key)
            self.turns.begin(turn)
            yield turn
        finally:
            self.turns.end(turn)
