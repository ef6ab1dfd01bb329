"""Parallel tools: one round of 100 calls of a 50 ms plugin tool, from its first `action` to its last `step` event."""

import asyncio
import statistics
import time

from benchmarks import bodies
from benchmarks.options import Options
from benchmarks.plugin import PAUSE_S, pause
from benchmarks.processes import Load, load, runwire
from benchmarks.report import Report

CALLS = 100


def run(options: Options) -> Report:
    body = bodies.parallel(CALLS)
    spans: list[float] = []
    bare: list[float] = []
    with runwire() as server:
        load(server, body, clients=1, requests=1)
        for _ in range(options.rounds):
            spans.append(_span_ms(load(server, body, clients=1, requests=1)))
            bare.append(asyncio.run(_gather_ms()))
    report = Report(f"parallel_tools: {CALLS} calls of a {PAUSE_S * 1000:.0f} ms tool in one round, durable")
    report.at_most("first action to last step", statistics.median(spans), 1.3 * PAUSE_S * 1000, "ms")
    report.add("asyncio.gather of the same functions", f"{statistics.median(bare):.1f} ms")
    report.add("worst round", f"{max(spans):.1f} ms")
    return report


def _span_ms(found: Load) -> float:
    """Between the reads that brought the first `action` and the last `step`."""
    begin, end = found.sample.index(b"event: action"), found.sample.rindex(b"event: step")
    first = next(at for at, size in found.at if size > begin)
    last = next(at for at, size in found.at if size > end)
    return last - first


async def _gather_ms() -> float:
    begun = time.perf_counter()
    await asyncio.gather(*(pause(number) for number in range(CALLS)))
    return (time.perf_counter() - begun) * 1000
