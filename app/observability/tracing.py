"""Tracing: spans of what this process runs, exported where the standard OTEL_ environment says so.

The OpenTelemetry SDK costs a start-up time and memory, so it is imported only when spans are to be exported.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from app.agent.ports import ToolRunner
from app.core.trace import TraceContext
from app.observability.tracing_environment import wanted_exporters, wants_content
from app.runs.observer import Observer

ModelFacts = Callable[[Mapping[str, object]], Mapping[str, object]]
"""What may be shown of a pinned model: `{"provider","model","params","base_url","alias"}`; the address only where it is the operator's."""


class Tracing(Protocol):
    """Spans of everything this process runs."""

    @property
    def observer(self) -> Observer: ...

    def around(self, runner: ToolRunner, trace: TraceContext) -> ToolRunner:
        """Tools that are called outside a run, watched; `trace` is the caller's, or the call's own."""
        ...

    async def close(self) -> None:
        """Send what is left, within two seconds. No span is recorded afterwards."""
        ...


def open_tracing(
    environ: Mapping[str, str], facts: ModelFacts, *, version: str, secrets: Iterable[str] = ()
) -> Tracing | None:
    """The tracing that the environment asks for; `None` when it asks for none. Raises `TracingError`.

    `secrets`: the server's own, which must be in no span.
    Everything that is not checked here (sampling, limits, batches, headers, certificates) is read by the SDK itself.
    """
    exporters = wanted_exporters(environ)
    if not exporters:
        return None
    from app.observability.tracing_sdk import SdkTracing

    content = None
    if wants_content(environ):
        from app.observability.tracing_content import Content

        content = Content(secrets)
    return SdkTracing(exporters, facts, version=version, content=content)
