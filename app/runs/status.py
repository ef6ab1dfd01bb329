"""The life of a run: one table of which status may follow which."""

from typing import Literal

RunStatus = Literal["pending", "running", "interrupted", "success", "error", "cancelled"]

TERMINAL: frozenset[RunStatus] = frozenset(("success", "error", "cancelled"))
TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    "pending": frozenset(("running", "cancelled", "error")),
    "running": frozenset(("running", "interrupted", "success", "error", "cancelled")),
    "interrupted": frozenset(("pending", "running", "cancelled", "error")),
    "success": frozenset(),
    "error": frozenset(),
    "cancelled": frozenset(),
}
"""`interrupted → pending` is a run whose questions were answered; `running → running` is a takeover after a crash: a new attempt under a higher epoch."""


def may_follow(old: RunStatus, new: RunStatus) -> bool:
    return new in TRANSITIONS[old]
