"""The hub: where followers of a run wait, and the newest part of its journal in memory.

Nothing here is a queue for a client. A follower pulls from its own cursor; the hub only says "the run has reached N".
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from app.runs.records import Batch

TAIL_BYTES = 64 * 1024
"""How much of a run's newest wire bytes stay in memory; older events are read from the journal."""


@dataclass(slots=True)
class Tail:
    """One run's newest durable events. `reached` is the highest sequence number that is durable."""

    reached: int
    batches: deque[Batch] = field(default_factory=deque[Batch])
    size: int = 0
    driven: bool = False
    """A driver of this process is at work, or the run waits in this process for one."""
    parked: bool = False
    """The run was let go until an answer comes to this process: nobody needs to look whether it goes on elsewhere."""
    followers: int = 0
    broken: bool = False
    """The run lost its driver without an end (storage failed): streams are aborted so that readers come back."""
    waiters: set[asyncio.Future[None]] = field(default_factory=set[asyncio.Future[None]])

    def covers(self, after: int) -> bool:
        """Whether everything beyond `after` is still in memory."""
        return bool(self.batches) and self.batches[0].first_seq <= after + 1

    def wake(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()


class Hub:
    """The tails of the runs that are driven or followed in this process."""

    def __init__(self) -> None:
        self._tails: dict[str, Tail] = {}
        self.draining = False

    def tail(self, run_id: str) -> Tail | None:
        return self._tails.get(run_id)

    def open(self, run_id: str, reached: int) -> Tail:
        """The run is driven here from now on (or queued here)."""
        tail = self._tails.get(run_id)
        if tail is None:
            tail = self._tails[run_id] = Tail(reached)
        tail.driven = True
        tail.parked = tail.broken = False
        return tail

    def publish(self, run_id: str, batch: Batch) -> None:
        """`batch` is durable: keep it in the tail, wake who waits."""
        tail = self._tails.get(run_id)
        if tail is None or not batch.n:
            return
        tail.batches.append(batch)
        tail.size += len(batch.wire)
        while tail.size > TAIL_BYTES and len(tail.batches) > 1:
            tail.size -= len(tail.batches.popleft().wire)
        tail.reached = batch.last_seq
        tail.wake()

    def close(self, run_id: str, *, broken: bool = False, parked: bool = False) -> None:
        """No driver of this process is at work on the run any more."""
        tail = self._tails.get(run_id)
        if tail is None:
            return
        tail.driven = False
        tail.broken, tail.parked = broken, parked
        tail.wake()
        self._drop_unused(run_id, tail)

    def join(self, run_id: str, reached: int) -> Tail:
        """A follower arrives. Pair with `leave`."""
        tail = self._tails.get(run_id)
        if tail is None:
            tail = self._tails[run_id] = Tail(reached)
        tail.followers += 1
        return tail

    def leave(self, run_id: str, tail: Tail) -> None:
        tail.followers -= 1
        self._drop_unused(run_id, tail)

    async def wait(self, tail: Tail, beyond: int, timeout_s: float) -> None:
        """Return when the run may have more than `beyond`, its driver left, the server drains, or the time is over."""
        if tail.reached > beyond or self.draining:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        tail.waiters.add(waiter)
        timer = loop.call_later(timeout_s, _resolve, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            tail.waiters.discard(waiter)

    def drain(self) -> None:
        """The server is going down: wake every follower, so that it aborts its stream and the client resumes elsewhere."""
        self.draining = True
        for tail in self._tails.values():
            tail.wake()

    def _drop_unused(self, run_id: str, tail: Tail) -> None:
        if not tail.driven and tail.followers == 0 and self._tails.get(run_id) is tail:
            del self._tails[run_id]


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
