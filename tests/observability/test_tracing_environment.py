"""What the OTEL_ environment asks for, and what a server without it does not load."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.observability.tracing_environment import TracingError, wanted_exporters, wants_content
from tests.support.server import ROOT, RunwireServer

HERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, ()),
        (HERE, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://collector.example.com/v1/traces"}, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, ()),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://localhost:4318"}, ()),
        ({**HERE, "OTEL_SDK_DISABLED": "TRUE"}, ()),
        ({**HERE, "OTEL_SDK_DISABLED": "false"}, ("otlp",)),
        ({**HERE, "OTEL_TRACES_EXPORTER": "none"}, ()),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ("otlp",)),
        ({"OTEL_TRACES_EXPORTER": "console, otlp,console"}, ("console", "otlp")),
        ({**HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, ("otlp",)),
        (
            {**HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            ("otlp",),
        ),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ("console",)),
    ],
)
def test_spans_are_exported_where_the_environment_says_so(environ: dict[str, str], wanted: tuple[str, ...]) -> None:
    assert wanted_exporters(environ) == wanted


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER"),
        ({**HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ({**HERE, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    ],
)
def test_what_there_is_not_is_refused_by_its_name(environ: dict[str, str], named: str) -> None:
    with pytest.raises(TracingError, match=named):
        wanted_exporters(environ)


@pytest.mark.parametrize(
    ("given", "on"), [("", False), ("false", False), ("no_content", False), ("event_only", False), ("TRUE", True)]
)
def test_content_is_recorded_only_on_request(given: str, on: bool) -> None:
    assert wants_content({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": given}) is on
    assert not wants_content({})


def test_a_server_told_to_use_grpc_says_so_and_does_not_start(tmp_path: Path) -> None:
    server = RunwireServer(tmp_path, {**HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    server.process = server.spawn()
    assert server.wait() == 2
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc is not supported" in server.log()


@pytest.mark.parametrize("environ", [{}, {**HERE, "OTEL_SDK_DISABLED": "true"}])
def test_without_an_exporter_nothing_of_the_sdk_is_loaded(tmp_path: Path, environ: dict[str, str]) -> None:
    program = """
import asyncio, sys, threading
from app.settings import load
from app.wiring import build
async def main():
    parts = build(load())
    await parts.start()
    await parts.stop()
    assert parts.tracing is None
asyncio.run(main())
heavy = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto", "opentelemetry.semconv", "requests")
print([name for name in sys.modules if name.startswith(heavy)])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_spans_may_go_to_the_console(tmp_path: Path) -> None:
    with RunwireServer.open(
        tmp_path, args=("--demo",), keys="", env={"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    ) as server:
        process = server.process
        assert process is not None
        assert process.stdout is not None
        assert any(b'"name": "invoke_agent demo"' in line for line in process.stdout)  # the greeting's run
        assert server.kill(signal.SIGTERM) == 0
