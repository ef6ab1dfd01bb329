"""Reconciliation: asking a tool's `status_url` what became of a call whose outcome is uncertain."""

import time
from collections.abc import Awaitable, Callable

from app.core.values import immutable
from app.tools.attempt import Attempt, Send, backoff_s

NOT_RECEIVED = "tool_not_received"

MAX_FAILURES = 3
"""Questions in a row that may fail for a reason that passes (no connection, no answer in time, 429, 5xx)."""


@immutable
class Pace:
    """How long and how often is asked."""

    timeout_s: float
    """Of one question."""
    ends: float
    """`time.perf_counter()` after which no other question follows. The first is always asked."""
    sleep: Callable[[float], Awaitable[None]]
    jitter: Callable[[], float]


async def ask(tool: str, send: Send, pace: Pace) -> Attempt | None:
    """What became of the call, as an attempt that had come back; `None` when it stays unknown.

    "Still working" is asked again until `ends`. "Never received" is an attempt that did nothing and may be made again.
    """
    number = failures = 0
    while True:
        number += 1
        answer = await send(number, pace.timeout_s)
        if is_definite(answer):
            return known(tool, answer)
        failures = 0 if answer.kind == "deferred" else failures + 1
        if answer.kind == "failed" or failures >= MAX_FAILURES:
            return None
        pause = backoff_s(number, pace.jitter())
        pause = pause if answer.retry_after_s is None else max(answer.retry_after_s, 0.0)
        if pause >= pace.ends - time.perf_counter():
            return None
        await pace.sleep(pause)


def is_definite(answer: Attempt) -> bool:
    """Whether an answer says what became of the call: an output, an error in the tool's own words on 2xx, or 404."""
    if answer.kind == "failed":
        status = answer.http_status or 0
        return 200 <= status < 300 or status == 404
    return answer.kind == "output"


def known(tool: str, answer: Attempt) -> Attempt:
    """A definite answer as the call's own."""
    if answer.http_status == 404:
        text = f"{tool} never received the call; it did nothing."
        return Attempt("not_executed", code=NOT_RECEIVED, message=text, retryable=True, http_status=404)
    return answer
