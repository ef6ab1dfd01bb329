"""The embedded engine: every run is driven by this process; on start it takes up what a crash left."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from contextvars import Context
from typing import Literal

import structlog
from structlog.contextvars import bind_contextvars, clear_contextvars

from app.core.clock import now_ms
from app.core.errors import Fenced, JournalBroken, RunwireError, TooManyRuns, Unavailable
from app.core.events import EventType
from app.core.ids import IdFactory
from app.core.messages import Message
from app.runs.driver import Driver
from app.runs.hub import Hub
from app.runs.loop_parts import LoopAssembler
from app.runs.observer import NOBODY, Observer
from app.runs.ports import RunStore
from app.runs.records import RunRecord
from app.runs.waiting import WaitStore
from app.tools.turns import Turns

log = structlog.get_logger("runwire.dispatch")

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 30.0
"""A run whose journal could not be written is claimed again after a pause that doubles from the first to the last."""

LATE_S = 0.05
"""How much after its time a wait is looked at: it must be over by the database's clock, too."""

LONGEST_TIMER_S = 86_400.0

CANCEL_KEPT_S = 60.0
"""How long a cancel is remembered for a run that has no driver at the moment."""


class LocalDispatcher:
    def __init__(
        self,
        *,
        store: RunStore,
        waits: WaitStore,
        hub: Hub,
        assembler: LoopAssembler,
        new_id: IdFactory,
        max_running: int,
        max_queued: int,
        observer: Observer = NOBODY,
        turns: Turns | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`turns`: those of the runs' tools. `clock`: seconds, monotonic; for the age of what is queued."""
        self._turns = Turns() if turns is None else turns
        self._store = store
        self._waits = waits
        self._hub = hub
        self._assembler = assembler
        self._new_id = new_id
        self._observer = observer
        self._max_running = max_running
        self._max_queued = max_queued
        self._owner = new_id()
        self._clock = clock
        self._queue: OrderedDict[str, float] = OrderedDict()
        """Runs that wait for a place, first come first, and since when."""
        self._rejections: Counter[str] = Counter()
        self._drivers: dict[str, tuple[Driver, asyncio.Task[None]]] = {}
        self._claiming: dict[str, asyncio.Task[None]] = {}
        self._claim_again: set[str] = set()
        """Runs of which something was heard while their claim was under way: it may have seen them as they were before."""
        self._cancelled: set[str] = set()
        self._retries: dict[str, int] = {}
        self._pauses: dict[str, asyncio.TimerHandle] = {}
        """Runs that wait for their next claim after a failed write."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """Parked runs, and when what they wait for is over."""
        self._nothing = Context()
        """What the timers of parked runs keep of where they were set: each would hold what its driver was at, for a week."""
        self._waking: set[asyncio.Task[None]] = set()
        self._given_up: set[str] = set()
        """Runs whose journal could not take what they had to tell: they end at their next claim."""
        self._entering = 0
        """Runs being accepted that have a place among the running ones."""
        self._queueing = 0
        """Runs being accepted that have a place in the queue."""
        self._stopping = False

    @property
    def owner(self) -> str:
        return self._owner

    @property
    def running(self) -> int:
        return len(self._drivers) + len(self._claiming)

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def oldest_queued_s(self) -> float:
        """How long the first of the queue has waited here; 0 when it is empty. A restart starts the wait again."""
        since = next(iter(self._queue.values()), None)
        return 0.0 if since is None else max(0.0, self._clock() - since)

    @property
    def rejections(self) -> Mapping[str, int]:
        """Runs that were not admitted so far, by the code of the refusal."""
        return self._rejections

    @contextmanager
    def admit(self) -> Generator[Literal["now", "queue"]]:
        if self._stopping or self._hub.draining:
            self._rejections["shutting_down"] += 1
            raise Unavailable("The server is shutting down; send the request again.", code="shutting_down")
        if self.running + self._entering < self._max_running and not self._queue:
            self._entering += 1
            try:
                yield "now"
            finally:
                self._entering -= 1
                self._pump()
            return
        if len(self._queue) + self._queueing >= self._max_queued:
            self._rejections[TooManyRuns.code] += 1
            raise TooManyRuns("Too many runs are waiting; try again later.", retry_after_s=2)
        self._queueing += 1
        try:
            yield "queue"
        finally:
            self._queueing -= 1

    async def start(self) -> None:
        """Take up every run that is not at its end; deferred calls have their turns back before anything is sent."""
        await self._store.displace_again()
        for held in await self._waits.held_turns():
            keys = [(held.tenant, *shared) for shared in held.shared]
            self._turns.take_back(held.tool_call_id, held.run_id, keys, held.until_ms)
        for run_id, _ in await self._store.unfinished():
            self.submit(run_id)
        for run_id, until_ms in await self._waits.parked():
            self._wake_at(run_id, until_ms)
            self.wake(run_id)  # its answer may have been kept just before the server stopped

    def start_now(self, run: RunRecord, history: list[Message] | None) -> None:
        self._start(run, lambda driver: driver.begin(history))

    def _start(self, run: RunRecord, drive: Callable[[Driver], Coroutine[object, object, None]]) -> None:
        self._hub.open(run.id, run.last_seq)
        driver = Driver(
            run,
            store=self._store,
            hub=self._hub,
            assembler=self._assembler,
            new_id=self._new_id,
            observer=self._observer,
        )
        task = asyncio.create_task(self._drive(run, driver, drive(driver)))
        self._drivers[run.id] = driver, task
        if run.id in self._cancelled:
            driver.cancel()

    def submit(self, run_id: str) -> None:
        self._hub.open(run_id, 0)
        self._queue.setdefault(run_id, self._clock())
        self._pump()

    def cancel(self, run_id: str) -> None:
        entry = self._drivers.get(run_id)
        if entry is not None:
            entry[0].cancel()
            return
        self._cancelled.add(run_id)
        # For a driver that is about to start; a run that has just ended has none.
        asyncio.get_running_loop().call_later(CANCEL_KEPT_S, self._cancelled.discard, run_id)
        pause = self._pauses.pop(run_id, None)
        if pause is not None:
            pause.cancel()
            self._claim_soon(run_id)
        elif self._queue.pop(run_id, None) is not None or self._forget_timer(run_id):
            self._claim_soon(run_id)

    async def stop(self, grace_s: float) -> None:
        """Stop driving; the runs stay as they are journaled and are taken up at the next start.

        Tool calls under way may end within `grace_s` seconds, so that a restart leaves none of them unknown.
        """
        self._stopping = True
        self._queue.clear()
        for timer in self._timers.values():
            timer.cancel()
        for driver, _ in self._drivers.values():
            driver.leave()
        tasks = [*self._claiming.values(), *self._waking, *(task for _, task in self._drivers.values())]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _pump(self) -> None:
        while self._queue and self.running + self._entering < self._max_running and not self._stopping:
            self._claim_soon(self._queue.popitem(last=False)[0])

    def _claim_soon(self, run_id: str) -> None:
        """One claim of a run at a time: a second would take it from the driver that the first one starts."""
        if run_id in self._claiming:
            self._claim_again.add(run_id)
            return
        task = self._claiming[run_id] = asyncio.create_task(self._claim(run_id))
        task.add_done_callback(lambda _: self._claimed(run_id))

    def _claimed(self, run_id: str) -> None:
        del self._claiming[run_id]
        again = run_id in self._claim_again
        self._claim_again.discard(run_id)
        if again and run_id not in self._drivers and not self._stopping:
            self._claim_soon(run_id)

    async def _claim(self, run_id: str) -> None:
        clear_contextvars()  # those of whatever made room for it
        try:
            run = await self._store.claim(run_id, self._owner)
        except RunwireError as error:
            self._retry_later(run_id, error)
            return
        if run is None or self._stopping:
            self._hub.close(run_id, broken=self._stopping)
            return
        given_up = run_id in self._given_up
        self._start(run, lambda driver: driver.give_up() if given_up else driver.take_up())

    async def _drive(self, run: RunRecord, driver: Driver, driving: Coroutine[object, object, None]) -> None:
        run_id, broken = run.id, True
        bind_contextvars(run_id=run_id, thread_id=run.thread_id)
        try:
            await driving
            broken = False
            self._retries.pop(run_id, None)
            self._given_up.discard(run_id)
        except Fenced:
            log.warning("run_taken_over", run_id=run_id)
        except JournalBroken:
            if run_id not in self._given_up:
                broken = False  # its end comes at once
                self._given_up.add(run_id)
                self._claim_soon(run_id)
        except RunwireError as error:
            self._retry_later(run_id, error)
        except asyncio.CancelledError:
            broken = self._stopping
            if not self._stopping:
                raise
        finally:
            driving.close()  # stopped before its first step
            if run_id in self._drivers and self._drivers[run_id][0] is driver:
                del self._drivers[run_id]
            self._cancelled.discard(run_id)
            parked = driver.parked_until is not None and not broken
            if driver.has_ended:
                self._turns.release_run(run_id)
            self._hub.close(run_id, broken=broken, parked=parked)
            if driver.next_run is not None:
                self.submit(driver.next_run)
            if driver.parked_until is not None and parked:
                self._wake_at(run_id, driver.parked_until)
                self.wake(run_id)  # its answer may have come before it was parked
            self._pump()

    def wake(self, run_id: str) -> None:
        """An answer was kept for a run, or what it waits for is over: go on where that is enough."""
        if not self._stopping and run_id not in self._drivers:
            task = asyncio.create_task(self._look(run_id))
            self._waking.add(task)
            task.add_done_callback(self._waking.discard)

    def tell(self, run_id: str, event: EventType, data: Mapping[str, object]) -> bool:
        entry = self._drivers.get(run_id)
        return entry is not None and entry[0].tell(event, data)

    async def _look(self, run_id: str) -> None:
        clear_contextvars()
        try:
            woken = await self._waits.wake(run_id)
        except RunwireError as error:
            log.error("run_not_woken", run_id=run_id, code=error.code)
            self._wake_in(run_id, LAST_RETRY_S)
            return
        if run_id in self._drivers or run_id in self._claiming:
            return
        if woken.ready:
            self._forget_timer(run_id)
            self.submit(run_id)
        elif woken.until_ms is not None:
            self._wake_at(run_id, woken.until_ms)

    def _wake_at(self, run_id: str, until_ms: int) -> None:
        self._wake_in(run_id, max(0.0, (until_ms - now_ms()) / 1000) + LATE_S)

    def _wake_in(self, run_id: str, seconds: float) -> None:
        self._forget_timer(run_id)
        # A longer timer than the loop takes, or a clock that is set back, only makes it look once more.
        self._timers[run_id] = asyncio.get_running_loop().call_later(
            min(seconds, LONGEST_TIMER_S), self._due, run_id, context=self._nothing
        )

    def _due(self, run_id: str) -> None:
        self._timers.pop(run_id, None)
        self.wake(run_id)

    def _forget_timer(self, run_id: str) -> bool:
        timer = self._timers.pop(run_id, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def _retry_later(self, run_id: str, error: RunwireError) -> None:
        tries = self._retries[run_id] = self._retries.get(run_id, 0) + 1
        pause = min(LAST_RETRY_S, FIRST_RETRY_S * 2 ** (tries - 1))
        log.error("run_not_written", run_id=run_id, code=error.code, error=error.message, retry_s=pause)
        if not self._stopping:
            self._pauses[run_id] = asyncio.get_running_loop().call_later(pause, self._resubmit, run_id)

    def _resubmit(self, run_id: str) -> None:
        self._pauses.pop(run_id, None)
        if not self._stopping and run_id not in self._drivers:
            self.submit(run_id)
