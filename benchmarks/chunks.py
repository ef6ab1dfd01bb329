"""Token streams: 50 runs at once, each 2,000 chunks, every chunk an event that is durable before it is sent."""

from benchmarks import bodies
from benchmarks.options import Options
from benchmarks.report import Report
from benchmarks.streams import compare

CLIENTS = 50
CHUNKS = 2000


def run(options: Options) -> Report:
    found = compare("chunks", bodies.chunks(CHUNKS), options, clients=CLIENTS, requests=CLIENTS)
    report = Report(f"chunks: {CLIENTS} runs at once, {CHUNKS:,} chunks each, durable")
    report.at_least("chunks/s : bare StreamingResponse, event by event", found.by_event, 0.30)
    report.add("chunks/s", f"{found.rate * CHUNKS:,.0f}")
    report.add("bare chunks/s, event by event", f"{found.event_rate * CHUNKS:,.0f}")
    report.add("bare CPU : server CPU, event by event", f"{found.by_event_cpu:.3f}")
    report.add("server CPU a chunk", f"{found.cpu_ms / CHUNKS * 1000:.1f} µs")
    report.add("bare CPU a chunk", f"{found.event_cpu_ms / CHUNKS * 1000:.1f} µs")
    report.add("bytes a chunk", f"{len(found.sample.sample) / CHUNKS:.0f}")
    report.add("p50 of a whole stream", f"{found.p50_ms:,.0f} ms")
    return report
