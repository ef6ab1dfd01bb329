"""Times as we store and show them: whole milliseconds since the epoch, and their RFC 3339 text in UTC."""

import time


def now_ms() -> int:
    """The wall clock in milliseconds. For records only: durations and limits use monotonic clocks."""
    return time.time_ns() // 1_000_000


def rfc3339(ms: int) -> str:
    """`2026-01-31T12:00:00.123Z`."""
    seconds, rest = divmod(ms, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:03d}Z"
