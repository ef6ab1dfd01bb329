"""Retries: which failures may be met by asking again, and how long to pause before."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 8.0
"""The pause doubles from the first to the last: 8 to 16 s in all for six attempts, enough for a server's restart."""

MAX_RETRY_AFTER_S = 60.0
"""A server that wants to be left alone for longer is reported, not waited for."""

AGAIN = frozenset((408, 429, 502, 503, 504))
"""Statuses that another attempt may change."""

UNTOUCHED = frozenset((408, 429))
"""Of these, the ones that say that nothing was done."""

Pause = Callable[[int], float]


def pause_s(failures: int) -> float:
    """Seconds to wait after so many failures in a row; half of it is chance, so that clients do not return as one."""
    whole = min(LAST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures - 1, 10))
    return whole * random.uniform(0.5, 1)  # noqa: S311 (spreads load, guards nothing)


def retry_after_s(value: str | None) -> float | None:
    """The seconds of a `Retry-After` header: a number or an HTTP date (RFC 9110, 10.2.3). `None` for anything else."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
        return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        return None


@dataclass(slots=True)
class Attempts:
    """The attempts at one thing: how many failed in a row, and what follows from another failure."""

    most: int
    pause: Pause = pause_s
    failed: int = 0

    def progressed(self) -> None:
        self.failed = 0

    def next_pause_s(self, retry_after: float | None = None) -> float | None:
        """Count a failure: the seconds to wait before the next attempt, or `None` to give up."""
        self.failed += 1
        if self.failed >= self.most or (retry_after or 0) > MAX_RETRY_AFTER_S:
            return None
        return max(self.pause(self.failed), retry_after or 0)
