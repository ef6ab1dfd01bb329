"""A group of writes: functions that waited at the same time and share one transaction (group commit).

A group starts as soon as the last one ended; there is no timer. Alone, a write commits at once; under load groups grow.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from app.storage.database import Tx, unavailable

T = TypeVar("T")

MAX_GROUP = 256
"""Most functions of one transaction; bounds how long one holds the thread it runs on (about 40 µs each)."""


@dataclass(slots=True)
class Write:
    """A function that waits, and what came of it."""

    fn: Callable[[Tx], Any]
    future: asyncio.Future[Any]
    result: object = None
    error: BaseException | None = None


class Writer(Tx, Protocol):
    """A connection's transaction as a group needs it."""

    wrote: bool
    """Set by every statement that changes rows."""

    def savepoint(self) -> None: ...
    def release(self) -> None: ...
    def rollback_to(self) -> None: ...
    def restart(self) -> None:
        """Roll back and begin again."""
        ...

    def alive(self) -> bool:
        """Whether the transaction is still open (a full disk ends it)."""
        ...

    def is_driver_error(self, error: BaseException) -> bool:
        """Whether the error came from the database; in Postgres the whole transaction is then void."""
        ...


def apply(writer: Writer, group: Sequence[Write]) -> None:
    """Run a group's functions in the open transaction of `writer`. Raises when the transaction itself is lost.

    First without savepoints, which cost as much as a short write. A function that raises before it changed anything is
    simply over. One that raises later makes the group start again, each function then inside its own savepoint.
    """
    for write in group:
        write.error = None
        if write.future.cancelled():
            continue
        writer.wrote = False
        try:
            write.result = write.fn(writer)
        except Exception as error:  # noqa: BLE001 - handed to the caller that waits for it
            if writer.wrote or writer.is_driver_error(error):
                writer.restart()
                apply_apart(writer, group)
                return
            write.error = error


def apply_apart(writer: Writer, group: Sequence[Write]) -> None:
    """Run a group's functions, each in a savepoint. Raises when the transaction itself is lost."""
    for write in group:
        write.error = None
        if write.future.cancelled():
            continue
        writer.savepoint()
        try:
            write.result = write.fn(writer)
            writer.release()
        except Exception as error:
            if not writer.alive():
                raise
            write.error = error
            writer.rollback_to()


Flushed = Callable[[int, float], None]
"""Told of each group: how many writes, and the seconds until they were durable, or failed. On the loop; never raises."""


def unwatched(_writes: int, _seconds: float, /) -> None:
    """A `Flushed` that nobody reads."""


class WriteQueue:
    """Writes that wait for their group. `start` is called on the loop with each group; it answers with `finished`."""

    def __init__(
        self,
        start: Callable[[list[Write]], None],
        is_outage: Callable[[BaseException], bool],
        flushed: Flushed = unwatched,
    ) -> None:
        self._start = start
        self._is_outage = is_outage
        self._flushed = flushed
        self._started = 0.0
        self._waiting: list[Write] = []
        self._busy = False
        self._open = True
        self._idle = asyncio.Event()
        self._idle.set()

    async def submit(self, loop: asyncio.AbstractEventLoop, fn: Callable[[Tx], T]) -> T:
        if not self._open:
            raise unavailable()
        write = Write(fn, loop.create_future())
        self._waiting.append(write)
        if not self._busy:
            self._busy = True
            self._idle.clear()
            # Not at once: tasks that are ready in this turn of the loop join the group.
            loop.call_soon(self._next)
        return await write.future

    def _next(self) -> None:
        group = self._waiting[:MAX_GROUP]
        del self._waiting[:MAX_GROUP]
        if group:
            self._started = time.perf_counter()
            self._start(group)
        else:
            self._busy = False
            self._idle.set()

    def finished(self, group: Sequence[Write], failure: BaseException | None) -> None:
        """Deliver a group's results; with `failure` none of it was written. On the loop."""
        self._flushed(len(group), time.perf_counter() - self._started)
        for write in group:
            if write.future.done():
                continue
            # A new exception for each caller: raising one object in several tasks would mix up their tracebacks.
            if failure is not None:
                write.future.set_exception(unavailable(failure))
            elif write.error is not None:
                write.future.set_exception(self._for_caller(write.error))
            else:
                write.future.set_result(write.result)
        self._next()

    def _for_caller(self, error: BaseException) -> BaseException:
        return unavailable(error) if self._is_outage(error) else error

    async def drain(self) -> None:
        """Take no more writes; wait for those taken."""
        self._open = False
        await self._idle.wait()
