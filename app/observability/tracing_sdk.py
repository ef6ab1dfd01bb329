"""The OpenTelemetry SDK behind the spans: a provider of our own, one queue, and an exporter whose failures stay small.

Nothing here is global: a plugin that brings its own OpenTelemetry set-up is not in our way, nor we in its.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence

import structlog
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from app.agent.ports import ToolRunner
from app.core.trace import TraceContext
from app.observability.tracing_content import Content
from app.observability.tracing_environment import TracingError
from app.observability.tracing_spans import ModelFacts, SpanObserver

FLUSH_S = 2.0
"""How long a stopping server waits for the collector to take what is left."""

FLUSH_FAILING_S = 0.3
"""The same where the collector did not take the last batch."""

WARN_EVERY_S = 60.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger("runwire.tracing")


class RunIds(RandomIdGenerator):
    """Ids of spans: random, but for the span of a run's attempt, which the next attempt must be able to name.

    Spans start on the event loop only, and a start does not await: so the next id can be left here for it.
    """

    def __init__(self) -> None:
        self.trace_id: int | None = None
        self.span_id: int | None = None

    def generate_trace_id(self) -> int:
        return self.trace_id or super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.span_id or super().generate_span_id()


class QuietExporter(SpanExporter):
    """Hands spans on. A collector that is down, slow or refusing costs its spans and a warning a minute, nothing else."""

    def __init__(self, exporter: SpanExporter, clock: Callable[[], float] = time.monotonic) -> None:
        self._exporter = exporter
        self._clock = clock
        self._warned: float | None = None
        self._lost = 0
        self.failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception:  # noqa: BLE001  # the named boundary to the exporter; its texts may hold addresses and headers
            result = SpanExportResult.FAILURE
        self.failing = result is not SpanExportResult.SUCCESS
        if self.failing:
            self._lost += len(spans)
            now = self._clock()
            if self._warned is None or now - self._warned >= WARN_EVERY_S:
                self._warned = now
                _log.warning("spans_not_exported", spans_lost=self._lost)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class SdkTracing:
    """`Tracing` with the SDK."""

    def __init__(self, exporters: Sequence[str], facts: ModelFacts, *, version: str, content: Content | None) -> None:
        """Raises `TracingError` for what the SDK cannot use of its environment."""
        _silence_sdk()
        ids = RunIds()
        try:
            self._provider = TracerProvider(resource=_resource(version), id_generator=ids, shutdown_on_exit=False)
            self._exporters = [QuietExporter(_exporter(name)) for name in exporters]
            for exporter in self._exporters:
                self._provider.add_span_processor(BatchSpanProcessor(exporter))
        except (ValueError, OSError) as error:
            raise TracingError(f"The OTEL_ variables cannot be used: {type(error).__name__}.") from error
        tracer = self._provider.get_tracer("runwire", version)
        self._observer = SpanObserver(tracer, ids, facts, content)

    @property
    def observer(self) -> SpanObserver:
        return self._observer

    def around(self, runner: ToolRunner, trace: TraceContext) -> ToolRunner:
        return self._observer.around(runner, trace)

    async def close(self) -> None:
        """The SDK's own end waits 30 s for a collector, so it goes on in a thread that does not keep the process."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=shut, name="runwire-spans-last", daemon=True).start()
        patience = FLUSH_FAILING_S if any(exporter.failing for exporter in self._exporters) else FLUSH_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await done.wait()


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _resource(version: str) -> Resource:
    """What the environment says of this service comes before what we say of it."""
    ours = {"service.name": "runwire", "service.version": version}
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})


def _silence_sdk() -> None:
    """The SDK logs each failed batch and each dropped span; `QuietExporter` says it once a minute."""
    for name in ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
