"""An OTLP collector: real HTTP, real protobuf, in this process.

    async with OtlpCollector() as collector:
        ...  # a server with collector.env
        await collector.until(lambda spans: len(spans) == 4)
        assert collector.spans[0].name == "chat any"

It may also refuse every request, or hang in it: `OtlpCollector(status=503)`, `OtlpCollector(hang=True)`.
"""

import asyncio
import contextlib
import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

TIMEOUT_S = 20.0
"""How long a test waits for spans before it is a failure."""

ERROR = 2
"""`status` of a failed span (STATUS_CODE_ERROR)."""

INTERNAL, CLIENT = 1, 3


@dataclass(frozen=True, slots=True)
class CollectedEvent:
    name: str
    attributes: dict[str, object]


@dataclass(frozen=True, slots=True)
class CollectedSpan:
    """A span as it arrived. Ids are hexadecimal, `parent` empty for a root, times nanoseconds since the epoch."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    attributes: dict[str, object]
    status: int
    status_message: str
    events: tuple[CollectedEvent, ...]
    links: tuple[tuple[str, str], ...]
    """(trace id, span id)."""
    state: str
    start: int
    end: int
    resource: dict[str, object]


class OtlpCollector:
    """Listens on a free loopback port while the context is open; `bodies` are the requests' bytes, decompressed."""

    def __init__(self, *, status: int = 200, hang: bool = False) -> None:
        self._status = status
        self._hang = hang
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self.url = ""
        self.spans: list[CollectedSpan] = []
        self.bodies: list[bytes] = []
        self.heads: list[str] = []
        self.requests = 0

    @property
    def env(self) -> dict[str, str]:
        """For a server that sends its spans here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=2**24)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, reached: Callable[[Sequence[CollectedSpan]], bool]) -> list[CollectedSpan]:
        """Wait for spans; all that came."""
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: reached(self.spans))
        return list(self.spans)

    async def until_asked(self) -> None:
        """Wait for a request, whatever became of it."""
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: self.requests > 0)

    async def run(self, run_id: object, *, attempts: int = 1) -> list[CollectedSpan]:
        """All spans of a run's trace when its attempts have ended, each before what is under it."""

        def of_run(spans: Sequence[CollectedSpan]) -> list[CollectedSpan]:
            return [span for span in spans if span.attributes.get("runwire.run.id") == run_id]

        spans = await self.until(lambda spans: len(of_run(spans)) >= attempts)
        traces = {span.trace for span in of_run(spans)}
        return sorted((span for span in spans if span.trace in traces), key=lambda span: span.start)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests += 1
        self.heads.append(head)
        if self._hang:
            await self._tell()
            await reader.read()
            return
        if self._status == 200:
            assert first.startswith("POST /v1/traces ")
            assert headers["content-type"] == "application/x-protobuf"
            raw = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
            self.bodies.append(raw)
            self.spans += decode(raw)
        await self._tell()
        answer = ExportTraceServiceResponse().SerializeToString()
        writer.write(f"HTTP/1.1 {self._status} X\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)
        await writer.drain()

    async def _tell(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            async with self._changed:
                self._changed.notify_all()


def decode(body: bytes) -> list[CollectedSpan]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        _span(span, _attributes(group.resource.attributes))
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _span(span: WireSpan, resource: dict[str, object]) -> CollectedSpan:
    return CollectedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        _attributes(span.attributes),
        span.status.code,
        span.status.message,
        tuple(CollectedEvent(event.name, _attributes(event.attributes)) for event in span.events),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        span.trace_state,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        resource,
    )


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, object]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return None if kind is None else getattr(value, kind)
