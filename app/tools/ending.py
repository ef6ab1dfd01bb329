"""The end of a call: how it ended, and the outcome that says so to the loop, the model and the application."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast, get_args

from app.agent.ports import Goto, PlannedCall, StepStatus, ToolOutcome, WholeResult
from app.core.clock import now_ms
from app.core.values import immutable
from app.tools import envelope
from app.tools.arguments import in_words
from app.tools.attempt import Attempt, settle
from app.tools.compiled import CompiledTool
from app.tools.result import printable, whole_output
from app.tools.schema import ArgumentSchema

GOTO: tuple[str, ...] = get_args(Goto)

NO_ROOM = "no room"
"""In the place of an address: the run keeps no more long results."""


@dataclass(slots=True)
class Live:
    """A call under way. It stays after a cancellation, so that `cut` can tell what was sent."""

    started_at: int
    started: float
    sent: bool
    chain: list[Mapping[str, object]]
    attempts: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])
    sent_input: Mapping[str, object] | None = None
    """As in `ToolOutcome`, once that was recorded."""
    since_ms: int | None = None
    """When its first attempt was sent, where that was before it was taken up here: what it took counts from then."""

    def note(self, stage: str, verdict: str, detail: str | None = None) -> None:
        self.chain.append({"stage": stage, "verdict": verdict, "at": now_ms(), "detail": detail})


@immutable
class End:
    """How a call ended, before it is put into an outcome."""

    status: StepStatus
    observation: object
    code: str = ""
    retryable: bool = False
    state: envelope.State = "failed"
    meta: Mapping[str, object] = field(default_factory=dict[str, object])
    request_id: str | None = None
    by_tool: bool = False
    """The tool's own error: `handle_tool_errors` applies."""
    data: object = None
    """What the tool answered, where the answer itself is the fault."""
    whole: WholeResult | None = None
    """What is kept of an answer that was cut."""
    update: Mapping[str, object] | None = None
    goto: Goto | None = None


def outcome_of(
    call: PlannedCall,
    end: End,
    live: Live,
    *,
    return_direct: bool,
    handle_tool_errors: bool | str,
    new_id: Callable[[], str],
) -> ToolOutcome:
    """The outcome as the loop, the model and the application each read it."""
    if live.since_ms is None:
        started_at, duration = live.started_at, round((time.perf_counter() - live.started) * 1000, 3)
    else:
        started_at, duration = live.since_ms, float(max(0, now_ms() - live.since_ms))
    meta: dict[str, object] = {
        "tool": call.action.tool,
        "tool_call_id": call.tool_call_id,
        "status": end.status,
        "attempts": len(live.attempts),
        "duration_ms": duration,
        **end.meta,
    }
    started_at = started_at if live.attempts else None
    if end.status == "success":
        return ToolOutcome(
            "success",
            end.observation,
            None,
            envelope.success(end.observation, meta),
            tuple(live.attempts),
            tuple(live.chain),
            started_at,
            duration,
            return_direct,
            whole=end.whole,
            sent_input=live.sent_input,
            update=end.update,
            goto=end.goto,
        )
    request_id = end.request_id or new_id()
    text = printable(str(end.observation))
    handling = handle_tool_errors
    return ToolOutcome(
        end.status,
        handling if end.by_tool and isinstance(handling, str) else text,
        {
            "code": end.code,
            "message": text,
            "retryable": end.retryable,
            "state": end.state,
            "request_id": request_id,
        },
        envelope.failure(
            code=end.code,
            user_message=text,
            retryable=end.retryable,
            state=end.state,
            request_id=request_id,
            tool_call_id=call.tool_call_id,
            meta=meta,
            data=end.data,
        ),
        tuple(live.attempts),
        tuple(live.chain),
        started_at,
        duration,
        fatal=text if handling is False and (end.by_tool or end.status == "unknown") else None,
        whole=end.whole,
        sent_input=live.sent_input,
    )


def settled(tool: CompiledTool, attempt: Attempt) -> End:
    """The end of a call whose last attempt brought no output."""
    verdict = settle(attempt, tool.effect, tool.idempotent)
    if verdict.status == "unknown":
        return unknown(tool.name, attempt.message, attempt)
    return End(
        verdict.status,
        _sentence(tool.name, attempt.message) if attempt.kind == "uncertain" else attempt.message,
        attempt.code,
        attempt.retryable,
        verdict.state,
        meta=attempt.meta,
        request_id=attempt.request_id,
        by_tool=True,
    )


def _sentence(name: str, why: str) -> str:
    """What happened to an attempt, said so that it stands alone: with the tool for its subject."""
    text = why if why.startswith(f"{name} ") else f"{name}: {why}"
    return text if text.endswith(".") else f"{text}."


def output_end(tool: CompiledTool, attempt: Attempt, place: str | None = None) -> End:
    """The end of a call that came back with an output: a success, unless the output does not fit the tool's schema.

    `place`: where the whole of it can be read once it is kept; `None`: it is not. It ran all the same, and is not sent again. Of a write, `state` is then `unknown`: what it did cannot be read.
    """
    code = "output_invalid"
    fault = None if tool.output is None else _output_fault(tool.output, attempt)
    if fault is not None:
        fault = f"its answer does not fit its output_schema: {fault}"
    elif attempt.update is not None or attempt.goto is not None:
        code, fault = "command_invalid", _command_fault(attempt)
    output, whole = placed(attempt.output, attempt.whole, place)
    if fault is None:
        update = cast("Mapping[str, object] | None", attempt.update)
        return End(
            "success", output, meta=attempt.meta, whole=whole, update=update, goto=cast("Goto | None", attempt.goto)
        )
    text = f"{tool.name} ran, but {fault}"
    if tool.effect == "write":
        text = f"{text}. What it does has happened: do not simply call it again"
    return End(
        "error",
        f"{text}.",
        code,
        state="unknown" if tool.effect == "write" else "failed",
        meta=attempt.meta,
        by_tool=True,
        data=output,
        whole=whole,
    )


def placed(output: object, whole: WholeResult | None, place: str | None) -> tuple[object, WholeResult | None]:
    """An output that was cut, with the address of the whole of it; `place` `None` or `NO_ROOM`: it is not kept."""
    if whole is None or place is None:
        return output, None
    if place == NO_ROOM:
        return f"{output}\n[no more of it is kept: long results of this run have used up what is kept of them]", None
    what = "the whole" if whole.complete else "the first"
    return f"{output}\n[{what} {len(whole.data)} bytes: GET {place}]", whole


def _command_fault(attempt: Attempt) -> str | None:
    if attempt.goto is not None and attempt.goto not in GOTO:
        return f"it says to go on where there is nothing: goto must be one of {', '.join(GOTO)}"
    if attempt.update is not None and not isinstance(attempt.update, Mapping):
        return "its update of the state must be an object with the fields to change"
    return None


def _output_fault(schema: ArgumentSchema, attempt: Attempt) -> str | None:
    output = attempt.output
    if attempt.whole is not None:
        if not attempt.whole.complete:
            return "it is too long to be checked"
        output = whole_output(attempt.whole.data)
    try:
        if schema.is_valid(output):
            return None
        faults = schema.faults(output)
    except ValueError:
        return "it holds text or nesting that cannot be checked"
    return in_words(faults)


def earlier_attempts(call: PlannedCall, sent_before: int) -> list[Mapping[str, object]]:
    """The attempts of processes that are gone. Of one that had not come back, when it was sent is all that is known."""
    found = [{**entry, "outcome": "lost"} if entry.get("outcome") == RUNNING else entry for entry in call.dispatched]
    known = {entry.get("attempt") for entry in found}
    lost = [_attempt(number, None, "lost") for number in range(1, sent_before + 1) if number not in known]
    return [*lost, *found]


def first_sent_ms(attempts: Sequence[Mapping[str, object]]) -> int | None:
    """When the first attempt was sent; `None`: there is none, or that is not known."""
    times = (entry.get("at") for entry in attempts)
    return next((at for at in times if isinstance(at, int)), None)


RUNNING = "running"
"""The outcome of an attempt that has not come back."""


def running_attempt(number: int, at: int) -> Mapping[str, object]:
    return _attempt(number, at, RUNNING)


def _attempt(number: int, at: int | None, outcome: str) -> dict[str, object]:
    return {"attempt": number, "at": at, "duration_ms": None, "http_status": None, "outcome": outcome}


def unknown(name: str, why: str, attempt: Attempt | None = None) -> End:
    text = (
        f"What became of {name} is unknown: {why.rstrip('.')}. It may have taken effect or not: "
        "do not assume either, and do not simply call it again."
    )
    return End(
        "unknown",
        text,
        "outcome_unknown" if attempt is None else attempt.code,
        state="unknown",
        request_id=None if attempt is None else attempt.request_id,
    )


def withdrawn(name: str) -> End:
    return End("denied", f"{name} was not called: the tool was withdrawn.", "tool_withdrawn")


def disabled(name: str) -> End:
    return denied(name, "tool_disabled", "it is switched off for now. Go on without it.")


def denied(name: str, code: str, why: str) -> End:
    return End("denied", f"{name} was not called: {why}", code)
