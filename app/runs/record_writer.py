"""The record writer: what a run's loop tells, as the events and rows of its journal, to exactly one `end`."""

import time
from collections.abc import Callable

from app.agent.ports import PlannedCall
from app.agent.records import (
    Answered,
    CallWaits,
    Failed,
    Finished,
    Output,
    Parked,
    Record,
    RoundClosed,
    StateChanged,
    StepDone,
)
from app.agent.state import LoopState
from app.core.clock import now_ms
from app.core.ids import IdFactory
from app.core.messages import Message
from app.core.usage import Usage
from app.runs.event_data import (
    action_event,
    call_result,
    call_wait,
    finish_event,
    interrupt_of,
    output_event,
    proposed_call,
    run_event,
    state_event,
    step_event,
    usage_event,
)
from app.runs.journal import RunJournal
from app.runs.records import Progress, RunRecord, Transition
from app.tools.runner import CallFacts


class RecordWriter:
    """Writes one run under one claim."""

    def __init__(
        self, run: RunRecord, journal: RunJournal, new_id: IdFactory, state: Callable[[], LoopState | None]
    ) -> None:
        """`state`: where the loop is; `None` while that is not known."""
        self._run = run
        self._journal = journal
        self._new_id = new_id
        self._state = state
        self._started = time.monotonic()
        self.facts: Callable[[PlannedCall], CallFacts] | None = None
        """What the run's tools know of a call before it is sent; set before the first answer."""
        self.end: Transition | None = None
        """Set when the `end` event is added; nothing may follow it."""
        self.parked_until: int | None = None
        """Set when the run was let go until an answer comes: the time (milliseconds) when waiting is over at the latest."""
        self.asks = False
        """The run is to be let go until people answer: `park` comes next."""

    def start_clock(self) -> None:
        """The run is active from now on."""
        self._started = time.monotonic()

    def set_progress(self) -> None:
        """Bring the run's projection up to date with the next append."""
        state = self._state()
        if state is not None:  # else the row is as true as it was
            self._journal.set_progress(self._progress(state))

    def _progress(self, state: LoopState) -> Progress:
        active = self._run.active_ms + int((time.monotonic() - self._started) * 1000)
        return Progress(state.iteration, state.step, state.usage.to_json(), active)

    def write(self, record: Record) -> None:
        match record:
            case Answered():
                self._answer(record)
            case StepDone():
                self._journal.emit("step", step_event(record))
                self._journal.add_result(call_result(record))
            case CallWaits():
                self._wait(record)
            case Parked():
                self._parking()
            case RoundClosed():
                self._add_messages(record.messages)
            case StateChanged():
                self._change(record)
            case Finished():
                self._finish(record)
            case Failed():
                self.fail(record.code, record.message, retryable=False, request_id=self._new_id())
            case Output():
                self._journal.emit("output", output_event(record))

    def _answer(self, answer: Answered) -> None:
        assert self.facts is not None
        journal, run, now = self._journal, self._run, now_ms()
        journal.emit("usage", usage_event(answer))
        for call in answer.calls:
            journal.emit("action", action_event(call, answer.message_id))
            record = proposed_call(run, call, answer.message_id, now)
            facts = self.facts(call)
            record.tool_version, record.effect = facts.tool_version, facts.effect
            record.arguments_sha256, record.idempotency_key = facts.arguments_sha256, facts.idempotency_key
            journal.add_call(record)
        if answer.message is not None:
            self._add_messages((answer.message,))

    def _wait(self, waits: CallWaits) -> None:
        interrupt = interrupt_of(self._run, waits, now_ms())
        if interrupt is not None:
            self._journal.emit("interrupt", {"interrupts": [interrupt.shown]})
        self._journal.add_wait(call_wait(waits), interrupt)

    def _parking(self) -> None:
        """Let the run go: it runs on without anything held for it, or waits for people (`park`)."""
        state = self._state()
        assert state is not None
        waiting = [item.waiting for item in state.open_calls if item.waits and item.waiting is not None]
        self.parked_until = min(item.until_ms for item in waiting)
        if all(item.shown is None for item in waiting):
            self._journal.set_transition(Transition("running", None, None, None, None, parked="tools"))
        else:
            self.asks = True

    async def park(self) -> bool:
        """Let the run go until people answer; false where all of them have, so that it goes on."""
        state = self._state()
        assert state is not None
        self.asks = False
        event = {**run_event(self._run), "status": "interrupted"}
        transition = Transition("interrupted", "awaiting_input", None, None, None, parked="people")
        if await self._journal.park(event, transition, self._progress(state)):
            self._run.status = "interrupted"
            return True
        self.parked_until = None
        return False

    def _add_messages(self, messages: tuple[Message, ...]) -> None:
        if messages:
            self._journal.add_checkpoint(self._new_id(), [message.to_json() for message in messages], now_ms())

    def _change(self, change: StateChanged) -> None:
        """A change of the server's own fields is kept and told to nobody."""
        told = state_event(change)
        if told is not None:
            self._journal.emit("state", told)
        self._journal.add_checkpoint(
            self._new_id(),
            [message.to_json() for message in change.messages],
            now_ms(),
            [update.to_json() for update in change.updates],
        )

    def _finish(self, finished: Finished) -> None:
        if finished.message is not None:
            self._add_messages((finished.message,))
        self._journal.emit("finish", finish_event(finished))
        self.end_with(Transition("success", finished.stop_reason, finished.finish.return_values, None, now_ms()))

    def fail(self, code: str, message: str, *, retryable: bool, request_id: str) -> None:
        error: dict[str, object] = {
            "code": code, "message": message, "retryable": retryable, "request_id": request_id,
        }  # fmt: skip
        self._journal.emit("error", error)
        self.end_with(Transition("error", "error", None, error, now_ms()))

    def end_with(self, transition: Transition) -> None:
        journal, state = self._journal, self._state()
        self.end = transition
        self.parked_until = None  # a cancel may come just after it was let go
        self.set_progress()
        journal.set_transition(transition)
        journal.emit(
            "end",
            {
                "run_id": self._run.id,
                "status": transition.status,
                "stop_reason": transition.stop_reason,
                "usage": self._run.usage or Usage().to_json() if state is None else state.usage.to_json(),
                "last_seq": journal.last_seq + 1,
            },
        )
