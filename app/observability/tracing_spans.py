"""Run spans: `invoke_agent` for each attempt at a run, with `chat` and `execute_tool` spans under it.

Names and attributes are those of OpenTelemetry's GenAI conventions; ours begin with `runwire.`. What a span hangs from is
carried by the run's own objects, never looked up, so runs that go on at the same time cannot mix.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import lru_cache
from time import perf_counter
from typing import Protocol, cast
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.semconv.attributes.server_attributes import SERVER_ADDRESS, SERVER_PORT
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    TraceState,
    set_span_in_context,
)

from app.agent.ports import ModelAnswer, ModelCall, ModelRequest, Piece, PlannedCall, ToolRunner
from app.core.errors import ModelError
from app.core.trace import CURRENT, TraceContext, derived_span_id, of_run
from app.observability.tracing_content import Content
from app.observability.tracing_tools import FAILED, WatchedTools, code_of, standing_in
from app.runs.records import RunRecord, Transition

INVOKE_AGENT = "invoke_agent"
CHAT = "chat"

_IN_PROCESS = frozenset(("scripted", "demo"))
_PARAMS = {
    "temperature": gen_ai.GEN_AI_REQUEST_TEMPERATURE,
    "top_p": gen_ai.GEN_AI_REQUEST_TOP_P,
    "max_tokens": gen_ai.GEN_AI_REQUEST_MAX_TOKENS,
    "max_completion_tokens": gen_ai.GEN_AI_REQUEST_MAX_TOKENS,
}
_NOWHERE = Context()

MAX_NAME = 256
"""Characters of a model's name; a provider may answer with any."""

ModelFacts = Callable[[Mapping[str, object]], Mapping[str, object]]
"""What may be shown of a pinned model (`app.observability.tracing`)."""
Attributes = dict[str, str | int | float | bool | list[str]]


class NextIds(Protocol):
    """Ids that the span started next takes instead of random ones; the trace's only where it has no parent."""

    trace_id: int | None
    span_id: int | None


class SpanObserver:
    """The `Observer` that records spans."""

    def __init__(self, tracer: Tracer, ids: NextIds, facts: ModelFacts, content: Content | None) -> None:
        self._tracer = tracer
        self._ids = ids
        self._facts = facts
        self._content = content

    def driving(self, run: RunRecord) -> "RunSpans":
        trace = of_run(run.id, run.traceparent, run.tracestate)
        facts = self._facts(cast("Mapping[str, object]", run.spec["model"]))
        name = INVOKE_AGENT if run.agent is None else f"{INVOKE_AGENT} {run.agent}"
        links = [_link(trace, derived_span_id(run.id, run.attempt - 1))] if run.attempt > 1 else []
        span = self._start(name, trace, int(derived_span_id(run.id, run.attempt), 16), links)
        if span.is_recording():
            span.set_attributes(_run_attributes(run, facts))
        return RunSpans(self._tracer, span, trace, facts, self._content)

    def around(self, runner: ToolRunner, trace: TraceContext) -> ToolRunner:
        """Tools called outside a run: each call is a span under the caller's, or the only one of its trace."""

        def start(name: str, _: PlannedCall) -> Span:
            return self._start(name, trace, None, [])

        return WatchedTools(runner, self._tracer, _NOWHERE, trace, self._content, start)

    def _start(self, name: str, trace: TraceContext, span_id: int | None, links: list[Link]) -> Span:
        ids = self._ids
        ids.trace_id, ids.span_id = int(trace.trace_id, 16), span_id
        try:
            return self._tracer.start_span(name, _remote(trace), SpanKind.INTERNAL, links=links)
        finally:
            ids.trace_id = ids.span_id = None


class RunSpans:
    """The spans of one run under one claim (`RunObserver`)."""

    def __init__(
        self, tracer: Tracer, span: Span, trace: TraceContext, facts: Mapping[str, object], content: Content | None
    ) -> None:
        self._tracer = tracer
        self._span = span
        self._trace = trace
        self._content = content
        self._context = set_span_in_context(span, _NOWHERE)
        self._tools: WatchedTools | None = None
        self._input_tokens = self._output_tokens = self._calls = 0
        self._chat_name = f"{CHAT} {facts['model']}"[:MAX_NAME]
        self._chat_kind = SpanKind.INTERNAL if facts["provider"] in _IN_PROCESS else SpanKind.CLIENT
        self._chat_attributes = _chat_attributes(facts) if span.is_recording() else {}

    def model(self, call: ModelCall) -> ModelCall:
        def watched(request: ModelRequest) -> AsyncGenerator[Piece | ModelAnswer]:
            return self._chat(call, request)

        return watched

    def tools(self, runner: ToolRunner) -> ToolRunner:
        self._tools = WatchedTools(runner, self._tracer, self._context, self._trace, self._content)
        return self._tools

    def ended(self, transition: Transition) -> None:
        attributes: Attributes = {"runwire.run.status": transition.status}
        if transition.stop_reason is not None:
            attributes["runwire.run.stop_reason"] = transition.stop_reason
        if transition.status == "error":
            attributes[ERROR_TYPE] = code_of((transition.error or {}).get("code"))
            self._span.set_status(FAILED)
        self._end(attributes)

    def left(self) -> None:
        self._end({"runwire.run.status": "running", "runwire.run.left": True})

    def _end(self, attributes: Attributes) -> None:
        if self._tools is not None:
            self._tools.leave()
        attributes[gen_ai.GEN_AI_USAGE_INPUT_TOKENS] = self._input_tokens
        attributes[gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS] = self._output_tokens
        attributes["runwire.run.model_calls"] = self._calls
        self._span.set_attributes(attributes)
        self._span.end()

    async def _chat(self, call: ModelCall, request: ModelRequest) -> AsyncGenerator[Piece | ModelAnswer]:
        span = self._tracer.start_span(self._chat_name, self._context, self._chat_kind, self._chat_attributes)
        outside = CURRENT.get()
        CURRENT.set(standing_in(span, self._trace))
        begun, first = perf_counter(), 0.0
        answer: ModelAnswer | None = None
        failure: str | None = None
        try:
            async with aclosing(call(request)) as chunks:
                async for chunk in chunks:
                    first = first or perf_counter() - begun
                    if isinstance(chunk, ModelAnswer):
                        answer = chunk
                    yield chunk
            if answer is None:
                failure = "model_empty_response"
        except ModelError as error:
            failure = error.code
            raise
        except Exception:
            failure = "internal_error"
            raise
        finally:
            CURRENT.set(outside)
            self._end_chat(span, request, answer, failure, first)

    def _end_chat(
        self, span: Span, request: ModelRequest, answer: ModelAnswer | None, failure: str | None, first: float
    ) -> None:
        self._calls += 1
        attributes: Attributes = {}
        if answer is not None:
            self._input_tokens += answer.tokens.input_tokens
            self._output_tokens += answer.tokens.output_tokens
        if not span.is_recording():
            return
        if answer is not None:
            attributes = _answer_attributes(answer)
        if first:
            attributes[gen_ai.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK] = first
        if failure is not None:
            attributes[ERROR_TYPE] = code_of(failure)
            span.set_status(FAILED)
        elif answer is None:
            attributes["runwire.model.cut"] = True  # cancelled, out of time, or left
        if self._content is not None:
            attributes |= self._content.asked(request)
            if answer is not None:
                attributes |= self._content.answered(answer)
        span.set_attributes(attributes)
        span.end()


def _remote(trace: TraceContext) -> Context:
    """The caller's span as a parent; nothing where the trace begins here."""
    if trace.span_id is None:
        return _NOWHERE
    return set_span_in_context(NonRecordingSpan(_span_context(trace, trace.span_id)), _NOWHERE)


def _link(trace: TraceContext, span_id: str) -> Link:
    return Link(_span_context(trace, span_id), {"runwire.link": "earlier_attempt"})


def _span_context(trace: TraceContext, span_id: str) -> SpanContext:
    state = None if trace.state is None else TraceState.from_header([trace.state])
    flags = TraceFlags(TraceFlags.SAMPLED if trace.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(trace.trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=flags, trace_state=state)


def _run_attributes(run: RunRecord, facts: Mapping[str, object]) -> Attributes:
    attributes: Attributes = {
        gen_ai.GEN_AI_OPERATION_NAME: INVOKE_AGENT,
        gen_ai.GEN_AI_CONVERSATION_ID: run.thread_id,
        gen_ai.GEN_AI_PROVIDER_NAME: str(facts["provider"]),
        gen_ai.GEN_AI_REQUEST_MODEL: str(facts["model"])[:MAX_NAME],
        "runwire.run.id": run.id,
        "runwire.run.attempt": run.attempt,
        "runwire.tenant": run.tenant,
    }
    if run.agent is not None:
        attributes[gen_ai.GEN_AI_AGENT_NAME] = run.agent
        version = run.spec.get("agent_version")
        if version is not None:
            attributes[gen_ai.GEN_AI_AGENT_VERSION] = str(version)
    return attributes


def _chat_attributes(facts: Mapping[str, object]) -> Attributes:
    attributes: Attributes = {
        gen_ai.GEN_AI_OPERATION_NAME: CHAT,
        gen_ai.GEN_AI_PROVIDER_NAME: str(facts["provider"]),
        gen_ai.GEN_AI_REQUEST_MODEL: str(facts["model"])[:MAX_NAME],
    }
    if facts.get("alias") is not None:
        attributes["runwire.model.alias"] = str(facts["alias"])
    params = cast("Mapping[str, object]", facts.get("params") or {})
    for name, attribute in _PARAMS.items():
        value = params.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            attributes[attribute] = value
    base_url = facts.get("base_url")
    if isinstance(base_url, str):
        attributes |= _address(base_url)
    return attributes


@lru_cache(maxsize=64)
def _address(base_url: str) -> Attributes:
    try:
        url = urlsplit(base_url)
        port = url.port or (80 if url.scheme == "http" else 443)
    except ValueError:
        return {}
    return {SERVER_ADDRESS: url.hostname, SERVER_PORT: port} if url.hostname else {}


def _answer_attributes(answer: ModelAnswer) -> Attributes:
    attributes: Attributes = {
        gen_ai.GEN_AI_RESPONSE_FINISH_REASONS: [answer.finish_reason],
        gen_ai.GEN_AI_USAGE_INPUT_TOKENS: answer.tokens.input_tokens,
        gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS: answer.tokens.output_tokens,
    }
    if answer.model:
        attributes[gen_ai.GEN_AI_RESPONSE_MODEL] = answer.model[:MAX_NAME]
    return attributes
