"""Recovery: a run's rows folded back into the state its loop goes on from. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from app.agent.ports import Goto, PlannedCall, Resumed, Round, ToolOutcome, Waiting
from app.agent.repair import repaired
from app.agent.settings import AgentSettings
from app.agent.state import LoopState, OpenCall
from app.agent.stop import is_repeat
from app.core.actions import AgentAction, AgentActionMessageLog
from app.core.messages import Message
from app.core.usage import Usage
from app.runs.event_data import waiting_of
from app.runs.records import CallRecord, RunRecord
from app.tools.inputs import attempts_before
from app.tools.waits import decision_of, taken


def fold(run: RunRecord, messages: Sequence[Message], calls: Sequence[CallRecord], now: int = 0) -> LoopState:
    """The loop's state from the run's projection, its thread's messages and its calls (in step order).

    `now` (milliseconds since the epoch) tells which waiting calls are past their time.

    A round is open when its results are not in the conversation yet. In it, calls that are done keep their result, calls
    with a recorded dispatch are marked as sent, the others are simply still to be sent.
    """
    messages, before = repaired(messages, run.before)
    state = LoopState(
        messages,
        before,
        iteration=run.iterations,
        step=run.steps,
        active_s=run.active_ms / 1000,
        usage=_usage(run.usage),
    )
    by_iteration: dict[int, list[CallRecord]] = {}
    for call in calls:
        by_iteration.setdefault(call.iteration, []).append(call)
    asked, shown, spoken = _said(messages[before:])
    for records in by_iteration.values():
        first = records[0].provider_call_id or ""
        message = asked.get(first)
        planned = [planned_call(record, message) for record in records]
        if all(call.provider_call_id in shown for call in planned):
            results = tuple((call, outcome_of(record)) for call, record in zip(planned, records, strict=True))
            told = tuple(shown[call.provider_call_id or ""] for call in planned)
            state.rounds.append(Round(message, results, told))
        else:
            state.open_message = message or spoken
            state.open_calls = [_open(call, record, now) for call, record in zip(planned, records, strict=True)]
    state.out_of_repeats = _out_of_repeats(run, state)
    return state


def _out_of_repeats(run: RunRecord, state: LoopState) -> bool:
    """Whether the last round, open or not, was the one repeat too many."""
    settings = AgentSettings.from_json(cast("dict[str, object]", run.spec["agent"]))
    if settings.limits.max_repeats is None:
        return False
    if state.open_calls:
        return is_repeat(state.rounds, settings, [item.call.action for item in state.open_calls])
    if not state.rounds:
        return False
    return is_repeat(state.rounds[:-1], settings, [call.action for call, _ in state.rounds[-1].results])


def _said(tail: Sequence[Message]) -> tuple[dict[str, Message], dict[str, Message], Message | None]:
    """Of a run's own messages: by call, the answer that made it, and its result; then the last answer.

    A text agent's answer carries no calls: it is what stands before its result, or last while that is missing.
    """
    asked: dict[str, Message] = {}
    shown: dict[str, Message] = {}
    spoken: Message | None = None
    for message in tail:
        if message.tool_call_id is not None:
            shown[message.tool_call_id] = message
            if spoken is not None and not spoken.tool_calls:
                asked[message.tool_call_id] = spoken
        elif message.role == "assistant":
            spoken = message
            asked |= {call.id: message for call in message.tool_calls}
    return asked, shown, spoken


def planned_call(record: CallRecord, message: Message | None) -> PlannedCall:
    action = (
        AgentAction(record.tool, record.tool_input, record.log)
        if message is None or not message.tool_calls
        else AgentActionMessageLog(record.tool, record.tool_input, record.log, message_log=(message,))
    )
    return PlannedCall(
        record.step,
        record.iteration,
        record.id,
        action,
        record.provider_call_id,
        record.refusal,
        noted=_noted(record),
        sent_input=record.sent_input,
    )


def _noted(record: CallRecord) -> tuple[Mapping[str, object], ...]:
    """The chain of a call without a result: as it was when it began to wait, and what was decided since."""
    if record.wait is None or record.answer is None or record.state in ("done", "unknown"):
        return tuple(record.chain)
    stage, verdict, by = decision_of(Resumed(waiting_of(record.wait), record.answer))
    return (*record.chain, {"stage": stage, "verdict": verdict, "at": record.answer.get("at"), "detail": by})


def outcome_of(record: CallRecord) -> ToolOutcome:
    """The outcome of a call that is done or unknown."""
    command = record.command or {}
    return ToolOutcome(
        record.status or "unknown",
        record.observation,
        record.error,
        record.envelope or {},
        tuple(record.attempt_log),
        tuple(record.chain),
        record.started_at,
        record.duration_ms or 0.0,
        sent_input=record.sent_input,
        update=cast("dict[str, object] | None", command.get("update")),
        goto=cast("Goto | None", command.get("goto")),
    )


def _open(call: PlannedCall, record: CallRecord, now: int) -> OpenCall:
    if record.state in ("done", "unknown"):
        return OpenCall(call, record.attempts, outcome_of(record), told=True)
    if record.attempts:
        call = replace(call, dispatched=tuple(record.attempt_log))
    if record.state == "waiting" and record.wait is not None:
        waiting = waiting_of(record.wait)
        resumed = _answered(record, waiting, now)
        return OpenCall(call, record.attempts - attempts_before(waiting), waiting=waiting, resumed=resumed)
    if record.late_result is not None:  # the tool called back before its 202 was read
        began = record.created_at if record.started_at is None else record.started_at
        return OpenCall(
            call, record.attempts, resumed=Resumed(taken(began, record.tool_version, call.noted), record.late_result)
        )
    if record.wait is not None and record.answer is not None:  # allowed, and then sent: as it was allowed
        waiting = waiting_of(record.wait)
        return OpenCall(call, record.attempts - attempts_before(waiting), resumed=Resumed(waiting, record.answer))
    return OpenCall(call, record.attempts)


def _usage(stored: dict[str, object]) -> Usage:
    names = ("model_calls", "tool_calls", "input_tokens", "output_tokens", "total_tokens")
    counts = {name: cast("int", stored.get(name) or 0) for name in names}
    return Usage(**counts, cost_usd=cast("float | None", stored.get("cost_usd")))


def take_answers(state: LoopState, calls: Sequence[CallRecord], now: int) -> bool:
    """Give the open round the answers that its calls (as they are stored) have by now; whether there are any."""
    rows = {record.id: record for record in calls}
    taken_any = False
    for item in state.open_calls:
        record = rows.get(item.call.tool_call_id)
        if item.waits and item.waiting is not None and record is not None:
            item.call = replace(item.call, noted=_noted(record), sent_input=record.sent_input)
            item.resumed = _answered(record, item.waiting, now)
            taken_any = taken_any or item.resumed is not None
    return taken_any


def _answered(record: CallRecord, waiting: Waiting, now: int) -> Resumed | None:
    answer = record.late_result if waiting.reason == "deferred" else record.answer
    if answer is None and now >= waiting.until_ms:
        answer = {"decision": "expired"}
    return None if answer is None else Resumed(waiting, answer)
