"""Views: rows as the JSON that callers see."""

from collections.abc import Mapping, Sequence

from app.core.clock import rfc3339
from app.runs.audit import AuditedCall
from app.runs.call_results import Reconciliation
from app.runs.records import CallRecord, RunRecord


def _time(ms: int | None) -> str | None:
    return None if ms is None else rfc3339(ms)


def run_view(run: RunRecord, steps: Sequence[CallRecord] | None = None) -> dict[str, object]:
    """A Run (contract, section 2). `steps`: its finished steps, where its agent returns them."""
    body: dict[str, object] = {
        "id": run.id,
        "thread_id": run.thread_id,
        "agent": run.agent,
        "status": run.status,
        "stop_reason": run.stop_reason,
        "input": run.input,
        "output": run.output,
        "error": run.error,
        "interrupts": run.interrupts,
        "iterations": run.iterations,
        "attempt": run.attempt,
        "usage": run.usage or EMPTY_USAGE,
        "created_at": _time(run.created_at),
        "started_at": _time(run.started_at),
        "finished_at": _time(run.finished_at),
        "metadata": run.metadata,
    }
    if steps is not None:
        body["intermediate_steps"] = [step_view(step) for step in steps]
    return body


EMPTY_USAGE: Mapping[str, object] = {
    "model_calls": 0, "tool_calls": 0, "input_tokens": 0, "output_tokens": 0, "total_tokens": 0, "cost_usd": None,
}  # fmt: skip


def step_view(call: CallRecord) -> dict[str, object]:
    """A step (contract, section 5). Not finished yet: status `waiting` or `running`, no observation."""
    return {
        "step": call.step,
        "iteration": call.iteration,
        "tool_call_id": call.id,
        "action": {"type": "AgentAction", "tool": call.tool, "tool_input": call.tool_input, "log": call.log},
        "sent_input": call.sent_input,
        "observation": call.observation,
        "status": call.status or ("running" if call.state == "dispatched" else "waiting"),
        "error": call.error,
        "trust": "untrusted",
        "started_at": _time(call.started_at),
        "duration_ms": call.duration_ms,
    }


def step_detail(call: CallRecord) -> dict[str, object]:
    """One step with its whole chain, from the model's intent to the recorded state."""
    chain = [_dated(item) for item in call.chain]
    if call.status is not None:
        chain.append({"stage": "state_update", "verdict": "recorded", "at": None, "detail": None})
    return {
        **step_view(call),
        "provider_call_id": call.provider_call_id,
        "tool_version": call.tool_version,
        "effect": call.effect,
        "arguments_sha256": call.arguments_sha256,
        "idempotency_key": call.idempotency_key,
        "chain": chain,
        "attempts": [_dated(item) for item in call.attempt_log],
        "envelope": call.envelope,
        "reconciled": None if call.reconciled is None else _dated(call.reconciled),
    }


def reconciled_view(item: Reconciliation) -> dict[str, object]:
    """A call of unknown outcome, and what its tool says became of it; `null` while that stays unknown."""
    call = item.call
    return {
        "tool_call_id": call.id,
        "run_id": call.run_id,
        "step": call.step,
        "tool": call.tool,
        "reconciled": None if item.found is None else _dated(item.found),
    }


def audit_view(item: AuditedCall) -> dict[str, object]:
    """A call in the audit: what was asked, decided, sent and answered, and for whom; `audit_detail` has all of it."""
    call = item.call
    return {
        "tool_call_id": call.id,
        "run_id": call.run_id,
        "thread_id": call.thread_id,
        "step": call.step,
        "agent": item.agent,
        "principal": {"tenant": call.tenant, "subject": item.subject},
        "tool": call.tool,
        "tool_version": call.tool_version,
        "effect": call.effect,
        "tool_input": call.tool_input,
        "sent_input": call.sent_input,
        "arguments_sha256": call.arguments_sha256,
        "asked_at": _time(call.created_at),
        "chain": [_dated(step) for step in call.chain],
        "idempotency_key": call.idempotency_key,
        "attempts": [_dated(attempt) for attempt in call.attempt_log],
        "attempts_recorded": call.attempts,
        "started_at": _time(call.started_at),
        "status": call.status or ("running" if call.state == "dispatched" else "waiting"),
        "error_code": None if call.error is None else call.error.get("code"),
        "answered_at": _answered_at(call),
        "duration_ms": call.duration_ms,
    }


def audit_detail(item: AuditedCall) -> dict[str, object]:
    """The same with what was answered, and how the model put it."""
    call = item.call
    return {
        **audit_view(item),
        "iteration": call.iteration,
        "message_id": call.message_id,
        "provider_call_id": call.provider_call_id,
        "log": call.log,
        "refusal": call.refusal,
        "observation": call.observation,
        "error": call.error,
        "envelope": call.envelope,
    }


def _answered_at(call: CallRecord) -> str | None:
    """When its outcome was known: the last thing that its chain tells."""
    if call.status is None or not call.chain:
        return None
    at = call.chain[-1].get("at")
    return rfc3339(at) if isinstance(at, int) else None


def _dated(item: Mapping[str, object]) -> dict[str, object]:
    at = item.get("at")
    return {**item, "at": rfc3339(at)} if isinstance(at, int) else dict(item)
