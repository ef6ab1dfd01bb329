"""Streams compared: the same bytes from Runwire and from the bare baseline, by the same client, in alternated rounds."""

import contextlib
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.options import Options
from benchmarks.processes import Load, Server, bare, load, runwire

EVENT_END = re.compile(rb"(?<=\n\n)(?=id: )")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Medians of the rounds. Rates are requests/s; CPU is of the server process, milliseconds a request."""

    sample: Load
    rate: float
    event_rate: float
    """Of the baseline that yields the same bytes event by event."""
    whole_rate: float
    """Of the baseline that yields them in one piece."""
    by_event: float
    """Rate : rate of the baseline that yields event by event."""
    by_whole: float
    by_event_cpu: float
    """CPU of the baseline : CPU of Runwire, a request each: what is left of the ratio on a machine with idle cores."""
    cpu_ms: float
    event_cpu_ms: float
    p50_ms: float
    p99_ms: float


def compare(name: str, body: bytes, options: Options, *, clients: int, requests: int) -> Comparison:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(runwire(samples=options.samples(name)))
        sample = load(server, body, clients=1, requests=1)
        events = stack.enter_context(bare(EVENT_END.split(sample.sample)))
        whole = stack.enter_context(bare([sample.sample]))
        load(server, body, clients=clients, requests=max(clients, requests // 4))
        load(events, body, clients=clients, requests=max(clients, requests // 4))
        rounds = [
            tuple(_measure(target, body, clients, requests) for target in (server, events, whole))
            for _ in range(options.rounds)
        ]
        total = [item for ours, _, _ in rounds for item in ours.load.total_ms]
        return Comparison(
            sample,
            statistics.median(ours.rate for ours, _, _ in rounds),
            statistics.median(theirs.rate for _, theirs, _ in rounds),
            statistics.median(theirs.rate for _, _, theirs in rounds),
            statistics.median(ours.rate / theirs.rate for ours, theirs, _ in rounds),
            statistics.median(ours.rate / theirs.rate for ours, _, theirs in rounds),
            statistics.median(theirs.cpu_ms / ours.cpu_ms for ours, theirs, _ in rounds),
            statistics.median(ours.cpu_ms for ours, _, _ in rounds),
            statistics.median(theirs.cpu_ms for _, theirs, _ in rounds),
            statistics.median(total),
            percentile(total, 0.99),
        )


@dataclass(frozen=True, slots=True)
class _Measured:
    load: Load
    cpu_ms: float

    @property
    def rate(self) -> float:
        return self.load.requests / self.load.seconds


def _measure(server: Server, body: bytes, clients: int, requests: int) -> _Measured:
    before = server.cpu_s
    done = load(server, body, clients=clients, requests=requests)
    return _Measured(done, (server.cpu_s - before) * 1000 / requests)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
