"""The events of a run: what callers see, and how each is written on the wire.

An event is encoded once in its life. Replay, streaming and paging copy or slice those bytes (ADR 1).
"""

from collections.abc import Mapping
from typing import Literal

import orjson

SCHEMA_VERSION = 1
"""Version of the events' shapes. Fields may be added within a version; readers ignore what they do not know."""

EventType = Literal[
    "run", "output", "action", "progress", "step", "state", "custom", "interrupt", "usage", "finish", "error", "end",
]  # fmt: skip

EVENT_TYPES: tuple[EventType, ...] = (
    "run", "output", "action", "progress", "step", "state", "custom", "interrupt", "usage", "finish", "error", "end",
)  # fmt: skip

ALWAYS_SENT: frozenset[EventType] = frozenset(("run", "interrupt", "finish", "error", "end"))
"""Event types that no `stream` selection removes (contract, section 3)."""

ON_REQUEST: frozenset[EventType] = frozenset(("state",))
"""Event types that come only where a selection names them."""

_PREFIX: dict[EventType, bytes] = {name: b"\nevent: " + name.encode() + b"\ndata: " for name in EVENT_TYPES}


def wire(seq: int, event: EventType, data: Mapping[str, object]) -> bytes:
    """One event as server-sent-events text: `id`, `event`, one `data` line, a blank line; LF only.

    The data is compact JSON, which escapes CR, LF and NUL, so no text of a model or tool can end the event early.
    """
    return b"id: %d%b%b\n\n" % (seq, _PREFIX[event], orjson.dumps(data))


def data_of(event_wire: bytes) -> bytes:
    """The JSON of one event's `data` line, cut out of its wire form."""
    start = event_wire.index(b"\ndata: ") + 7
    return event_wire[start:-2]
