"""The driver: runs one claimed run's loop and journals what it tells, to exactly one end."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import AsyncExitStack, aclosing

import structlog

from app.agent.executor import close_round, execute
from app.agent.ports import ToolRunner
from app.agent.records import (
    Answered,
    Failed,
    Finished,
    Output,
    Parked,
    Record,
    RoundClosed,
    StateChanged,
)
from app.agent.repair import repaired
from app.agent.state import LoopState
from app.agent.state_schema import Values
from app.core import trace
from app.core.clock import now_ms
from app.core.errors import Fenced, ModelError, PluginFailed, RunCancelled, RunwireError
from app.core.events import EventType
from app.core.ids import IdFactory
from app.core.messages import Message
from app.core.usage import Usage
from app.runs.event_data import (
    output_event,
    run_event,
)
from app.runs.fold import fold, take_answers
from app.runs.hub import Hub
from app.runs.journal import RunJournal
from app.runs.live_view import LiveView
from app.runs.loop_parts import LoopAssembler, LoopParts
from app.runs.lost_parts import LOST_PLANNER, LOST_TOOLS
from app.runs.observer import NOBODY, Observer
from app.runs.ports import RunStore
from app.runs.record_writer import RecordWriter
from app.runs.records import RunRecord, Transition
from app.tools.dispatch import Dispatch

TIME_KEPT_S = 1.0
"""How often the active time of a run with a time limit is journaled: at most so much is forgotten by a crash."""

log = structlog.get_logger("runwire.runs")


class Driver:
    """Drives one run under one claim. `cancel` may come at any time, from another task."""

    def __init__(
        self,
        run: RunRecord,
        *,
        store: RunStore,
        hub: Hub,
        assembler: LoopAssembler,
        new_id: IdFactory,
        observer: Observer = NOBODY,
    ) -> None:
        self._run = run
        self._observer = observer.driving(run)
        self._store = store
        self._assembler = assembler
        self._new_id = new_id
        self._journal = RunJournal(store, hub, run)
        self._state: LoopState | None = None
        self._parts: LoopParts | None = None
        self._tools: ToolRunner = LOST_TOOLS
        """The run's tools as the observer wrapped them; a stand-in where they could not be built."""
        self._task: asyncio.Task[None] | None = None
        self._cancelled = run.cancel_requested
        self._leaving = False
        self._writer = RecordWriter(run, self._journal, new_id, lambda: self._state)
        self._parking = False
        self._paced = False
        """A tool of the open round was dispatched, so the round waited for the journal."""

    @property
    def parked_until(self) -> int | None:
        """Set when the run was let go until an answer comes: the time (milliseconds) when waiting is over at the latest."""
        return self._writer.parked_until

    @property
    def has_ended(self) -> bool:
        """Whether the run came to its end, as far as this driver knows."""
        return self._writer.end is not None and not self._journal.failed

    @property
    def next_run(self) -> str | None:
        """Set by the run's end: the run that had waited for its thread, and can be submitted now."""
        return self._journal.next_run

    def cancel(self) -> None:
        """A cancel was recorded for this run: stop what it waits for. The end is journaled as `cancelled`."""
        if self._cancelled:
            return
        self._cancelled = True
        if self._task is not None and self._writer.end is None and not self._parking:
            self._task.cancel()  # before that, `_loop` looks at the flag once the state is known

    def leave(self) -> None:
        """The server goes down: stop at the next point where nothing is under way that cannot simply be asked again.

        A model call is; tool calls are let to their end, and their results are journaled.
        """
        self._leaving = True
        if self._task is not None and self._writer.end is None and (self._state is None or not self._state.open_calls):
            self._task.cancel()

    def tell(self, event: EventType, data: Mapping[str, object]) -> bool:
        """Add an event from outside the loop; false when the run is ending or being let go."""
        if (
            self._task is None
            or self._writer.end is not None
            or self._writer.parked_until is not None
            or self._journal.failed
        ):
            return False
        self._journal.emit(event, data)
        self._journal.start()
        return True

    async def begin(self, history: list[Message] | None) -> None:
        """Run to the end from the start; the `run` event is journaled. `history`: the conversation, `None` reads it."""
        await self._observed(self._drive(self._begin(history)))

    async def take_up(self) -> None:
        """Run to the end from where the journal stands: a run that was queued, or one that lost its driver."""
        await self._observed(self._drive(self._take_up()))

    async def give_up(self) -> None:
        """End a run whose journal could not take what it had to tell, as `internal_error`."""
        await self._observed(self._give_up())

    async def _give_up(self) -> None:
        self._state = await self._take_up()
        await self._end_failed("internal_error", "The server failed; the request id finds it in the log.")

    async def _observed(self, driving: Coroutine[object, object, None]) -> None:
        """Drive, and tell the observer how that ended."""
        end = None
        try:
            await driving
            end = self._writer.end
        finally:
            if end is None:
                self._observer.left()
            else:
                self._observer.ended(end)
                self._tell(end)

    def _tell(self, end: Transition) -> None:
        """One line for each run; at `debug`, since writing it costs a tenth of a short run."""
        usage = Usage() if self._state is None else self._state.usage
        log.debug(
            "run_ended",
            run_id=self._run.id,
            status=end.status,
            stop_reason=end.stop_reason,
            duration_ms=None if end.finished_at is None else end.finished_at - self._run.created_at,
            iterations=0 if self._state is None else self._state.iteration,
            tool_calls=usage.tool_calls,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd,
        )

    async def _drive(self, preparing: Coroutine[object, object, LoopState]) -> None:
        """Run to the end from the state that `preparing` gives.

        Raises `Fenced` and `Unavailable` (the journal cannot be written: someone must claim the run again), and
        `CancelledError` when stopped otherwise than by `cancel` (shutdown): the run then stays as it is journaled.
        """
        self._writer.start_clock()
        try:
            try:
                await self._loop(preparing)
            except RunCancelled:
                await self._end_cancelled()
            except asyncio.CancelledError:
                if not self._cancelled or self._task is None:
                    raise
                self._task.uncancel()
                await self._end_cancelled()
        except RunwireError as error:
            if self._journal.failed or isinstance(error, Fenced) or error.code == "storage_unavailable":
                raise
            retryable = isinstance(error, ModelError) and error.retryable
            request_id = error.request_id if isinstance(error, ModelError | PluginFailed) else ""
            await self._end_failed(error.code, error.message, request_id, retryable=retryable)
        except Exception:
            request_id = self._new_id()
            log.exception("run_failed", run_id=self._run.id, request_id=request_id)
            await self._end_failed(
                "internal_error", "The server failed; the request id finds it in the log.", request_id
            )

    async def _begin(self, history: list[Message] | None) -> LoopState:
        run = self._run
        values: Values = {}
        before = run.before
        if history is None:
            history, values = await self._store.state(run.thread_id, run.checkpoint_id)
            history, before = repaired(history, before)
        return LoopState(history, before, values=values)

    async def _take_up(self) -> LoopState:
        run = self._run
        # Nothing to tell of a run that was cancelled while it was queued, nor of one whose tool has answered: it ran on.
        if not (run.cancel_requested and run.last_seq == 0) and run.parked != "tools":
            self._journal.emit("run", run_event(run))
            await self._journal.commit()
        messages, values = await self._store.state(run.thread_id, run.checkpoint_id)
        state = fold(run, messages, await self._store.calls(run.id), now_ms())
        state.values = values
        return state

    async def _loop(self, preparing: Coroutine[object, object, LoopState]) -> None:
        run = self._run
        trace.CURRENT.set(trace.of_run(run.id, run.traceparent, run.tracestate).unrecorded())
        self._state = await preparing
        view = LiveView(self.tell)
        self._parts = parts = await self._assembler.assemble(run, self._record_dispatch, self._observer.model, view)
        self._state.schema, view.state = parts.schema, self._state
        self._writer.facts = parts.tools.facts
        self._tools = tools = parts.hooks.tools(self._observer.tools(parts.tools), parts.settings.answer_tool)
        if self._cancelled:
            raise RunCancelled("The run was cancelled.")
        if self._leaving:
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        async with AsyncExitStack() as ending:
            if parts.settings.max_execution_time is not None:
                ending.callback(asyncio.create_task(self._keep_time()).cancel)
            while True:
                await self._write(
                    execute(self._state, parts.settings, parts.planner, tools, new_id=self._new_id, hooks=parts.hooks),
                    self._state,
                )
                if not self._writer.asks or await self._park():
                    return
                if not take_answers(self._state, await self._store.calls(run.id), now_ms()):
                    raise AssertionError("nobody is asked, and nobody has answered")

    async def _write(self, telling: AsyncGenerator[tuple[Record, ...]], state: LoopState) -> None:
        """Journal what the loop tells, to its end."""
        journal = self._journal
        async with aclosing(telling) as records:
            async for group in records:
                if len(group) == 1 and isinstance(group[0], Output):
                    if journal.emit_soon("output", output_event(group[0])):
                        await journal.commit()
                    continue
                for record in group:
                    self._writer.write(record)
                self._writer.set_progress()
                if journal.start() or self._must_wait(group):
                    await journal.commit()
                if self._leaving and self._writer.end is None and not state.open_calls:
                    await journal.commit()
                    raise asyncio.CancelledError

    async def _park(self) -> bool:
        """Let the run go until people answer; false where they all have. A cancel meanwhile is seen after it.

        That may be by whoever wakes the run: the cancel is in its row.
        """
        self._parking = True
        try:
            if await self._writer.park():
                return True
        finally:
            self._parking = False
        if self._cancelled:
            raise RunCancelled("The run was cancelled.")
        if self._leaving:
            raise asyncio.CancelledError
        return False

    async def _keep_time(self) -> None:
        """Journal the run's active time while nothing else is, so that a crash does not give its time limit anew."""
        while True:
            await asyncio.sleep(TIME_KEPT_S)
            if self._writer.end is not None or self._journal.failed:
                return
            self._writer.set_progress()
            self._journal.start()

    def _must_wait(self, group: tuple[Record, ...]) -> bool:
        """Whether the loop may go on only when what it told is durable.

        An answer's calls need not wait here: they are in the transaction of the first dispatch or in one before it, and
        nothing is sent before that is durable. Nor does a closed round: the model is asked while its results are being
        written. But a round without a dispatch has waited for nothing yet, and it must: to be paced by the journal.
        """
        if any(isinstance(record, Answered) for record in group):
            self._paced = False
        last = group[-1]
        match last:
            case Answered():
                return False
            case RoundClosed():
                return not self._paced
            case StateChanged():
                return not self._paced and any(isinstance(record, RoundClosed) for record in group)
            case _:
                return isinstance(last, Finished | Failed | Parked)

    async def _record_dispatch(self, dispatch: Dispatch, /) -> None:
        self._paced = True
        await self._journal.dispatch(dispatch)

    def _close_round(self) -> None:
        """Give every open call its one result, also where the run's tools could not be built again."""
        if self._state is None:
            return
        planner, tools = LOST_PLANNER, self._tools
        if self._parts is None:
            tools = self._observer.tools(LOST_TOOLS)
        else:
            planner = self._parts.planner
        for record in close_round(self._state, planner, tools, "cancelled"):
            self._writer.write(record)

    async def _end_cancelled(self) -> None:
        if self._writer.end is None:
            self._close_round()
            self._writer.end_with(Transition("cancelled", "cancelled", None, None, now_ms()))
        await self._journal.commit()

    async def _end_failed(self, code: str, message: str, request_id: str = "", *, retryable: bool = False) -> None:
        request_id = request_id or self._new_id()
        log.warning("run_error", run_id=self._run.id, code=code, request_id=request_id)
        if self._writer.end is None:
            self._close_round()
            self._writer.fail(code, message, retryable=retryable, request_id=request_id)
        await self._journal.commit()
