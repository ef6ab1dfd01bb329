"""Short runs over HTTP: one server process, durable SQLite, 16 keep-alive clients, each stream read to its end."""

import statistics

from benchmarks import bodies
from benchmarks.options import Options
from benchmarks.processes import load, runwire
from benchmarks.report import Report
from benchmarks.streams import compare, percentile

CLIENTS = 16
RUNS = 1000


def run(options: Options) -> Report:
    body = bodies.short()
    found = compare("short_runs", body, options, clients=CLIENTS, requests=RUNS)
    with runwire() as server:
        load(server, body, clients=1, requests=30)
        first = load(server, body, clients=1, requests=200)
    report = Report(f"short_runs: two model calls and a tool, {CLIENTS} clients, durable")
    report.at_least("runs/s : bare StreamingResponse, event by event", found.by_event, 0.25)
    report.add("runs/s : bare StreamingResponse, one piece", f"{found.by_whole:.3f}")
    report.add("runs/s", f"{found.rate:,.0f}")
    report.add("bare/s, event by event", f"{found.event_rate:,.0f}")
    report.add("bare/s, one piece", f"{found.whole_rate:,.0f}")
    report.add("bare CPU : server CPU, event by event", f"{found.by_event_cpu:.3f}")
    report.add("server CPU a run", f"{found.cpu_ms:.2f} ms")
    report.add("bare CPU a request", f"{found.event_cpu_ms:.2f} ms")
    report.add("p50 of a whole run, loaded", f"{found.p50_ms:.1f} ms")
    report.add("p99 of a whole run, loaded", f"{found.p99_ms:.1f} ms")
    report.at_most("p50 from POST to first event, unloaded", statistics.median(first.first_ms), 10, "ms")
    report.add("p99 from POST to first event, unloaded", f"{percentile(first.first_ms, 0.99):.1f} ms")
    report.add("p50 of a whole run, unloaded", f"{statistics.median(first.total_ms):.1f} ms")
    return report
