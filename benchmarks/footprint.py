"""Footprint: start-up time, resident memory idle, by open stream, and after thousands of runs."""

import json
import socket
import statistics
import time
import urllib.request
from contextlib import ExitStack

from benchmarks import bodies
from benchmarks.options import Options
from benchmarks.processes import Server, load, runwire
from benchmarks.report import Report

STREAMS = 500
RUNS = 5000
SETTLE_S = 1.0


def run(options: Options) -> Report:
    report = Report("footprint: start and memory of one server process")
    starts: list[float] = []
    idle: list[float] = []
    for _ in range(options.rounds):
        with runwire() as server:
            starts.append(server.ready_s)
            idle.append(server.resident_mb)
    report.at_most("process start to /readyz 200", statistics.median(starts), 1.5, "s")
    report.at_most("resident memory, idle", statistics.median(idle), 120, "MB")
    with runwire() as server:
        _warm(server)
        report.at_most(f"an idle open stream, {STREAMS} on one run", _followers_kb(server), 60, "KB")
    with runwire() as server:
        _warm(server)
        report.add(f"an idle posted stream with its own run, {STREAMS}", f"{_posted_kb(server):.1f} KB")
    with runwire() as server:
        load(server, bodies.short(), clients=16, requests=500)
        before = server.resident_mb
        load(server, bodies.short(), clients=16, requests=RUNS)
        after = server.resident_mb
    report.add(f"resident memory before and after {RUNS:,} short runs", f"{before:.1f}, {after:.1f} MB")
    report.at_most(f"growth in {RUNS:,} short runs", after - before, 5, "MB")
    return report


def _warm(server: Server) -> None:
    """So that what is loaded or allocated on first use does not count as a stream's."""
    load(server, bodies.short(), clients=16, requests=200)


def _followers_kb(server: Server) -> float:
    run_id = _post(server, bodies.waiting(300))
    request = f"GET /runs/{run_id}/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    with ExitStack() as stack:
        return _each_kb(server, request, stack)


def _posted_kb(server: Server) -> float:
    body = bodies.waiting(300)
    head = f"POST /runs/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with ExitStack() as stack:
        return _each_kb(server, f"{head}\r\n\r\n".encode() + body, stack)


def _each_kb(server: Server, request: bytes, stack: ExitStack) -> float:
    """What each of `STREAMS` streams adds to the server's memory, KB (1,000 bytes), all of them past their first event."""
    before = server.resident_mb
    for _ in range(STREAMS):
        sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
        sock.sendall(request)
        seen = b""
        while b"event: run\n" not in seen:
            seen += sock.recv(65536)
    time.sleep(SETTLE_S)
    return (server.resident_mb - before) * 1000 / STREAMS


def _post(server: Server, body: bytes) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/runs", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(json.load(answer)["id"])
