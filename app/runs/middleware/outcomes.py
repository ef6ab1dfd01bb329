"""Results of tool calls as middleware sees and makes them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from app.agent.ports import PlannedCall, ToolOutcome
from app.core.clock import now_ms
from app.core.ids import new_id
from app.runs.middleware.api import ToolResult
from app.tools import envelope

CODE = "middleware_denied"
"""The code of an error that a middleware makes of a call and does not name."""


def result_of(outcome: ToolOutcome) -> ToolResult:
    """An outcome as a middleware reads it."""
    code = None if outcome.error is None else str(outcome.error.get("code") or "") or None
    return ToolResult(
        output=outcome.observation, status=outcome.status, code=code, update=outcome.update, goto=outcome.goto
    )


def outcome_of(result: ToolResult, call: PlannedCall, by: str, base: ToolOutcome | None = None) -> ToolOutcome:
    """A middleware's result as the outcome of the call. `base`: what the tool itself came to, if it was called."""
    if base is not None and base.status == "unknown":
        result = replace(result, status="unknown")  # it can be told otherwise, and is not settled by that
    note = {"stage": "middleware", "verdict": "answered" if base is None else "changed", "at": now_ms(), "detail": by}
    if base is None:
        intent: dict[str, object] = {"stage": "intent", "verdict": "ok", "at": now_ms(), "detail": None}
        base = ToolOutcome(result.status, None, chain=(intent,))
    meta = {
        "tool": call.action.tool, "tool_call_id": call.tool_call_id, "attempts": 0, "duration_ms": 0.0,
        **cast("Mapping[str, object]", base.envelope.get("meta") or {}), "status": result.status,
    }  # fmt: skip
    error: dict[str, object] | None = None
    if result.status == "success":
        told = envelope.success(result.output, meta)
    else:
        before = base.error or {}
        error = {
            "code": result.code or CODE,
            "message": str(result.output),
            "retryable": bool(before.get("retryable")),
            "state": str(before.get("state") or "failed"),
            "request_id": str(before.get("request_id") or new_id()),
        }
        told = envelope.failure(
            code=str(error["code"]),
            user_message=str(result.output),
            retryable=bool(error["retryable"]),
            state="unknown" if error["state"] == "unknown" else "failed",
            request_id=str(error["request_id"]),
            tool_call_id=call.tool_call_id,
            meta=meta,
        )
    return replace(
        base,
        status=result.status,
        observation=result.output,
        error=error,
        envelope=told,
        chain=(*base.chain, note),
        return_direct=base.return_direct and result.status == "success",
        whole=None,
        update=result.update,
        goto=result.goto,
    )
