"""Checkpoints: a thread's state as a chain of deltas, with a snapshot now and then.

A snapshot is due when the deltas since the last one have grown beyond its size, so that all snapshots of a thread together
stay linear in its deltas. Messages are spliced as JSON text and decoded once, when they are read. Other fields stand in
columns of their own, each update with its reducer's name, so that folding them needs no agent.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import orjson
from sqlalchemy import bindparam, func, insert, select

from app.agent.state_schema import Values, apply, updates_of
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
        select(c.id, c.parent_id, func.coalesce(c.snapshot, c.delta), c.field_values, c.field_updates)
        .join(mine, (c.thread_id == mine.c.thread_id) & c.depth.between(mine.c.snapshot_depth, mine.c.depth))
        .where(mine.c.id == bindparam("id"), mine.c.thread_id == bindparam("thread_id"))
        .order_by(c.depth.desc())
    )


def _walk_to_base() -> Statement:
    """From a checkpoint up to, and without, a base; oldest first."""
    c = checkpoints.c
    columns = (c.id, c.thread_id, c.parent_id, c.run_id, c.depth, c.delta, c.created_at, c.field_updates, c.source)
    base = bindparam("base_id", type_=c.id.type)
    walk = (
        select(*columns)
        .where(c.id == bindparam("id"), c.thread_id == bindparam("thread_id"), c.id != base)
        .cte("walk", recursive=True)
    )
    walk = walk.union_all(select(*columns).where(c.id == walk.c.parent_id, c.id != base))
    return Statement(
        select(
            walk.c.id,
            walk.c.thread_id,
            walk.c.parent_id,
            walk.c.run_id,
            walk.c.delta,
            walk.c.created_at,
            walk.c.field_updates,
            walk.c.source,
        ).order_by(walk.c.depth)
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


def add(
    tx: Tx, tenant: str, checkpoint: Checkpoint, states: States, whole: tuple[bytes, Values] | None = None
) -> State:
    """Insert a checkpoint below its parent; its facts. Raises `LookupError` for a parent of another thread.

    `whole`: the state as it is with this checkpoint, where that is not its parent's and the delta: messages as `raw`
    gives them, and the fields.
    """
    parent = None if checkpoint.parent_id is None else states.take(checkpoint.thread_id, checkpoint.parent_id)
    if parent is None:
        parent = state_of(tx, checkpoint.thread_id, checkpoint.parent_id)
    messages = cast("Sequence[object]", checkpoint.delta.get("messages", ()))
    fields = cast("Sequence[object]", checkpoint.delta.get("fields", ()))
    delta = orjson.dumps({"messages": messages} if fields else checkpoint.delta)
    updates = orjson.dumps(fields) if fields else b""
    delta_bytes = parent.delta_bytes + len(delta) + len(updates)
    count = parent.messages + len(messages)
    snapshot_depth, snapshot_bytes = parent.snapshot_depth, parent.snapshot_bytes
    if whole is not None:
        count = len(cast("dict[str, list[object]]", orjson.loads(whole[0]))["messages"])
    elif delta_bytes > max(MIN_SNAPSHOT_BYTES, snapshot_bytes):
        chain = _chain(tx, checkpoint.thread_id, checkpoint.parent_id)
        whole = fold((*(part for part, _, _ in chain), delta)), apply(_values(chain), updates_of(fields))
    snapshot, values = (None, None) if whole is None else (whole[0], orjson.dumps(whole[1]) if whole[1] else None)
    if snapshot is not None:
        snapshot_depth, snapshot_bytes, delta_bytes = parent.depth + 1, len(snapshot) + len(values or b""), 0
    state = State(parent.depth + 1, count, snapshot_depth, snapshot_bytes, delta_bytes)
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
        "field_updates": updates.decode() or None,
        "field_values": None if values is None else values.decode(),
        "source": checkpoint.source,
    }
    tx.run(_INSERT, row)
    states.keep(checkpoint.thread_id, checkpoint.id, state)
    return state


_Part = tuple[bytes, str | None, str | None]
"""Of one checkpoint: its messages (all of them in a snapshot, else those appended), its snapshot's fields, its updates."""


def _chain(tx: Tx, thread_id: str, checkpoint_id: str | None) -> list[_Part]:
    """The nearest snapshot and the deltas after it, up to a checkpoint."""
    if checkpoint_id is None:
        return []
    parts: list[_Part] = []
    wanted = checkpoint_id
    for row_id, parent_id, part, values, updates in tx.all(
        _SINCE_SNAPSHOT, {"id": checkpoint_id, "thread_id": thread_id}
    ):
        if row_id == wanted:
            parts.append((part.encode(), values, updates))
            wanted = parent_id
    parts.reverse()
    return parts


def fold(parts: Iterable[bytes]) -> bytes:
    """Messages of states and deltas, oldest first, one after another: `{"messages":[…]}`."""
    inner: list[bytes] = []
    for part in parts:
        if not part.startswith(_START) or not part.endswith(b"]}"):
            raise ValueError("a delta holds more than messages")
        body = part[len(_START) : -2]
        if body:
            inner.append(body)
    return _START + b",".join(inner) + b"]}"


def _values(chain: Iterable[_Part]) -> Values:
    """The fields after a chain."""
    values: Values = {}
    for _, snapshot, updates in chain:
        if snapshot is not None:
            values = orjson.loads(snapshot)
        elif updates is not None:
            values = apply(values, updates_of(orjson.loads(updates)))
    return values


def raw(tx: Tx, thread_id: str, checkpoint_id: str | None) -> tuple[bytes, Values]:
    """The state up to a checkpoint: its messages as JSON `{"messages":[…]}`, and its other fields."""
    chain = _chain(tx, thread_id, checkpoint_id)
    return fold(part for part, _, _ in chain), _values(chain)


def state(tx: Tx, thread_id: str, checkpoint_id: str | None) -> tuple[list[Message], Values]:
    """The state up to a checkpoint; empty for `None` and for a checkpoint of another thread."""
    text, values = raw(tx, thread_id, checkpoint_id)
    return _messages(text), values


def messages(tx: Tx, thread_id: str, checkpoint_id: str | None) -> list[Message]:
    """The conversation up to a checkpoint; empty for `None` and for a checkpoint of another thread."""
    return _messages(fold(part for part, _, _ in _chain(tx, thread_id, checkpoint_id)))


def values(tx: Tx, thread_id: str, checkpoint_id: str | None) -> Values:
    """The fields beside `messages` up to a checkpoint."""
    return _values(_chain(tx, thread_id, checkpoint_id))


def _messages(text: bytes) -> list[Message]:
    return [Message.from_json(item) for item in cast("list[Mapping[str, object]]", orjson.loads(text)["messages"])]


def since(tx: Tx, thread_id: str, checkpoint_id: str, base_id: str | None) -> list[Checkpoint]:
    """The checkpoints after `base_id` up to `checkpoint_id`, oldest first; from the root without a base."""
    rows = tx.all(_TO_BASE, {"id": checkpoint_id, "thread_id": thread_id, "base_id": base_id or ""})
    return [_checkpoint(row) for row in rows]


def _checkpoint(row: Row) -> Checkpoint:
    checkpoint_id, thread_id, parent_id, run_id, delta, created_at, updates, source = row
    body = orjson.loads(delta)
    if updates is not None:
        body["fields"] = orjson.loads(updates)
    return Checkpoint(checkpoint_id, thread_id, parent_id, run_id, body, created_at, source or "loop")
