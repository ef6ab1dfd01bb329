"""Metrics: all that the server counts, of runs, requests, streams and its journal.

No label holds a run, a thread, a tenant or a caller's text.
"""

from collections.abc import Mapping
from typing import Protocol

from app.observability.run_metrics import CALL_S, RunMetrics
from app.observability.series import OTHER, Counters, Gauge, Histograms

FLUSH_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
GROUP = (1, 2, 4, 8, 16, 32, 64, 128, 256)

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
"""Others are a caller's text."""


class Load(Protocol):
    """What the engine has to do at the moment (`app.dispatch`)."""

    @property
    def running(self) -> int: ...
    @property
    def queued(self) -> int: ...
    @property
    def oldest_queued_s(self) -> float:
        """How long the first of the queue has waited; 0 when it is empty."""
        ...

    @property
    def rejections(self) -> Mapping[str, int]:
        """Runs that were not admitted so far, by the code of the refusal."""
        ...


class Streams(Protocol):
    """The event streams of this process (`app.api.sse`)."""

    @property
    def open(self) -> int: ...
    @property
    def dropped(self) -> int:
        """Streams cut so far because their readers took nothing."""
        ...


class Metrics:
    """`runs` is the observer of runs; `flushed` and `answered` are told of the journal and of requests."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._load: Load | None = None
        self._streams: Streams | None = None
        self.runs = RunMetrics()
        self._flush_seconds = Histograms(
            "runwire_journal_flush_seconds", "Transactions of the writer, until they are durable.", bounds=FLUSH_S
        )
        self._flush_writes = Histograms("runwire_journal_flush_writes", "Writes that shared one.", bounds=GROUP)
        self._seconds, self._writes = self._flush_seconds.of(), self._flush_writes.of()
        self._requests = Counters("runwire_http_requests_total", "HTTP requests.", "route", "method", "status")
        self._request_seconds = Histograms(
            "runwire_http_request_duration_seconds",
            "HTTP requests to the end of the answer; a stream or a wait is as long as it is open.",
            *("route", "method"),
            bounds=CALL_S,
        )

    def watch(self, load: Load, streams: Streams) -> None:
        """What a scrape looks at as it is then."""
        self._load, self._streams = load, streams

    def flushed(self, writes: int, seconds: float) -> None:
        """A transaction of `writes` writes took `seconds`; it may have failed."""
        self._writes.observe(writes)
        self._seconds.observe(seconds)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered. `route`: its template, never its path. `status` 0: it was left without an answer."""
        if method not in METHODS:
            method = OTHER
        self._requests.of(route, method, str(status)).value += 1
        self._request_seconds.of(route, method).observe(seconds)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The body and its content type. Slow where there are many series: call it on a thread."""
        from app.observability.exposition import render

        gauges = [Gauge("runwire_build_info", "The version that runs.", 1, {"version": self._version})]
        counters = [*self.runs.counters, self._requests]
        if self._load is not None:
            load, rejected = self._load, Counters("runwire_runs_rejected_total", "Runs that were not admitted.", "code")
            for code, number in list(load.rejections.items()):
                rejected.of(code).value = number
            counters.append(rejected)
            gauges += [
                Gauge("runwire_runs_running", "Runs that are driven now.", load.running),
                Gauge("runwire_runs_queued", "Runs that wait for a place.", load.queued),
                Gauge(
                    "runwire_queue_oldest_age_seconds", "How long the first of them has waited.", load.oldest_queued_s
                ),
            ]
        if self._streams is not None:
            gauges.append(Gauge("runwire_open_streams", "Event streams that are open.", self._streams.open))
            dropped = Counters("runwire_streams_dropped_total", "Event streams cut because their readers took nothing.")
            dropped.of().value = self._streams.dropped
            counters.append(dropped)
        histograms = (*self.runs.histograms, self._flush_seconds, self._flush_writes, self._request_seconds)
        return render(counters, histograms, gauges, accept)
