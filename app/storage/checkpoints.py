"""Checkpoints: a thread's state as a chain of deltas, with a snapshot now and then.

A snapshot is due when the deltas since the last one have grown beyond its size, so that all snapshots of a thread together
stay linear in its deltas. Messages are spliced as JSON text and decoded once, when they are read.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import orjson
from sqlalchemy import bindparam, func, insert, select

from app.core.messages import Message
from app.core.values import immutable
from app.runs.records import Checkpoint
from app.storage.database import Tx
from app.storage.statement import Row, Statement
from app.storage.tables import checkpoints

MIN_SNAPSHOT_BYTES = 64 * 1024
"""Deltas smaller than this in total are cheaper to fold than to store again."""

_START = b'{"messages":['


@immutable
class State:
    """Facts of a checkpoint that its children need. The state before the first checkpoint is all zero."""

    depth: int = 0
    messages: int = 0
    snapshot_depth: int = 0
    snapshot_bytes: int = 0
    delta_bytes: int = 0


class States:
    """The facts of the newest checkpoints, in memory: a run's next one is below its last, so that one is not read again.

    What is remembered never changes. A checkpoint whose transaction was rolled back may be in it, too; nobody has its id.
    """

    KEPT = 4096

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], State] = {}

    def take(self, thread_id: str, checkpoint_id: str) -> State | None:
        return self._states.pop((thread_id, checkpoint_id), None)

    def keep(self, thread_id: str, checkpoint_id: str, state: State) -> None:
        if len(self._states) >= self.KEPT:
            del self._states[next(iter(self._states))]
        self._states[thread_id, checkpoint_id] = state


_INSERT = Statement(insert(checkpoints))
_PARENT = Statement(
    select(*(checkpoints.c[name] for name in State.__dataclass_fields__)).where(
        checkpoints.c.id == bindparam("id"), checkpoints.c.thread_id == bindparam("thread_id")
    )
)


def _since_snapshot() -> Statement:
    """The thread's checkpoints from the depth of the nearest snapshot to that of the one asked for, newest first.

    A range of an index, where a recursive walk took eight times as long. Branches are few; the reader steps over them.
    """
    c = checkpoints.c
    mine = checkpoints.alias("mine")
    return Statement(
        select(c.id, c.parent_id, func.coalesce(c.snapshot, c.delta))
        .join(mine, (c.thread_id == mine.c.thread_id) & c.depth.between(mine.c.snapshot_depth, mine.c.depth))
        .where(mine.c.id == bindparam("id"), mine.c.thread_id == bindparam("thread_id"))
        .order_by(c.depth.desc())
    )


def _walk_to_base() -> Statement:
    """From a checkpoint up to, and without, a base; oldest first."""
    c = checkpoints.c
    columns = (c.id, c.thread_id, c.parent_id, c.run_id, c.depth, c.delta, c.created_at)
    base = bindparam("base_id", type_=c.id.type)
    walk = (
        select(*columns)
        .where(c.id == bindparam("id"), c.thread_id == bindparam("thread_id"), c.id != base)
        .cte("walk", recursive=True)
    )
    walk = walk.union_all(select(*columns).where(c.id == walk.c.parent_id, c.id != base))
    return Statement(
        select(walk.c.id, walk.c.thread_id, walk.c.parent_id, walk.c.run_id, walk.c.delta, walk.c.created_at).order_by(
            walk.c.depth
        )
    )


_SINCE_SNAPSHOT = _since_snapshot()
_TO_BASE = _walk_to_base()


def state_of(tx: Tx, thread_id: str, checkpoint_id: str | None) -> State:
    if checkpoint_id is None:
        return State()
    row = tx.one(_PARENT, {"id": checkpoint_id, "thread_id": thread_id})
    if row is None:
        raise LookupError(f"thread {thread_id} has no checkpoint {checkpoint_id}")
    return State(*row)


def add(tx: Tx, tenant: str, checkpoint: Checkpoint, states: States) -> State:
    """Insert a checkpoint below its parent; its facts. Raises `LookupError` for a parent of another thread."""
    parent = None if checkpoint.parent_id is None else states.take(checkpoint.thread_id, checkpoint.parent_id)
    if parent is None:
        parent = state_of(tx, checkpoint.thread_id, checkpoint.parent_id)
    delta = orjson.dumps(checkpoint.delta)
    messages = cast("Sequence[object]", checkpoint.delta.get("messages", ()))
    snapshot: bytes | None = None
    delta_bytes = parent.delta_bytes + len(delta)
    snapshot_depth, snapshot_bytes = parent.snapshot_depth, parent.snapshot_bytes
    if delta_bytes > max(MIN_SNAPSHOT_BYTES, snapshot_bytes):
        snapshot = fold((*_chain(tx, checkpoint.thread_id, checkpoint.parent_id), delta))
        snapshot_depth, snapshot_bytes, delta_bytes = parent.depth + 1, len(snapshot), 0
    state = State(parent.depth + 1, parent.messages + len(messages), snapshot_depth, snapshot_bytes, delta_bytes)
    row: dict[str, Any] = {
        "id": checkpoint.id,
        "tenant": tenant,
        "thread_id": checkpoint.thread_id,
        "parent_id": checkpoint.parent_id,
        "run_id": checkpoint.run_id,
        "depth": state.depth,
        "messages": state.messages,
        "delta": delta.decode(),
        "snapshot": None if snapshot is None else snapshot.decode(),
        "snapshot_depth": snapshot_depth,
        "snapshot_bytes": snapshot_bytes,
        "delta_bytes": delta_bytes,
        "created_at": checkpoint.created_at,
    }
    tx.run(_INSERT, row)
    states.keep(checkpoint.thread_id, checkpoint.id, state)
    return state


def _chain(tx: Tx, thread_id: str, checkpoint_id: str | None) -> list[bytes]:
    """The nearest snapshot and the deltas after it, up to a checkpoint."""
    if checkpoint_id is None:
        return []
    parts: list[bytes] = []
    wanted = checkpoint_id
    for row_id, parent_id, part in tx.all(_SINCE_SNAPSHOT, {"id": checkpoint_id, "thread_id": thread_id}):
        if row_id == wanted:
            parts.append(part.encode())
            wanted = parent_id
    parts.reverse()
    return parts


def fold(parts: Iterable[bytes]) -> bytes:
    """States and deltas, oldest first, as one state: their messages one after another.

    Reducers of other fields come with those fields; until then a delta that has any is refused.
    """
    inner: list[bytes] = []
    for part in parts:
        if not part.startswith(_START) or not part.endswith(b"]}"):
            raise ValueError("a delta holds more than messages")
        body = part[len(_START) : -2]
        if body:
            inner.append(body)
    return _START + b",".join(inner) + b"]}"


def messages(tx: Tx, thread_id: str, checkpoint_id: str | None) -> list[Message]:
    """The conversation up to a checkpoint; empty for `None` and for a checkpoint of another thread."""
    state = cast("dict[str, list[Mapping[str, object]]]", orjson.loads(fold(_chain(tx, thread_id, checkpoint_id))))
    return [Message.from_json(item) for item in state["messages"]]


def since(tx: Tx, thread_id: str, checkpoint_id: str, base_id: str | None) -> list[Checkpoint]:
    """The checkpoints after `base_id` up to `checkpoint_id`, oldest first; from the root without a base."""
    rows = tx.all(_TO_BASE, {"id": checkpoint_id, "thread_id": thread_id, "base_id": base_id or ""})
    return [_checkpoint(row) for row in rows]


def _checkpoint(row: Row) -> Checkpoint:
    checkpoint_id, thread_id, parent_id, run_id, delta, created_at = row
    return Checkpoint(checkpoint_id, thread_id, parent_id, run_id, orjson.loads(delta), created_at)
