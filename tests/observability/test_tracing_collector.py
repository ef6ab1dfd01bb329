"""A collector that is down, slow or refusing: runs, the log and the end of the server do not suffer."""

import asyncio
import json
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from structlog.testing import capture_logs

from app.observability.tracing_sdk import WARN_EVERY_S, QuietExporter
from tests.support.bodies import run_body, says, scripted
from tests.support.otlp_collector import OtlpCollector
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

BODY = run_body(scripted(says("done")))
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "20", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}


def warnings(server: RunwireServer) -> list[str]:
    lines = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
    return [line["event"] for line in lines if line["level"] in ("warning", "error", "critical")]


async def some_runs(server: RunwireServer, count: int = 5) -> None:
    async with server.client() as client:
        for _ in range(count):
            assert (await client.post("/runs/wait", json=BODY)).json()["status"] == "success"


async def test_a_refusing_collector_costs_one_warning(tmp_path: Path) -> None:
    async with OtlpCollector(status=400) as collector:
        with RunwireServer.open(tmp_path, env={**collector.env, **SOON}) as server:
            for _ in range(3):
                asked = collector.requests
                await some_runs(server)
                await collector.until(lambda _, asked=asked: collector.requests > asked)
            server.signal(signal.SIGTERM)
            assert await asyncio.to_thread(server.wait) == 0
    assert warnings(server) == ["spans_not_exported"]
    assert "Traceback" not in server.log()


async def test_a_hanging_collector_delays_neither_runs_nor_the_end(tmp_path: Path) -> None:
    async with OtlpCollector(hang=True) as collector:
        # Its own patience is longer than the server may take to end.
        with RunwireServer.open(tmp_path, env={**collector.env, "OTEL_EXPORTER_OTLP_TIMEOUT": "60"}) as server:
            await some_runs(server)
            await collector.until_asked()
            await some_runs(server)
            server.signal(signal.SIGTERM)
            assert await asyncio.to_thread(server.wait) == 0
    assert warnings(server) == []


async def test_a_collector_that_is_not_there_delays_neither_runs_nor_the_end(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: refused
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with RunwireServer.open(tmp_path, env={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}) as server:
            await some_runs(server)
            server.signal(signal.SIGTERM)
            assert await asyncio.to_thread(server.wait) == 0
    assert "Traceback" not in server.log()


async def test_what_is_left_is_sent_before_the_server_ends(tmp_path: Path) -> None:
    async with OtlpCollector() as collector:
        # So long a delay that only the end can send it.
        env = {**collector.env, "OTEL_BSP_SCHEDULE_DELAY": "600000"}
        with RunwireServer.open(tmp_path, env=env) as server:
            await some_runs(server, 3)
            assert collector.requests == 0
            server.signal(signal.SIGTERM)
            assert await asyncio.to_thread(server.wait) == 0
    assert sorted(span.name for span in collector.spans) == ["chat scripted"] * 3 + ["invoke_agent"] * 3


class Failing(SpanExporter):
    def __init__(self) -> None:
        self.result: SpanExportResult | Exception = SpanExportResult.FAILURE

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def test_a_lasting_failure_is_told_once_a_minute_without_its_text() -> None:
    now = [0.0]
    inner = Failing()
    exporter = QuietExporter(inner, clock=lambda: now[0])
    span = ReadableSpan("x")
    with capture_logs() as logs:
        for second in range(int(WARN_EVERY_S) * 2):
            now[0] = float(second)
            inner.result = RuntimeError("http://user:password@collector") if second % 2 else SpanExportResult.FAILURE
            assert exporter.export([span]) is SpanExportResult.FAILURE
        assert exporter.failing
        inner.result = SpanExportResult.SUCCESS
        assert exporter.export([span]) is SpanExportResult.SUCCESS
        assert not exporter.failing
    assert logs == [
        {"event": "spans_not_exported", "spans_lost": 1, "log_level": "warning"},
        {"event": "spans_not_exported", "spans_lost": 61, "log_level": "warning"},
    ]
