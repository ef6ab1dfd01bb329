"""Retries: how often and how late a request to a model's server is sent again. Pure: time and chance are parameters."""

import math
from datetime import UTC
from email.utils import parsedate_to_datetime

from app.core.values import immutable


@immutable
class Retries:
    """How a request is sent again that failed before its first chunk, in a way that may pass."""

    max_attempts: int = 3
    """Requests altogether; 1 = never again."""
    initial_s: float = 0.5
    max_s: float = 8.0
    max_retry_after_s: float = 30.0
    """Cap on what a `Retry-After` may ask for."""

    def delay_s(self, attempt: int, retry_after_s: float | None, jitter: float) -> float:
        """Seconds before attempt + 1: what the server asked for, else doubling up to `max_s`, spread by `jitter` (0 to 1)."""
        if retry_after_s is not None:
            return min(max(retry_after_s, 0.0), self.max_retry_after_s)
        return min(self.initial_s * 2 ** (attempt - 1), self.max_s) * (0.5 + jitter / 2)


def retry_after_s(value: str | None, now: float) -> float | None:
    """Seconds that a `Retry-After` header asks for, as a number or an HTTP date; `now` in seconds since the epoch."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            until = parsedate_to_datetime(value)
            return max((until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp() - now, 0.0)
        except (ValueError, OverflowError, TypeError, IndexError):  # a date, or a zone, that no calendar has
            return None
    return seconds if 0 <= seconds < math.inf else None
