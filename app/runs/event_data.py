"""The data of a run's events, and the rows of its calls: how the loop's records look outside."""

from collections.abc import Mapping
from typing import Any, cast

from app.agent.ports import Delta, PlannedCall, ReasoningDelta, TextDelta, ToolOutcome, Waiting
from app.agent.records import Answered, CallWaits, Finished, Output, StateChanged, StepDone
from app.agent.state_schema import MESSAGES, OWN
from app.core.clock import rfc3339
from app.runs.records import CallRecord, CallResult, CallWait, Interrupt, RunRecord


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


def usage_event(answer: Answered) -> dict[str, object]:
    tokens = answer.tokens
    return {
        "iteration": answer.iteration,
        "model": answer.model,
        "input_tokens": tokens.input_tokens,
        "output_tokens": tokens.output_tokens,
        "total_tokens": tokens.total_tokens,
        **({} if tokens.cost_usd is None else {"cost_usd": tokens.cost_usd}),
    }


def action_event(call: PlannedCall, message_id: str) -> dict[str, object]:
    return {
        "step": call.step,
        "iteration": call.iteration,
        **call.action.to_json(),
        "tool_call_id": call.tool_call_id,
        "provider_call_id": call.provider_call_id,
        "message_id": message_id,
    }


def proposed_call(run: RunRecord, call: PlannedCall, message_id: str, now: int) -> CallRecord:
    """The row of a call that the model proposed. What the tool runner knows of it is not in it yet."""
    action = call.action
    return CallRecord(
        id=call.tool_call_id,
        tenant=run.tenant,
        run_id=run.id,
        thread_id=run.thread_id,
        step=call.step,
        iteration=call.iteration,
        message_id=message_id,
        tool=action.tool,
        tool_input=action.tool_input,
        log=action.log,
        created_at=now,
        provider_call_id=call.provider_call_id,
        refusal=call.refusal,
    )


def state_event(change: StateChanged) -> dict[str, object] | None:
    """What each reducer was given, by field; `None` where only the server's own fields changed."""
    update = {item.name: item.value for item in change.updates if not item.name.startswith(OWN)}
    if change.messages:
        update[MESSAGES] = [message.shown() for message in change.messages]
    if not update:
        return None
    by: dict[str, object] = {"by": change.by}
    if change.tool_call_id is not None:
        by["tool_call_id"] = change.tool_call_id
    return {**by, "update": update}


def finish_event(finished: Finished) -> dict[str, object]:
    finish = finished.finish
    return {
        "type": "AgentFinish",
        "return_values": finish.return_values,
        "log": finish.log,
        "stop_reason": finished.stop_reason,
    }


def step_event(step: StepDone) -> dict[str, object]:
    call, outcome = step.call, step.outcome
    return {
        "type": "AgentStep",
        "step": call.step,
        "iteration": call.iteration,
        "tool_call_id": call.tool_call_id,
        "action": call.action.to_json(),
        "sent_input": outcome.sent_input,
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
        command=_command(outcome),
    )


def _command(outcome: ToolOutcome) -> dict[str, object] | None:
    if outcome.update is None and outcome.goto is None:
        return None
    return {"update": outcome.update, "goto": outcome.goto}


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
