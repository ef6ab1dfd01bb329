"""Tool spans: one `execute_tool` for each call, open until its outcome is known, also where a stop of the run cut it."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from opentelemetry.context import Context
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.semconv.attributes.http_attributes import HTTP_RESPONSE_STATUS_CODE
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from app.agent.ports import CutReason, PlannedCall, Resumed, ToolDefinition, ToolOutcome, ToolRunner, Waiting
from app.core.ids import NAME_PATTERN
from app.core.trace import CURRENT, TraceContext
from app.observability.tracing_content import Content
from app.tools.runner import BoundTools

EXECUTE_TOOL = "execute_tool"
FAILED = Status(StatusCode.ERROR)
"""Without a description: an error's text may hold what nobody outside should read. `error.type` says the code."""

_NAME = re.compile(NAME_PATTERN)
_CODE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.IGNORECASE | re.ASCII)


def code_of(said: object) -> str:
    """An error's code as an attribute: a tool's own codes are its own words, and only short names are shown."""
    return said if isinstance(said, str) and _CODE.fullmatch(said) else "other"


def standing_in(span: Span, around: TraceContext) -> TraceContext:
    """Where the requests made within a span stand. `around` has the caller's `tracestate`."""
    context = span.get_span_context()
    return TraceContext(
        f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled, around.state
    )


class WatchedTools:
    """A `ToolRunner` that hands everything on unchanged and keeps a span for each call."""

    def __init__(
        self,
        runner: ToolRunner,
        tracer: Tracer,
        parent: Context,
        trace: TraceContext,
        content: Content | None,
        start: Callable[[str, PlannedCall], Span] | None = None,
    ) -> None:
        """`start`: how the span of a call that has no parent begins."""
        self._runner = runner
        self._tracer = tracer
        self._parent = parent
        self._trace = trace
        self._content = content
        self._start = start or self._child
        self._open: dict[str, Span] = {}

    @property
    def inner(self) -> ToolRunner:
        """What is watched (see `app.observability.observers.own_tools`)."""
        return self._runner

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        return self._runner.definitions

    async def run(
        self, call: PlannedCall, *, sent_before: int = 0, resumed: Resumed | None = None
    ) -> ToolOutcome | Waiting:
        name = call.action.tool
        span = self._start(f"{EXECUTE_TOOL} {name}" if _NAME.match(name) else EXECUTE_TOOL, call)
        self._open[call.tool_call_id] = span
        if span.is_recording():
            self._describe(span, call, sent_before)
        outside = CURRENT.get()
        CURRENT.set(standing_in(span, self._trace))
        try:
            outcome = await self._runner.run(call, sent_before=sent_before, resumed=resumed)
        finally:
            CURRENT.set(outside)
        if isinstance(outcome, Waiting):  # this part of its life is over
            self._open.pop(call.tool_call_id, None)
            span.set_attribute("runwire.tool.waits", outcome.reason)
            span.end()
            return outcome
        # Only here: a call that was stopped gets its outcome from `cut`.
        self._end(call.tool_call_id, outcome, None)
        return outcome

    def cut(self, call: PlannedCall, reason: CutReason) -> ToolOutcome:
        outcome = self._runner.cut(call, reason)
        self._end(call.tool_call_id, outcome, reason)
        return outcome

    def leave(self) -> None:
        """End what is open without an outcome: it is known to nobody here."""
        for span in self._open.values():
            span.set_attribute("runwire.tool.cut", "left")
            span.end()
        self._open.clear()

    def _child(self, name: str, _: PlannedCall) -> Span:
        return self._tracer.start_span(name, self._parent, SpanKind.INTERNAL)

    def _describe(self, span: Span, call: PlannedCall, sent_before: int) -> None:
        name = call.action.tool
        attributes: dict[str, str | int] = {
            gen_ai.GEN_AI_OPERATION_NAME: EXECUTE_TOOL,
            gen_ai.GEN_AI_TOOL_CALL_ID: call.tool_call_id,
            gen_ai.GEN_AI_TOOL_TYPE: "function",
            "runwire.step": call.step,
        }
        if _NAME.match(name):
            attributes[gen_ai.GEN_AI_TOOL_NAME] = name
        tool = self._runner.find(name) if isinstance(self._runner, BoundTools) else None
        if tool is not None:
            attributes["runwire.tool.effect"] = tool.effect
            attributes["runwire.tool.source"] = tool.source
            if tool.version is not None:
                attributes["runwire.tool.version"] = tool.version
        if sent_before:
            attributes["runwire.tool.sent_before"] = sent_before
        if self._content is not None:
            attributes |= self._content.arguments(call)
        span.set_attributes(attributes)

    def _end(self, call_id: str, outcome: ToolOutcome, reason: CutReason | None) -> None:
        span = self._open.pop(call_id, None)
        if span is None:
            return
        if span.is_recording():
            attributes: dict[str, str | int] = {
                "runwire.tool.status": outcome.status,
                "runwire.tool.attempts": len(outcome.attempts),
            }
            if reason is not None:
                attributes["runwire.tool.cut"] = reason
            if outcome.error is not None and outcome.status != "cancelled":
                attributes[ERROR_TYPE] = code_of(outcome.error.get("code"))
                span.set_status(FAILED)
            if self._content is not None:
                attributes |= self._content.result(outcome)
            span.set_attributes(attributes)
            for attempt in outcome.attempts:
                _add_attempt(span, attempt)
        span.end()


def _add_attempt(span: Span, attempt: Mapping[str, object]) -> None:
    at, duration = attempt.get("at"), attempt.get("duration_ms")
    if not isinstance(at, int) or not isinstance(duration, float):  # of a process that is gone
        return
    attributes: dict[str, str | int | float] = {
        "runwire.tool.attempt": cast("int", attempt["attempt"]),
        "runwire.tool.outcome": code_of(attempt.get("outcome")),
        "runwire.tool.duration_ms": duration,
    }
    status = attempt.get("http_status")
    if isinstance(status, int):
        attributes[HTTP_RESPONSE_STATUS_CODE] = status
    span.add_event("runwire.tool.attempt", attributes, at * 1_000_000)
