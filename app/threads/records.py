"""Threads and points of their history, as values. Times are milliseconds since the epoch, UTC."""

from collections.abc import Mapping
from typing import Literal

from app.agent.state_schema import Values
from app.core.values import immutable
from app.runs.records import CheckpointSource

ThreadStatus = Literal["idle", "busy", "interrupted", "error"]
"""LangGraph's words. `error`: nothing is under way, and the last run failed."""


@immutable
class Thread:
    id: str
    tenant: str
    listed: bool
    """Made by a caller. A run without a thread makes an unlisted one."""
    head_checkpoint_id: str | None
    """The state that the next run starts from; `None`: empty."""
    newest_checkpoint_id: str | None
    """The same, or that of the run under way."""
    active_run_id: str | None
    status: ThreadStatus
    metadata: Mapping[str, object]
    created_at: int


@immutable
class Point:
    """A checkpoint: what changed, and how."""

    id: str
    parent_id: str | None
    run_id: str | None
    source: CheckpointSource
    created_at: int
    messages: int
    """How many the state has with it."""
    delta: Mapping[str, object]
    """As in `app.runs.records.Checkpoint`."""


@immutable
class StateAt:
    """The state with a checkpoint. `None` for the point: nothing was ever written."""

    point: Point | None
    messages: bytes
    """`{"messages":[…]}` as JSON."""
    values: Values
