"""Progress: how much of what a call tells about itself is kept, so that one call cannot fill a run's journal."""

import time
from collections import OrderedDict
from collections.abc import Callable

from app.core.clock import now_ms

BURST = 10
"""Reports that are kept however soon they follow each other."""

SHORTEST_S = 0.1
SHARE = 0.005
"""Beyond the burst one report is kept in 0.1 s, and in 0.5 % of the time that the call has taken: some 2,000 in a whole day."""

CALLS = 10_000
"""Calls whose reports are counted at once. One that is forgotten, the longest silent first, begins with a full burst."""


class Reports:
    """Of one call: which of its reports are kept."""

    __slots__ = ("_at", "_begun", "_clock", "_left")

    def __init__(self, made_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`made_ms`: when the call was made, milliseconds since the epoch. `clock`: seconds, monotonic."""
        self._clock = clock
        self._at = clock()
        self._begun = self._at - max(0.0, (now_ms() - made_ms) / 1000)
        self._left = float(BURST)

    def take(self) -> bool:
        """Whether a report that comes now is kept."""
        now = self._clock()
        spacing = max(SHORTEST_S, (now - self._begun) * SHARE)
        self._left = min(float(BURST), self._left + (now - self._at) / spacing)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """One that was to be kept could not be told."""
        self._left += 1


class ReportsOfCalls:
    """Of all calls that report over HTTP."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, Reports] = OrderedDict()

    def of(self, tool_call_id: str, made_ms: int) -> Reports:
        found = self._calls.get(tool_call_id)
        if found is None:
            found = self._calls[tool_call_id] = Reports(made_ms)
            if len(self._calls) > CALLS:
                self._calls.popitem(last=False)
        else:
            self._calls.move_to_end(tool_call_id)
        return found
