"""The journal of one run under one claim: numbers and encodes its events, appends them, then shows them.

What arrives while an append is under way goes into the next one ("flush as soon as the last flush ended"), so one event
at a time is committed at once and a burst becomes one row.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

import structlog

from app.core.errors import (
    ApprovalVoid,
    Fenced,
    JournalBroken,
    RunCancelled,
    RunwireError,
    ToolDisabled,
    ToolWithdrawn,
    Unavailable,
)
from app.core.events import EventType, wire
from app.runs.hub import Hub
from app.runs.ports import RunStore
from app.runs.records import (
    Append,
    Batch,
    CallRecord,
    CallResult,
    CallWait,
    Checkpoint,
    Dispatch,
    DispatchVerdict,
    Interrupt,
    Progress,
    RunRecord,
    Transition,
)
from app.runs.status import RunStatus, may_follow
from app.tools.port import Switch

log = structlog.get_logger("runwire.runs")

MAX_BATCH_BYTES = 64 * 1024
"""A row of the journal is sent to a client as one piece; a send timeout is per piece, so pieces stay small."""


class _Pending:
    """What the next append will hold."""

    __slots__ = (
        "calls", "checkpoint", "dispatches", "index", "interrupts", "parts", "private", "progress", "results", "size", "transition",
        "unasked", "waiters", "waits", "written",
    )  # fmt: skip

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.index: list[tuple[str, int]] = []
        self.size = 0
        self.private: list[Mapping[str, object]] = []
        self.progress: Progress | None = None
        self.transition: Transition | None = None
        self.checkpoint: Checkpoint | None = None
        self.calls: list[CallRecord] = []
        self.results: list[CallResult] = []
        self.waits: list[CallWait] = []
        self.interrupts: list[Interrupt] = []
        self.dispatches: list[tuple[Dispatch, asyncio.Future[DispatchVerdict]]] = []
        self.written = False
        """An append was tried with it; it is durable unless the journal has failed."""
        self.unasked = False
        """It was refused, for nobody is asked what the run was to be let go for."""
        self.waiters: list[asyncio.Future[None]] = []

    @property
    def empty(self) -> bool:
        return not (
            self.parts
            or self.dispatches
            or self.transition
            or self.checkpoint
            or self.calls
            or self.results
            or self.waits
            or self.progress
        )


class RunJournal:
    """The one writer of a run. Methods that add are immediate; `commit` returns when all of it is durable and shown.

    After a failed append every later call raises the same error: nothing may be written past a hole.
    """

    def __init__(self, store: RunStore, hub: Hub, run: RunRecord) -> None:
        self._store = store
        self._hub = hub
        self._run_id = run.id
        self._thread_id = run.thread_id
        self._epoch = run.epoch
        self._status: RunStatus = run.status
        self._seq = run.last_seq
        self._batch = run.batches
        self._head = run.checkpoint_id
        self._next = _Pending()
        self._writing: _Pending | None = None
        """What the last append held, under way or done."""
        self._flushing: asyncio.Task[None] | None = None
        self._failure: RunwireError | None = None
        self.next_run: str | None = None
        """Set by the run's end: the run that had waited for its thread."""

    @property
    def last_seq(self) -> int:
        """The number of the last event added (not necessarily durable yet)."""
        return self._seq

    @property
    def failed(self) -> bool:
        """An append failed: nothing more can be written under this claim."""
        return self._failure is not None

    @property
    def head(self) -> str | None:
        """The run's newest checkpoint."""
        return self._head

    def emit(self, event: EventType, data: Mapping[str, object]) -> None:
        """Add an event; it gets the next sequence number."""
        self._seq += 1
        encoded = wire(self._seq, event, data)
        pending = self._next
        pending.index.append((event, pending.size))
        pending.parts.append(encoded)
        pending.size += len(encoded)

    def emit_soon(self, event: EventType, data: Mapping[str, object]) -> bool:
        """`emit`, then `start`."""
        self.emit(event, data)
        return self.start()

    def start(self) -> bool:
        """Start writing what was added, without waiting. True when so much waits that the caller should `commit`.

        The append is made when the caller next gives way: what it adds until then goes into the same one.
        """
        if self._failure is not None:
            raise self._failure
        if self._flushing is None and not self._next.empty:
            self._flushing = asyncio.create_task(self._flush())
        return self._next.size >= MAX_BATCH_BYTES // 2

    def add_call(self, call: CallRecord) -> None:
        self._next.calls.append(call)

    def add_result(self, result: CallResult) -> None:
        self._next.results.append(result)

    def add_wait(self, wait: CallWait, interrupt: Interrupt | None) -> None:
        self._next.waits.append(wait)
        if interrupt is not None:
            self._next.interrupts.append(interrupt)

    def add_checkpoint(
        self, checkpoint_id: str, messages: list[dict[str, object]], now: int, fields: Sequence[object] = ()
    ) -> None:
        """Append to the thread's messages, and update other fields: `[name, reducer, value]` each.

        Two in one transaction become one checkpoint.
        """
        waiting = self._next.checkpoint
        if waiting is None:
            delta: dict[str, list[object]] = {"messages": []}
            waiting = Checkpoint(checkpoint_id, self._thread_id, self._head, self._run_id, delta, now)
            self._next.checkpoint = waiting
            self._head = checkpoint_id
        held = cast("dict[str, list[object]]", waiting.delta)
        held["messages"] += messages
        if fields:
            held.setdefault("fields", []).extend(fields)

    def set_progress(self, progress: Progress) -> None:
        self._next.progress = progress

    def set_transition(self, transition: Transition) -> None:
        """Change the run's status. Raises `ValueError` for a change that the one table does not have."""
        if not may_follow(self._status, transition.status):
            raise ValueError(f"a run that is {self._status} cannot become {transition.status}")
        self._status = transition.status
        self._next.transition = transition

    async def park(self, event: Mapping[str, object], transition: Transition, progress: Progress) -> bool:
        """Let the run go until people answer, told by a `run` event, in an append of its own.

        False where nobody is asked any more: then nothing was written, and the run goes on. Nothing may be added
        before this returns.
        """
        await self.commit()
        before, parking = self._status, self._next
        self.emit("run", event)
        self.set_transition(transition)
        self.set_progress(progress)
        await self.commit()
        if parking.unasked:
            self._status = before
        return not parking.unasked

    async def dispatch(self, dispatch: Dispatch) -> None:
        """Record an attempt before it is sent.

        Raises `RunCancelled`, `ToolWithdrawn`, `ToolDisabled`, `ApprovalVoid`, `Fenced`: then it must not be sent.
        """
        verdict: asyncio.Future[DispatchVerdict] = asyncio.get_running_loop().create_future()
        self._next.dispatches.append((dispatch, verdict))
        await self.commit()
        match verdict.result():
            case "sent":
                return
            case "cancelled":
                raise RunCancelled("The run was cancelled.")
            case "withdrawn":
                raise ToolWithdrawn(f"The tool `{dispatch.tool}` was deleted.")
            case "void":
                raise ApprovalVoid(f"The tool `{dispatch.tool}` was replaced.")
            case Switch() as switch:
                raise ToolDisabled(switch.said())

    async def commit(self) -> None:
        """Wait until all that was added before this call is durable. Raises `Fenced`, `Unavailable`."""
        self.start()
        last = self._writing if self._next.empty else self._next
        if last is not None and not last.written:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            last.waiters.append(waiter)
            await waiter
        if self._failure is not None:
            raise self._failure

    async def _flush(self) -> None:
        """Append what is pending, show it, and go on with what came meanwhile.

        A task of its own, so that cancelling a driver or a tool cannot part an append from what is shown of it. It never
        raises a failure of the storage: that is kept for whoever commits.
        """
        try:
            await asyncio.sleep(0)  # tools that start together join the answer that called them
            while self._failure is None and not self._next.empty:
                self._writing, self._next = self._next, _Pending()
                await self._append(self._writing)
        finally:
            self._flushing = None

    async def _append(self, pending: _Pending) -> None:
        batch = Batch(
            self._seq - len(pending.index) + 1, len(pending.index), b"".join(pending.parts), tuple(pending.index)
        )
        self._batch += 1
        try:
            result = await self._store.append(
                Append(
                    self._run_id,
                    self._thread_id,
                    self._epoch,
                    self._batch,
                    batch,
                    tuple(pending.private),
                    pending.progress,
                    pending.transition,
                    pending.checkpoint,
                    tuple(pending.calls),
                    tuple(pending.results),
                    tuple(dispatch for dispatch, _ in pending.dispatches),
                    tuple(pending.waits),
                    tuple(pending.interrupts),
                )
            )
            if result.fenced:
                raise Fenced("Another process has taken over this run.")
            if result.unasked:
                if self._next.parts:
                    raise JournalBroken("Events were added to a run while it was let go.")
                pending.unasked = True
                self._seq, self._batch = batch.first_seq - 1, self._batch - 1
                return
            for (_, verdict), said in zip(pending.dispatches, result.dispatches, strict=True):
                if not verdict.done():
                    verdict.set_result(said)
            self.next_run = result.next_run
            self._hub.publish(self._run_id, batch)
        except RunwireError as error:
            self._failure = error
        except Exception:
            # Not the storage's word (that is a RunwireError) but a value that it cannot take: nothing of it was written.
            log.exception("journal_append_broke", run_id=self._run_id)
            self._failure = JournalBroken("The run's journal could not be written.")
        except BaseException:
            # Whether it was written is not known. Who waits must not take it for durable, and nothing may follow it.
            self._failure = Unavailable("The run's journal could not be written.")
            raise
        finally:
            pending.written = True
            for waiter in pending.waiters:
                if not waiter.done():
                    waiter.set_result(None)
