"""Trace context: a caller's trace, continued in the calls that its run makes (W3C Trace Context, level 1).

Pure, and without any tracing library: calls carry a `traceparent` whether or not spans are recorded.
"""

import hashlib
import re
import secrets
from collections.abc import Sequence
from contextvars import ContextVar

from app.core.values import immutable

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII | re.DOTALL)
_ZERO_TRACE, _ZERO_SPAN = "0" * 32, "0" * 16
_SAMPLED = 1

MAX_STATE = 512
"""Characters of a `tracestate` that are carried; a longer one is dropped whole, as the specification allows."""

_MEMBER = r"[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{1,256}"
_STATE = re.compile(rf"{_MEMBER}(?:[ \t]*,[ \t]*{_MEMBER}){{0,31}}", re.ASCII)


@immutable
class TraceContext:
    """Where in a trace something stands. Ids are lower-case hexadecimal."""

    trace_id: str
    """32 digits, not all zero."""
    span_id: str | None = None
    """16 digits, not all zero; `None` where no span is recorded: each request then gets an id of its own."""
    sampled: bool = True
    state: str | None = None
    """The `tracestate`, handed on unread."""

    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id or new_span_id()}-{'01' if self.sampled else '00'}"

    def unrecorded(self) -> "TraceContext":
        """The same trace, for requests that no span stands for."""
        return TraceContext(self.trace_id, None, self.sampled, self.state)

    def headers(self) -> dict[str, str]:
        """What a request carries so that its receiver continues this trace."""
        if self.state is None:
            return {"traceparent": self.traceparent()}
        return {"traceparent": self.traceparent(), "tracestate": self.state}


CURRENT: ContextVar[TraceContext | None] = ContextVar("runwire_trace", default=None)
"""Where the requests made by this task stand. Set by a run's driver for its task, and by a tool call for its own."""


def parse(traceparents: Sequence[str], tracestates: Sequence[str] = ()) -> TraceContext | None:
    """The context in a request's headers, one text for each header of the name.

    `None` for none, for several `traceparent`s, and for one that the specification calls invalid: it is ignored then,
    never an error. A `tracestate` that cannot be carried is dropped without touching the rest.
    """
    if len(traceparents) != 1:
        return None
    found = _TRACEPARENT.fullmatch(traceparents[0].strip(" \t"))
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    if trace_id == _ZERO_TRACE or span_id == _ZERO_SPAN:
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED), _state(tracestates))


def _state(tracestates: Sequence[str]) -> str | None:
    text = ",".join(part for part in (given.strip(" \t") for given in tracestates) if part)
    return text if 0 < len(text) <= MAX_STATE and _STATE.fullmatch(text) else None


def of_run(run_id: str, traceparent: str | None, tracestate: str | None) -> TraceContext:
    """The trace of a run: its caller's where that sent one, else its own. `span_id` is the caller's span, or `None`."""
    given = None if traceparent is None else parse((traceparent,), () if tracestate is None else (tracestate,))
    return given or TraceContext(derived_trace_id(run_id))


def derived_trace_id(name: str) -> str:
    """The trace id of something that came without one: the same after a restart, on every replica.

    A hash and not the UUID itself, whose fixed bits would mislead samplers that decide by the trace id.
    """
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def derived_span_id(run_id: str, attempt: int) -> str:
    """The span of one attempt at a run, so that the next one can point to it although nothing of it was kept."""
    return hashlib.sha256(f"{run_id}/{attempt}".encode()).hexdigest()[:16]


def new_span_id() -> str:
    value = secrets.token_hex(8)
    return value if value != _ZERO_SPAN else new_span_id()
