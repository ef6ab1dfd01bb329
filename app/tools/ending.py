"""The end of a call: how it ended, and the outcome that says so to the loop, the model and the application."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from app.agent.ports import PlannedCall, StepStatus, ToolOutcome
from app.core.clock import now_ms
from app.core.values import immutable
from app.tools import envelope
from app.tools.attempt import Attempt, settle
from app.tools.compiled import CompiledTool
from app.tools.result import printable


@dataclass(slots=True)
class Live:
    """A call under way. It stays after a cancellation, so that `cut` can tell what was sent."""

    started_at: int
    started: float
    sent: bool
    chain: list[Mapping[str, object]]
    attempts: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])

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
    duration = round((time.perf_counter() - live.started) * 1000, 3)
    meta: dict[str, object] = {
        "tool": call.action.tool,
        "tool_call_id": call.tool_call_id,
        "status": end.status,
        "attempts": len(live.attempts),
        "duration_ms": duration,
        **end.meta,
    }
    started_at = live.started_at if live.attempts else None
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
        ),
        tuple(live.attempts),
        tuple(live.chain),
        started_at,
        duration,
        fatal=text if handling is False and (end.by_tool or end.status == "unknown") else None,
    )


def settled(tool: CompiledTool, attempt: Attempt) -> End:
    verdict = settle(attempt, tool.effect, tool.idempotent)
    if verdict.status == "unknown":
        return unknown(tool.name, attempt.message, attempt)
    return End(
        verdict.status,
        _sentence(tool.name, attempt.message) if attempt.kind == "uncertain" else attempt.message,
        attempt.code,
        attempt.retryable,
        verdict.state,
        request_id=attempt.request_id,
        by_tool=True,
    )


def _sentence(name: str, why: str) -> str:
    """What happened to an attempt, said so that it stands alone: with the tool for its subject."""
    text = why if why.startswith(f"{name} ") else f"{name}: {why}"
    return text if text.endswith(".") else f"{text}."


def lost_attempt(number: int) -> dict[str, object]:
    """An attempt of a process that is gone: that it was about to be sent is all that is known."""
    return {"attempt": number, "at": None, "duration_ms": None, "http_status": None, "outcome": "lost"}


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
    text = f"{name} was not called: it is switched off for now. Go on without it."
    return End("denied", text, "tool_disabled")
