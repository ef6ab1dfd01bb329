"""Metrics of runs: an observer that counts their ends, model calls and tool calls."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from time import perf_counter
from typing import cast

from app.agent.ports import (
    CutReason,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    Piece,
    PlannedCall,
    Resumed,
    ToolDefinition,
    ToolOutcome,
    ToolRunner,
    Waiting,
)
from app.core.errors import ModelError
from app.core.usage import TokenUsage
from app.observability.observers import own_tools
from app.observability.series import Count, Counters, Histograms, Names, Spread
from app.runs.records import RunRecord, Transition

CALL_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
"""Buckets for what models and tools take: milliseconds to half an hour."""

RUN_S = (*CALL_S, 3600, 14400)

INLINE = "_inline"
"""The model of a tenant's own address: its name means something there only."""

UNKNOWN_TOOL = "_unknown"
"""A tool that the model made up. Its name is the model's text and no label."""

ANSWER_TOOL = "_answer"
"""The tool that takes a structured answer. Its name is the schema's title, and nothing is called."""

MAX_OUTCOMES = 50
"""Error codes of models; those of ours are fewer, a plugin may have its own."""


class RunMetrics:
    """The series of runs, for all runs of the process. An `Observer`."""

    def __init__(self) -> None:
        model = ("provider", "model")
        self.runs = Counters("runwire_runs_total", "Runs that came to their end.", "status", "stop_reason")
        self.run_seconds = Histograms(
            "runwire_run_duration_seconds", "From a run's creation to its end, waits included.", "status", bounds=RUN_S
        )
        self.model_seconds = Histograms(
            "runwire_model_call_duration_seconds", "Model calls to the whole answer.", *model, "outcome", bounds=CALL_S
        )
        self.first_chunk = Histograms(
            "runwire_model_first_chunk_seconds", "From a model call to its first chunk.", *model, bounds=CALL_S
        )
        self.tokens = Counters("runwire_model_tokens_total", "Tokens as the provider counted them.", *model, "kind")
        self.cost = Counters("runwire_model_cost_usd_total", "What model calls cost, where prices are known.", *model)
        self.tool_seconds = Histograms(
            "runwire_tool_call_duration_seconds",
            "Tool calls with all their attempts.",
            *("tool", "source", "status"),
            bounds=CALL_S,
        )
        self.tool_calls = Counters("runwire_tool_calls_total", "Tool calls by their end.", "tool", "effect", "status")
        self.tool_attempts = Counters("runwire_tool_attempts_total", "Attempts at tool calls.", "tool")
        self.tool_unknown = Counters(
            "runwire_tool_unknown_outcomes_total",
            "Tool calls of which nobody can tell whether they took effect.",
            "tool",
        )
        self.model_names, self.tool_names, self.outcomes = Names(), Names(), Names(MAX_OUTCOMES)
        self._of_model: dict[tuple[str, str], _ModelSeries] = {}
        self._of_tool: dict[tuple[str, str, str], _ToolSeries] = {}

    @property
    def counters(self) -> Sequence[Counters]:
        return (self.runs, self.tokens, self.cost, self.tool_calls, self.tool_attempts, self.tool_unknown)

    @property
    def histograms(self) -> Sequence[Histograms]:
        return (self.run_seconds, self.model_seconds, self.first_chunk, self.tool_seconds)

    def driving(self, run: RunRecord) -> "_MeteredRun":
        return _MeteredRun(self, run)

    def of_model(self, pinned: Mapping[str, object]) -> "_ModelSeries":
        """The series of a pinned model. An alias counts by its name, under the provider `alias`."""
        provider = str(pinned.get("provider"))
        name = INLINE if pinned.get("base_url") else str(pinned.get("model"))
        found = self._of_model.get((provider, name))
        if found is None:
            key = provider, name if name == INLINE else self.model_names.label(name)
            found = self._of_model.get(key)
            if found is None:
                found = self._of_model[key] = _ModelSeries(self, *key)
        return found

    def of_tool(self, name: str, source: str, effect: str) -> "_ToolSeries":
        found = self._of_tool.get((name, source, effect))
        if found is None:
            key = name if name in (UNKNOWN_TOOL, ANSWER_TOOL) else self.tool_names.label(name), source, effect
            found = self._of_tool.get(key)
            if found is None:
                found = self._of_tool[key] = _ToolSeries(self, *key)
        return found


class _ModelSeries:
    """The series of one model."""

    __slots__ = ("_key", "_metrics", "answered", "cost", "first_chunk", "input", "output")

    def __init__(self, metrics: RunMetrics, provider: str, name: str) -> None:
        self._metrics = metrics
        self._key = provider, name
        self.answered = metrics.model_seconds.of(provider, name, "success")
        self.first_chunk = metrics.first_chunk.of(provider, name)
        self.input = metrics.tokens.of(provider, name, "input")
        self.output = metrics.tokens.of(provider, name, "output")
        self.cost: Count | None = None

    def used(self, tokens: TokenUsage) -> None:
        self.input.value += tokens.input_tokens
        self.output.value += tokens.output_tokens
        if tokens.cost_usd is not None:
            if self.cost is None:
                self.cost = self._metrics.cost.of(*self._key)
            self.cost.value += tokens.cost_usd

    def failed(self, outcome: str, seconds: float) -> None:
        self._metrics.model_seconds.of(*self._key, self._metrics.outcomes.label(outcome)).observe(seconds)


class _ToolSeries:
    """The series of one tool."""

    __slots__ = ("_ends", "_key", "_metrics", "attempts", "unknown")

    def __init__(self, metrics: RunMetrics, name: str, source: str, effect: str) -> None:
        self._metrics = metrics
        self._key = name, source, effect
        self._ends: dict[str, tuple[Count, Spread]] = {}
        self.attempts = metrics.tool_attempts.of(name)
        self.unknown = metrics.tool_unknown.of(name)

    def ended(self, outcome: ToolOutcome) -> None:
        status = outcome.status
        end = self._ends.get(status)
        if end is None:
            name, source, effect = self._key
            count = self._metrics.tool_calls.of(name, effect, status)
            end = self._ends[status] = count, self._metrics.tool_seconds.of(name, source, status)
        end[0].value += 1
        end[1].observe(outcome.duration_ms / 1000)
        self.attempts.value += len(outcome.attempts)
        if status == "unknown":
            self.unknown.value += 1


class _MeteredRun:
    """A `RunObserver`."""

    __slots__ = ("_metrics", "_run")

    def __init__(self, metrics: RunMetrics, run: RunRecord) -> None:
        self._metrics = metrics
        self._run = run

    def model(self, call: ModelCall) -> ModelCall:
        series = self._metrics.of_model(cast("dict[str, object]", self._run.spec["model"]))

        async def metered(request: ModelRequest) -> AsyncGenerator[Piece | ModelAnswer]:
            began, outcome, first = perf_counter(), "cancelled", True
            chunks = call(request)
            try:
                async for chunk in chunks:
                    if first:
                        first = False
                        series.first_chunk.observe(perf_counter() - began)
                    if isinstance(chunk, ModelAnswer):
                        outcome = ""
                        series.answered.observe(perf_counter() - began)
                        series.used(chunk.tokens)
                    yield chunk
            except ModelError as error:
                outcome = error.code
                raise
            except Exception:
                outcome = "internal_error"
                raise
            finally:
                if outcome:
                    series.failed(outcome, perf_counter() - began)
                await chunks.aclose()

        return metered

    def tools(self, runner: ToolRunner) -> ToolRunner:
        return _MeteredTools(self._metrics, runner, cast("list[Mapping[str, object]]", self._run.spec["tools"]))

    def ended(self, transition: Transition) -> None:
        metrics, status = self._metrics, transition.status
        metrics.runs.of(status, transition.stop_reason or "").value += 1
        if transition.finished_at is not None:
            seconds = max(0, transition.finished_at - self._run.created_at) / 1000
            metrics.run_seconds.of(status).observe(seconds)

    def left(self) -> None:
        pass


class _MeteredTools:
    """A `ToolRunner` that counts each call once: when it ends, or when it is cut."""

    __slots__ = ("_metrics", "_own", "_pins", "inner")

    def __init__(self, metrics: RunMetrics, runner: ToolRunner, pins: Sequence[Mapping[str, object]]) -> None:
        self._metrics = metrics
        self.inner = runner
        self._own = own_tools(runner)
        self._pins = pins

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        return self.inner.definitions

    async def run(
        self, call: PlannedCall, *, sent_before: int = 0, resumed: Resumed | None = None
    ) -> ToolOutcome | Waiting:
        outcome = await self.inner.run(call, sent_before=sent_before, resumed=resumed)
        if isinstance(outcome, ToolOutcome):
            self._series(call).ended(outcome)
        return outcome

    def cut(self, call: PlannedCall, reason: CutReason) -> ToolOutcome:
        outcome = self.inner.cut(call, reason)
        self._series(call).ended(outcome)
        return outcome

    def _series(self, call: PlannedCall) -> _ToolSeries:
        name = call.action.tool
        tool = None if self._own is None else self._own.find(name)
        if tool is not None:
            return self._metrics.of_tool(name, tool.source, tool.effect)
        for pin in self._pins:
            if pin["name"] == name:  # withdrawn, or the run's tools could not be built again
                return self._metrics.of_tool(name, str(pin["source"]), "unknown")
        if self._own is not None and self._own.takes_answer(name):
            return self._metrics.of_tool(ANSWER_TOOL, "none", "none")
        return self._metrics.of_tool(UNKNOWN_TOOL, "none", "none")
