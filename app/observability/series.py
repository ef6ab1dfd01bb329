"""Series: counters and histograms as plain numbers; `app.observability.exposition` gives them Prometheus' shape.

They change on the event loop alone, so they need no locks. prometheus_client's own take one for every number: 1.3 µs an
observation against 0.3, and a short run makes some thirty. A scrape reads them from another thread.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import field

from app.core.values import immutable

MAX_NAMES = 200
"""Distinct values that a label takes from outside; all later ones count together."""

OTHER = "_other"


class Names:
    """Values of a label that tenants choose: the first `MAX_NAMES` are kept as they are, the others are `_other`."""

    __slots__ = ("_kept", "_most")

    def __init__(self, most: int = MAX_NAMES) -> None:
        self._kept: set[str] = set()
        self._most = most

    def label(self, value: str) -> str:
        if value in self._kept:
            return value
        if len(self._kept) >= self._most:
            return OTHER
        self._kept.add(value)
        return value


class Count:
    """One counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Spread:
    """One histogram."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Observations by bucket, not cumulative; the last is for what is beyond every bound."""
        self.sum: float = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


@immutable
class Gauge:
    """A number as it is at the moment of the scrape."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


class Counters:
    """The counters of one name, which ends with `_total`. Keep what `of` gives: looking it up costs more than counting."""

    def __init__(self, name: str, help_text: str, *labels: str) -> None:
        self.name = name
        self.help = help_text
        self.labels = labels
        self._series: dict[tuple[str, ...], Count] = {}

    def of(self, *values: str) -> Count:
        """The counter of these label values, in the order of `labels`; it is shown from now on, as 0 too."""
        found = self._series.get(values)
        if found is None:
            _check(self.name, self.labels, values)
            found = self._series[values] = Count()
        return found

    def items(self) -> list[tuple[tuple[str, ...], Count]]:
        return list(self._series.items())  # at once: the loop's thread may add series meanwhile


class Histograms:
    """The histograms of one name. `bounds`: upper bounds of the buckets, ascending, without infinity."""

    def __init__(self, name: str, help_text: str, *labels: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.help = help_text
        self.labels = labels
        self.bounds = bounds
        self._series: dict[tuple[str, ...], Spread] = {}

    def of(self, *values: str) -> Spread:
        """As `Counters.of`."""
        found = self._series.get(values)
        if found is None:
            _check(self.name, self.labels, values)
            found = self._series[values] = Spread(self.bounds)
        return found

    def items(self) -> list[tuple[tuple[str, ...], Spread]]:
        return list(self._series.items())


def _check(name: str, labels: Sequence[str], values: Sequence[str]) -> None:
    if len(values) != len(labels):
        raise ValueError(f"{name} has the labels {', '.join(labels)}")
