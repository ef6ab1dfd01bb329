"""The data of a run's events, and the row of a finished call: how the loop's records look outside."""

from collections.abc import Mapping
from typing import Any, cast

from app.agent.ports import Delta, ReasoningDelta, TextDelta, Waiting
from app.agent.records import CallWaits, Output, StepDone
from app.core.clock import rfc3339
from app.runs.records import CallResult, CallWait, Interrupt, RunRecord


def run_event(run: RunRecord) -> dict[str, object]:
    """The data of a `run` event: the run's life changed to its present status."""
    return {
        "run_id": run.id,
        "thread_id": run.thread_id,
        "agent": run.agent,
        "status": run.status,
        "attempt": run.attempt,
    }


def output_event(output: Output) -> dict[str, object]:
    return {"iteration": output.iteration, "message_id": output.message_id, "delta": _delta(output.delta)}


def _delta(delta: Delta) -> dict[str, object]:
    if isinstance(delta, TextDelta):
        return {"type": "text", "text": delta.text}
    if isinstance(delta, ReasoningDelta):
        return {"type": "reasoning", "text": delta.text}
    return {"type": "tool_call", "index": delta.index, "id": delta.id, "name": delta.name, "args": delta.args}


def step_event(step: StepDone) -> dict[str, object]:
    call, outcome = step.call, step.outcome
    return {
        "type": "AgentStep",
        "step": call.step,
        "iteration": call.iteration,
        "tool_call_id": call.tool_call_id,
        "action": call.action.to_json(),
        "observation": outcome.observation,
        "status": outcome.status,
        "error": outcome.error,
        "trust": "untrusted",
        "started_at": None if outcome.started_at is None else rfc3339(outcome.started_at),
        "duration_ms": outcome.duration_ms,
    }


def call_result(step: StepDone) -> CallResult:
    outcome = step.outcome
    return CallResult(
        id=step.call.tool_call_id,
        state="unknown" if outcome.status == "unknown" else "done",
        status=outcome.status,
        observation=outcome.observation,
        error=outcome.error,
        envelope=outcome.envelope,
        attempt_log=outcome.attempts,
        chain=outcome.chain,
        started_at=outcome.started_at,
        duration_ms=outcome.duration_ms,
        whole=outcome.whole,
    )


def call_wait(waits: CallWaits) -> CallWait:
    """The row of a call that begins to wait; its chain and attempts so far are among the runner's facts."""
    waiting = waits.waiting
    return CallWait(waits.call.tool_call_id, wait_json(waiting), _items(waiting, "attempts"), _items(waiting, "chain"))


def interrupt_of(run: RunRecord, waits: CallWaits, now: int) -> Interrupt | None:
    waiting, shown = waits.waiting, waits.waiting.shown
    if shown is None:
        return None
    return Interrupt(str(shown["id"]), run.id, waits.call.tool_call_id, waiting.reason, shown, now, waiting.until_ms)


def wait_json(waiting: Waiting) -> dict[str, object]:
    return {
        "reason": waiting.reason, "until_ms": waiting.until_ms, "facts": waiting.facts, "shown": waiting.shown,
    }  # fmt: skip


def waiting_of(wait: Mapping[str, Any]) -> Waiting:
    """The inverse of `wait_json`."""
    return Waiting(wait["reason"], wait["until_ms"], wait["facts"], wait["shown"])


def _items(waiting: Waiting, name: str) -> tuple[Mapping[str, object], ...]:
    return tuple(cast("list[Mapping[str, object]]", waiting.facts.get(name) or ()))
