"""The exposition: series in Prometheus' text formats. The first scrape imports it; prometheus_client takes 80 ms to load."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from app.observability.series import Counters, Gauge, Histograms


def render(
    counters: Sequence[Counters], histograms: Sequence[Histograms], gauges: Sequence[Gauge], accept: str
) -> tuple[bytes, str]:
    """(body, content type), in the format that the `Accept` header asks for: OpenMetrics, or Prometheus' own.

    What the process uses (CPU, memory, files, garbage collection) is added here.
    """
    registry = CollectorRegistry()
    registry.register(_Ours(counters, histograms, gauges))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Ours(Collector):
    def __init__(self, counters: Sequence[Counters], histograms: Sequence[Histograms], gauges: Sequence[Gauge]) -> None:
        self._counters = counters
        self._histograms = histograms
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        for gauge in self._gauges:
            family = GaugeMetricFamily(gauge.name, gauge.help, labels=tuple(gauge.labels))
            family.add_metric(tuple(gauge.labels.values()), gauge.value)
            yield family
        for counters in self._counters:
            yield _counter(counters)
        for histograms in self._histograms:
            yield _histogram(histograms)


def _counter(counters: Counters) -> Metric:
    family = CounterMetricFamily(counters.name, counters.help, labels=counters.labels)
    for values, count in counters.items():
        family.add_metric(values, count.value)
    return family


def _histogram(histograms: Histograms) -> Metric:
    family = HistogramMetricFamily(histograms.name, histograms.help, labels=histograms.labels)
    bounds = [*(str(float(bound)) for bound in histograms.bounds), "+Inf"]
    for values, spread in histograms.items():
        family.add_metric(values, list(zip(bounds, accumulate(spread.counts.copy()), strict=True)), spread.sum)
    return family
