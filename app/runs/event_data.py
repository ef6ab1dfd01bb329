"""The data of a run's events, and the row of a finished call: how the loop's records look outside."""

from app.agent.ports import Delta, ReasoningDelta, TextDelta
from app.agent.records import Output, StepDone
from app.core.clock import rfc3339
from app.runs.records import CallResult, RunRecord


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
