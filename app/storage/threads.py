"""Threads in storage: `SqlThreadStore`, the adapter of the port `ThreadStore`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import orjson
from sqlalchemy import Select, bindparam, delete, func, insert, select, update

from app.agent.state_schema import Values, apply, updates_of
from app.core.clock import now_ms
from app.core.errors import Conflict, NotFound
from app.core.idempotency import IdempotencyKey
from app.runs.records import Checkpoint
from app.storage import checkpoints as states
from app.storage import idempotency as keys
from app.storage.database import Database, Tx
from app.storage.labels import label, labels
from app.storage.retention import NOBODY, erase_run, erase_thread
from app.storage.rows import text
from app.storage.statement import Row, Statement
from app.storage.tables import checkpoints, runs, thread_metadata, threads
from app.threads.ports import Change
from app.threads.records import Point, StateAt, Thread, ThreadStatus

_t, _r, _c, _m = threads.c, runs.c, checkpoints.c, thread_metadata.c
_id = bindparam("thread", type_=_t.id.type)
_tenant = bindparam("tenant", type_=_t.tenant.type)
_nobody = bindparam("nobody", NOBODY, type_=_t.tenant.type)
_ALL_RUNS = 100
"""Runs of a thread that are looked up at once, to be deleted."""


def _threads() -> Select[*tuple[Any, ...]]:
    last = (
        select(_r.status)
        .where(_r.thread_id == _t.id, _r.finished_at.is_not(None))
        .order_by(_r.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    active = runs.alias("active")
    return select(
        _t.id, _t.tenant, _t.listed, _t.head_checkpoint_id, func.coalesce(active.c.checkpoint_id, _t.head_checkpoint_id),
        _t.active_run_id, active.c.status, last, _t.metadata, _t.created_at,
    ).select_from(threads.outerjoin(active, active.c.id == _t.active_run_id))  # fmt: skip


_GET = Statement(_threads().where(_t.id == _id, _t.tenant == _tenant))
_INSERT = Statement(insert(threads))
_INSERT_LABEL = Statement(insert(thread_metadata))
_FORGET_LABELS = Statement(delete(thread_metadata).where(_m.thread_id == _id))
_SET_LABELS = Statement(
    update(threads).values(metadata=bindparam("new_metadata")).where(_t.id == _id, _t.tenant == _tenant)
)
_LABELS = Statement(select(_t.metadata).where(_t.id == _id, _t.tenant == _tenant))
_POINT_COLUMNS = (
    _c.id, _c.parent_id, _c.run_id, _c.source, _c.created_at, _c.messages, _c.delta, _c.field_updates,
)  # fmt: skip
_POINT = Statement(select(*_POINT_COLUMNS).where(_c.id == bindparam("checkpoint"), _c.thread_id == _id))
_MOVE_HEAD = Statement(
    update(threads)
    .values(head_checkpoint_id=bindparam("new_head", type_=_t.head_checkpoint_id.type))
    .where(
        _t.id == _id,
        _t.tenant == _tenant,
        _t.active_run_id.is_(None),
        _t.head_checkpoint_id.is_not_distinct_from(bindparam("old_head", type_=_t.head_checkpoint_id.type)),
    )
    .returning(_t.id)
)
_ACTIVE = Statement(select(_t.active_run_id).where(_t.id == _id, _t.tenant == _tenant))
_LAST_SPEC = Statement(select(_r.spec).where(_r.thread_id == _id).order_by(_r.id.desc()).limit(1))
_HIDE = Statement(
    update(threads)
    .values(tenant=_nobody, listed=0)
    .where(_t.id == _id, _t.tenant == _tenant, _t.active_run_id.is_(None))
    .returning(_t.id)
)
_HIDE_RUNS = Statement(update(runs).values(tenant=_nobody).where(_r.thread_id == _id))
_RUNS = Statement(select(_r.id).where(_r.thread_id == _id).limit(_ALL_RUNS))


class SqlThreadStore:
    """The port `ThreadStore` on a database. `clock` gives milliseconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], int] = now_ms) -> None:
        self._db = database
        self._clock = clock
        self._states = states.States()

    async def create(
        self, tenant: str, thread_id: str, metadata: Mapping[str, object], idempotency: IdempotencyKey | None
    ) -> tuple[str, bool]:
        now = self._clock()
        return await self._db.write(lambda tx: _create(tx, tenant, thread_id, None, metadata, idempotency, now))

    async def fork(
        self,
        tenant: str,
        origin_id: str,
        checkpoint: Checkpoint,
        checkpoint_id: str | None,
        metadata: Mapping[str, object],
        idempotency: IdempotencyKey | None,
    ) -> tuple[str, bool]:
        now = self._clock()
        found = await self._db.read(lambda tx: _state(tx, origin_id, checkpoint_id))
        if found is None:
            raise NotFound("The thread has no such checkpoint.", code="checkpoint_not_found")

        def write(tx: Tx) -> tuple[str, bool]:
            if tx.one(_LABELS, {"thread": origin_id, "tenant": tenant}) is None:
                raise NotFound("There is no such thread.", code="thread_not_found")
            made = _create(tx, tenant, checkpoint.thread_id, checkpoint.id, metadata, idempotency, now)
            if not made[1]:
                states.add(tx, tenant, checkpoint, self._states, (found.messages, found.values))
            return made

        return await self._db.write(write)

    async def get(self, tenant: str, thread_id: str) -> Thread | None:
        row = await self._db.look(lambda tx: tx.one(_GET, {"thread": thread_id, "tenant": tenant}))
        return None if row is None else _thread(row)

    async def page(
        self, tenant: str, metadata: Mapping[str, str], *, after: str | None, limit: int
    ) -> Sequence[Thread]:
        query = _threads().where(_t.tenant == tenant, _t.listed == 1)
        for name, value in metadata.items():
            mine = (_m.tenant == tenant, _m.key == label(name), _m.value == label(value), _m.thread_id == _t.id)
            query = query.where(select(_m.thread_id).where(*mine).exists())
        if after is not None:
            query = query.where(_t.id < after)
        statement = Statement(query.order_by(_t.id.desc()).limit(limit))
        return await self._db.read(lambda tx: [_thread(row) for row in tx.all(statement, {})])

    async def label(self, tenant: str, thread_id: str, metadata: Mapping[str, object]) -> bool:
        return await self._db.write(lambda tx: _label(tx, tenant, thread_id, metadata))

    async def state(self, thread_id: str, checkpoint_id: str | None) -> StateAt | None:
        return await self._db.read(lambda tx: _state(tx, thread_id, checkpoint_id))

    async def history(self, thread_id: str, *, after: str | None, limit: int) -> Sequence[Point]:
        newest = select(_c.id).where(_c.thread_id == _id)
        if after is not None:
            newest = newest.where(_c.id < after)
        ids = newest.order_by(_c.id.desc()).limit(limit).subquery()
        statement = Statement(select(*_POINT_COLUMNS).where(_c.id == ids.c.id).order_by(_c.id.desc()))
        return await self._db.read(lambda tx: [_point(row) for row in tx.all(statement, {"thread": thread_id})])

    async def change(self, tenant: str, thread_id: str, change: Change) -> bool:
        return await self._db.write(lambda tx: _change(tx, tenant, thread_id, change, self._states))

    async def last_spec(self, thread_id: str) -> Mapping[str, object] | None:
        row = await self._db.look(lambda tx: tx.one(_LAST_SPEC, {"thread": thread_id}))
        return None if row is None else cast("Mapping[str, object]", orjson.loads(row[0]))

    async def delete(self, tenant: str, thread_id: str) -> bool:
        if not await self._db.write(lambda tx: _hide(tx, tenant, thread_id)):
            return False
        # A little at a time, as retention does: live runs wait for none of it. What a crash leaves, nobody can reach.
        while rows := await self._db.read(lambda tx: tx.all(_RUNS, {"thread": thread_id})):
            for (run_id,) in rows:
                await erase_run(self._db, run_id)
        await erase_thread(self._db, thread_id)
        return True


def _create(
    tx: Tx,
    tenant: str,
    thread_id: str,
    head: str | None,
    metadata: Mapping[str, object],
    key: IdempotencyKey | None,
    now: int,
) -> tuple[str, bool]:
    if key is not None:
        made = keys.find(tx, key, now)
        if made is not None and tx.one(_LABELS, {"thread": made, "tenant": tenant}) is not None:
            return made, True
    tx.run(
        _INSERT,
        {
            "id": thread_id,
            "tenant": tenant,
            "listed": 1,
            "head_checkpoint_id": head,
            "active_run_id": None,
            "metadata": text(metadata),
            "created_at": now,
        },
    )
    _add_labels(tx, tenant, thread_id, metadata)
    if key is not None:
        keys.keep(tx, key, thread_id, now)
    return thread_id, False


def _add_labels(tx: Tx, tenant: str, thread_id: str, metadata: Mapping[str, object]) -> None:
    if metadata:
        rows = [
            {"tenant": tenant, "key": name, "value": value, "thread_id": thread_id} for name, value in labels(metadata)
        ]
        tx.many(_INSERT_LABEL, rows)


def _label(tx: Tx, tenant: str, thread_id: str, metadata: Mapping[str, object]) -> bool:
    row = tx.one(_LABELS, {"thread": thread_id, "tenant": tenant})
    if row is None:
        return False
    merged = {**orjson.loads(row[0]), **metadata}
    tx.run(_SET_LABELS, {"thread": thread_id, "tenant": tenant, "new_metadata": text(merged)})
    tx.run(_FORGET_LABELS, {"thread": thread_id})
    _add_labels(tx, tenant, thread_id, merged)
    return True


def _state(tx: Tx, thread_id: str, checkpoint_id: str | None) -> StateAt | None:
    point = None
    if checkpoint_id is not None:
        row = tx.one(_POINT, {"checkpoint": checkpoint_id, "thread": thread_id})
        if row is None:
            return None
        point = _point(row)
    return StateAt(point, *states.raw(tx, thread_id, checkpoint_id))


def _change(tx: Tx, tenant: str, thread_id: str, change: Change, kept: states.States) -> bool:
    checkpoint = change.checkpoint
    values = {"thread": thread_id, "tenant": tenant, "new_head": checkpoint.id, "old_head": change.expected_head}
    if tx.one(_MOVE_HEAD, values) is None:
        row = tx.one(_ACTIVE, {"thread": thread_id, "tenant": tenant})
        if row is None:
            raise NotFound("There is no such thread.", code="thread_not_found")
        if row[0] is not None:
            raise Conflict("The thread has an active run; wait for it or cancel it.", code="thread_busy")
        return False
    whole: tuple[bytes, Values] | None = None
    if change.whole_messages:
        before = states.values(tx, thread_id, checkpoint.parent_id)
        fields = cast("Sequence[object]", checkpoint.delta.get("fields", ()))
        whole = orjson.dumps({"messages": checkpoint.delta["messages"]}), apply(before, updates_of(fields))
    states.add(tx, tenant, checkpoint, kept, whole)
    return True


def _hide(tx: Tx, tenant: str, thread_id: str) -> bool:
    if tx.one(_HIDE, {"thread": thread_id, "tenant": tenant}) is None:
        if tx.one(_ACTIVE, {"thread": thread_id, "tenant": tenant}) is None:
            return False
        raise Conflict("The thread has an active run; cancel it first.", code="thread_busy")
    tx.run(_HIDE_RUNS, {"thread": thread_id})
    return True


def _thread(row: Row) -> Thread:
    thread_id, tenant, listed, head, newest, active, active_status, last, metadata, created_at = row
    status: ThreadStatus = "error" if last == "error" else "idle"
    if active is not None:
        status = "interrupted" if active_status == "interrupted" else "busy"
    return Thread(thread_id, tenant, bool(listed), head, newest, active, status, orjson.loads(metadata), created_at)


def _point(row: Row) -> Point:
    checkpoint_id, parent_id, run_id, source, created_at, count, delta, updates = row
    body = orjson.loads(delta)
    if updates is not None:
        body["fields"] = orjson.loads(updates)
    return Point(checkpoint_id, parent_id, run_id, source or "loop", created_at, count, body)
