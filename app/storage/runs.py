"""Runs in storage: `SqlRunStore`, the adapter of the port `RunStore`."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import orjson
from sqlalchemy import bindparam, case, delete, func, insert, select, update

from app.agent.state_schema import Values
from app.core.clock import now_ms
from app.core.errors import Conflict, NotFound
from app.core.idempotency import IdempotencyKey
from app.core.messages import Message
from app.runs.ports import NewRun, RunFilter
from app.runs.records import Append, AppendResult, Batch, CallRecord, Checkpoint, Displacement, RunRecord
from app.runs.status import TERMINAL, RunStatus
from app.storage import checkpoints, idempotency, thread_queue
from app.storage.appends import write_append
from app.storage.database import Database, Tx
from app.storage.journal_rows import write_batch
from app.storage.labels import label, labels
from app.storage.rows import CALL_COLUMNS, RUN_COLUMNS, call_record, run_record, run_row
from app.storage.statement import Row, Statement
from app.storage.tables import interrupts, journal, run_metadata, runs, threads, tool_calls, tool_results

_PAGE_ROWS = 256
"""Most journal rows of one `events` answer, so that a small page of a long run costs little."""

_c = runs.c
_id = bindparam("run", type_=_c.id.type)
_tenant = bindparam("tenant", type_=_c.tenant.type)
_HAS_THREAD = _c.queued.is_(None) | (_c.cancel_requested == 1)
"""It waits for no other run, or need not."""
_DRIVEN = ((_c.status == "pending") | (_c.status == "running")) & _HAS_THREAD

_GET = Statement(select(*RUN_COLUMNS).where(_c.id == _id, _c.tenant == _tenant))
_INSERT = Statement(insert(runs))
_INSERT_METADATA = Statement(insert(run_metadata))
_INSERT_THREAD = Statement(insert(threads))
_THREAD = Statement(
    select(threads.c.id, threads.c.head_checkpoint_id).where(
        threads.c.id == bindparam("thread"), threads.c.tenant == _tenant
    )
)
_CLAIM = Statement(
    update(runs)
    .values(
        epoch=_c.epoch + 1,
        # A run that was let go on purpose, and is woken, is no new attempt; one whose owner is gone is.
        attempt=_c.attempt + case((_c.owner.is_(None) & _c.parked.is_not(None), 0), else_=1),
        parked=case((_c.owner.is_(None), _c.parked), else_=None),
        status="running",
        stop_reason=None,
        owner=bindparam("new_owner", type_=_c.owner.type),
        queued=None,
        started_at=func.coalesce(_c.started_at, bindparam("now", type_=_c.started_at.type)),
    )
    .where(_c.id == _id, _DRIVEN | ((_c.status == "interrupted") & (_c.cancel_requested == 1)))
    .returning(*RUN_COLUMNS)
)
_UNFINISHED = Statement(
    select(_c.id, _c.status)
    .where(
        _c.finished_at.is_(None),
        _HAS_THREAD,
        (_c.status == "pending") | ((_c.status == "running") & (_c.parked.is_(None) | _c.owner.is_not(None))),
    )
    .order_by(_c.id)
)
_CANCEL = Statement(
    update(runs)
    .values(cancel_requested=1)
    .where(_c.id == _id, _c.tenant == _tenant, _c.finished_at.is_(None))
    .returning(*RUN_COLUMNS)
)
_DISPLACE = Statement(
    update(runs)
    .values(cancel_requested=1, displaced=bindparam("how", type_=_c.displaced.type))
    .where(_c.id == _id, _c.finished_at.is_(None))
    .returning(_c.id, _c.queued)
)
_NEW_THREAD = thread_queue.Place(None, None)
_STATUS = Statement(select(_c.status).where(_c.id == _id, _c.tenant == _tenant))
_DELETE = Statement(delete(runs).where(_c.id == _id).returning(_c.id))
_DELETE_PARTS = (
    Statement(delete(journal).where(journal.c.run_id == _id)),
    Statement(delete(tool_calls).where(tool_calls.c.run_id == _id)),
    Statement(delete(interrupts).where(interrupts.c.run_id == _id)),
    Statement(delete(tool_results).where(tool_results.c.run_id == _id)),
    Statement(delete(run_metadata).where(run_metadata.c.run_id == _id)),
)


def _events() -> Statement:
    """Event rows beyond `after`, as many as fit. Sizes are added up first, without the bytes themselves."""
    c = journal.c
    rows = (
        select(c.batch, func.length(c.wire).label("bytes"))
        .where(c.run_id == _id, c.last_seq > bindparam("after"), c.n > 0)
        .order_by(c.batch)
        .limit(_PAGE_ROWS)
        .subquery()
    )
    total = func.sum(rows.c.bytes).over(order_by=rows.c.batch).label("total")
    sized = select(rows, total).subquery()
    return Statement(
        select(c.first_seq, c.n, c.wire, c.idx)
        .join(sized, c.batch == sized.c.batch)
        .where(c.run_id == _id, (sized.c.total <= bindparam("max_bytes")) | (sized.c.total == sized.c.bytes))
        .order_by(c.batch)
    )


_EVENTS = _events()
_k = tool_calls.c
_CALLS = select(*CALL_COLUMNS).where(_k.run_id == _id).order_by(_k.step)
_CALLS_AFTER = Statement(_CALLS.where(_k.step > bindparam("after", type_=_k.step.type)))
_CALL = Statement(_CALLS.where(_k.step == bindparam("step", type_=_k.step.type)))
_ROUND = Statement(_CALLS.where(_k.iteration == bindparam("iteration", type_=_k.iteration.type)))


class SqlRunStore:
    """The port `RunStore` on a database. `clock` gives milliseconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], int] = now_ms) -> None:
        self._db = database
        self._clock = clock
        self._states = checkpoints.States()

    async def create(self, new: NewRun, idempotency: IdempotencyKey | None) -> tuple[RunRecord, bool]:
        now = self._clock()
        return await self._db.write(lambda tx: _create(tx, new, idempotency, now, self._states))

    async def find_replay(self, idempotency: IdempotencyKey) -> str | None:
        now = self._clock()
        return await self._db.look(lambda tx: _find_replay(tx, idempotency, now))

    async def get(self, tenant: str, run_id: str) -> RunRecord | None:
        return await self._db.look(lambda tx: _get(tx, tenant, run_id))

    async def page(self, tenant: str, where: RunFilter, *, after: str | None, limit: int) -> list[RunRecord]:
        statement = _page(tenant, where, after, limit)
        return await self._db.read(lambda tx: [run_record(row) for row in tx.all(statement, {})])

    async def claim(self, run_id: str, owner: str) -> RunRecord | None:
        values = {"run": run_id, "new_owner": owner, "now": self._clock()}
        return await self._db.write(lambda tx: _record(tx.one(_CLAIM, values)))

    async def unfinished(self) -> Sequence[tuple[str, RunStatus]]:
        return await self._db.read(lambda tx: [(row[0], row[1]) for row in tx.all(_UNFINISHED, {})])

    async def request_cancel(self, tenant: str, run_id: str) -> RunRecord | None:
        values = {"run": run_id, "tenant": tenant}
        return await self._db.write(lambda tx: _record(tx.one(_CANCEL, values)) or _get(tx, tenant, run_id))

    async def displace(self, run_ids: Sequence[str], how: Displacement) -> Sequence[tuple[str, bool]]:
        return await self._db.write(lambda tx: _displace(tx, run_ids, how))

    async def displace_again(self) -> None:
        for run_ids, how in await self._db.read(thread_queue.displacements):
            await self.displace(run_ids, how)

    async def delete(self, tenant: str, run_id: str) -> bool:
        return await self._db.write(lambda tx: _delete(tx, tenant, run_id))

    async def append(self, append: Append) -> AppendResult:
        return await self._db.write(lambda tx: write_append(tx, append, self._states))

    async def events(self, run_id: str, *, after: int, max_bytes: int) -> Sequence[Batch]:
        values = {"run": run_id, "after": after, "max_bytes": max_bytes}
        return await self._db.read(lambda tx: [_batch(row) for row in tx.all(_EVENTS, values)])

    async def calls(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        status: str | None = None,
        tool: str | None = None,
    ) -> list[CallRecord]:
        statement = _CALLS_AFTER
        if limit is not None or status is not None or tool is not None:
            statement = _some_calls(limit, status, tool)
        values = {"run": run_id, "after": after}
        return await self._db.read(lambda tx: [call_record(row) for row in tx.all(statement, values)])

    async def call(self, run_id: str, step: int) -> CallRecord | None:
        row = await self._db.look(lambda tx: tx.one(_CALL, {"run": run_id, "step": step}))
        return None if row is None else call_record(row)

    async def messages(self, thread_id: str, checkpoint_id: str | None) -> list[Message]:
        if checkpoint_id is None:
            return []
        return await self._db.read(lambda tx: checkpoints.messages(tx, thread_id, checkpoint_id))

    async def state(self, thread_id: str, checkpoint_id: str | None) -> tuple[list[Message], Values]:
        return await self._db.read(lambda tx: checkpoints.state(tx, thread_id, checkpoint_id))

    async def values(self, tenant: str, thread_id: str) -> Values:
        return await self._db.read(lambda tx: _values(tx, tenant, thread_id))

    async def checkpoints_since(self, thread_id: str, checkpoint_id: str, base_id: str | None) -> list[Checkpoint]:
        return await self._db.read(lambda tx: checkpoints.since(tx, thread_id, checkpoint_id, base_id))

    async def recent_calls_of(self, run_id: str, iteration: int) -> list[CallRecord]:
        values = {"run": run_id, "iteration": iteration}
        return await self._db.look(lambda tx: [call_record(row) for row in tx.all(_ROUND, values)])


def _record(row: Row | None) -> RunRecord | None:
    return None if row is None else run_record(row)


def _get(tx: Tx, tenant: str, run_id: str) -> RunRecord | None:
    return _record(tx.one(_GET, {"run": run_id, "tenant": tenant}))


def _find_replay(tx: Tx, key: IdempotencyKey, now: int) -> str | None:
    """What the key made, unless that was deleted since: then the key counts as unused."""
    run_id = idempotency.find(tx, key, now)
    if run_id is None or tx.one(_STATUS, {"run": run_id, "tenant": key.tenant}) is None:
        return None
    return run_id


def _create(
    tx: Tx, new: NewRun, key: IdempotencyKey | None, now: int, states: checkpoints.States
) -> tuple[RunRecord, bool]:
    run = new.run
    if key is not None:
        made = idempotency.find(tx, key, now)
        found = None if made is None else _get(tx, key.tenant, made)
        if found is not None:
            return found, True
    place = _NEW_THREAD if new.new_thread else thread_queue.take(tx, new)
    if new.new_thread:
        tx.run(
            _INSERT_THREAD,
            {
                "id": run.thread_id,
                "tenant": run.tenant,
                "listed": 0,
                "head_checkpoint_id": None,
                "active_run_id": run.id,
                "metadata": "{}",
                "created_at": run.created_at,
            },
        )
    if place.queued is not None:
        run = replace(run, status="pending", epoch=0, attempt=0, owner=None, started_at=None, queued=place.queued)
        run.last_seq = run.batches = 0
    else:
        state = thread_queue.begin(tx, new, place.head, states)
        run = replace(run, base_checkpoint_id=place.head, checkpoint_id=new.checkpoint_id, before=state.messages)
        if new.first is not None:
            run.last_seq, run.batches = new.first.last_seq, 1
            write_batch(tx, run.id, run.tenant, 1, run.epoch, new.first)
    tx.run(_INSERT, run_row(run))
    if run.metadata:
        found = labels(run.metadata)
        tx.many(
            _INSERT_METADATA,
            [{"tenant": run.tenant, "key": name, "value": value, "run_id": run.id} for name, value in found],
        )
    if key is not None:
        idempotency.keep(tx, key, run.id, now)
    return run, False


def _displace(tx: Tx, run_ids: Sequence[str], how: Displacement) -> list[tuple[str, bool]]:
    rows = [tx.one(_DISPLACE, {"run": run_id, "how": how}) for run_id in run_ids]
    return [(row[0], row[1] is not None) for row in rows if row is not None]


def _values(tx: Tx, tenant: str, thread_id: str) -> Values:
    row = tx.one(_THREAD, {"thread": thread_id, "tenant": tenant})
    if row is None:
        raise NotFound("There is no such thread.", code="thread_not_found")
    return checkpoints.values(tx, thread_id, row[1])


def _delete(tx: Tx, tenant: str, run_id: str) -> bool:
    row = tx.one(_STATUS, {"run": run_id, "tenant": tenant})
    if row is None:
        return False
    if row[0] not in TERMINAL:
        raise Conflict("The run is still active; cancel it first.", code="run_active")
    return delete_run(tx, run_id)


def delete_run(tx: Tx, run_id: str) -> bool:
    """Delete a run, whatever its status, with all that is its own; whether there was one."""
    if tx.one(_DELETE, {"run": run_id}) is None:
        return False
    for statement in _DELETE_PARTS:
        tx.run(statement, {"run": run_id})
    return True


def _page(tenant: str, where: RunFilter, after: str | None, limit: int) -> Statement:
    """Ids are time-ordered, so their order is the order of creation."""
    query = select(*RUN_COLUMNS).where(_c.tenant == tenant)
    if where.status is not None:
        query = query.where(_c.status == where.status)
    if where.agent is not None:
        query = query.where(_c.agent == where.agent)
    if where.thread_id is not None:
        query = query.where(_c.thread_id == where.thread_id)
    for name, value in (where.metadata or {}).items():
        query = query.where(
            select(run_metadata.c.run_id)
            .where(
                run_metadata.c.tenant == tenant,
                run_metadata.c.key == label(name),
                run_metadata.c.value == label(value),
                run_metadata.c.run_id == _c.id,
            )
            .exists()
        )
    if after is not None:
        query = query.where(_c.id < after)
    return Statement(query.order_by(_c.id.desc()).limit(limit))


def _some_calls(limit: int | None, status: str | None, tool: str | None) -> Statement:
    query = _CALLS.where(_k.step > bindparam("after", type_=_k.step.type))
    if status == "waiting":
        query = query.where((_k.state == "proposed") | (_k.state == "waiting"))
    elif status == "running":
        query = query.where(_k.state == "dispatched")
    elif status is not None:
        query = query.where(_k.status == status)
    if tool is not None:
        query = query.where(_k.tool == tool)
    return Statement(query if limit is None else query.limit(limit))


def _batch(row: Row) -> Batch:
    first_seq, n, wire, index = row
    return Batch(first_seq, n, bytes(wire), tuple((name, offset) for name, offset in orjson.loads(index)))
