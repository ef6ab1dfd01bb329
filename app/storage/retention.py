"""Retention in storage: `SqlRetentionStore`, the adapter of the port `RetentionStore`.

A batch is planned on a reading thread, which also brings its pages into memory, and deleted in one short transaction: on
SQLite that runs on the loop's thread, between the appends of live runs. What is too large for one transaction is hidden
first (its tenant becomes `NOBODY`) and then cut from its newest row backwards: a reader in the middle of it
finds an early end and then nothing, never a gap.
"""

from collections.abc import Callable

from sqlalchemy import Table, bindparam, delete, func, select, update

from app.core.clock import now_ms
from app.core.values import immutable
from app.runs.ports import Swept
from app.storage import idempotency
from app.storage.database import Database, Tx
from app.storage.runs import delete_run
from app.storage.secret_sweep import delete_unused
from app.storage.statement import Row, Statement
from app.storage.store import delete_expired
from app.storage.tables import checkpoints, journal, runs, thread_metadata, threads, tool_calls, tool_results
from app.storage.tool_signing import MOST_FORGOTTEN, forget_expired

MAX_ITEMS = 100
"""Most runs, or threads, of one transaction."""

MAX_ROWS = 300
"""Most rows of one transaction that hang on them (about 10 µs each)."""

MAX_BYTES = 4 << 20
"""Most bytes of these rows: freeing a long one visits each of its pages."""

NOBODY = ""
"""No principal's tenant, so that a row of it is another tenant's for everybody."""

_r, _t, _c, _j, _k = runs.c, threads.c, checkpoints.c, journal.c, tool_calls.c
_id = bindparam("of", type_=_r.id.type)
_before = bindparam("before", type_=_r.finished_at.type)
_limit = bindparam("most", type_=_r.last_seq.type)

_LEFT = (
    _t.listed == 0,
    _t.active_run_id.is_(None),
    _t.created_at < _before,
    ~select(_r.id).where(_r.thread_id == _t.id).exists(),
    ~select(_c.id).where(_c.thread_id == _t.id, _c.created_at >= _before).exists(),
)
"""Of a thread that nobody can find any more: it is in no list, no run is left that names it, and nothing in it is new."""


def _cut(table: Table, owner: str, newest: str) -> Statement:
    """Delete an owner's newest rows, at most `most`."""
    key, mine = table.c[newest], table.c[owner] == _id
    return Statement(delete(table).where(mine, key.in_(select(key).where(mine).order_by(key.desc()).limit(_limit))))


@immutable
class _Part:
    """Rows that hang on a run or a thread."""

    weigh: Statement
    cut: Statement

    @classmethod
    def of(cls, table: Table, owner: str, newest: str, *long: str) -> "_Part":
        size = sum((func.coalesce(func.length(table.c[name]), 0) for name in long[1:]), func.length(table.c[long[0]]))
        weigh = select(func.count(), func.coalesce(func.sum(size), 0)).where(table.c[owner] == _id)
        return cls(Statement(weigh), _cut(table, owner, newest))


@immutable
class _Kind:
    """What is deleted as a whole: runs, or threads. `hide` and `delete` answer with a row when they found it."""

    old: Statement
    hide: Statement
    delete: Callable[[Tx, str, int], bool]
    parts: tuple[_Part, ...]


def _delete_run(tx: Tx, run_id: str, _before_ms: int) -> bool:
    return delete_run(tx, run_id)


_DELETE_THREAD = Statement(delete(threads).where(_t.id == _id, *_LEFT).returning(_t.id))
_DELETE_LABELS = Statement(delete(thread_metadata).where(thread_metadata.c.thread_id == _id))
_DELETE_CHECKPOINTS = Statement(delete(checkpoints).where(_c.thread_id == _id))


def _delete_thread(tx: Tx, thread_id: str, before_ms: int) -> bool:
    if tx.one(_DELETE_THREAD, {"of": thread_id, "before": before_ms}) is None:  # a run was posted to it meanwhile
        return False
    tx.run(_DELETE_CHECKPOINTS, {"of": thread_id})
    tx.run(_DELETE_LABELS, {"of": thread_id})
    return True


_RUNS = _Kind(
    Statement(select(_r.id).where(_r.finished_at < _before).order_by(_r.finished_at).limit(MAX_ITEMS)),
    Statement(update(runs).values(tenant=NOBODY).where(_r.id == _id, _r.finished_at < _before).returning(_r.id)),
    _delete_run,
    (
        _Part.of(journal, "run_id", "batch", "wire", "private"),
        _Part.of(tool_calls, "run_id", "step", "tool_input", "observation", "envelope", "sent_input"),
        _Part.of(tool_results, "run_id", "tool_call_id", "data"),
    ),
)
_THREADS = _Kind(
    Statement(select(_t.id).where(*_LEFT).order_by(_t.created_at).limit(MAX_ITEMS)),
    Statement(update(threads).values(tenant=NOBODY).where(_t.id == _id, *_LEFT).returning(_t.id)),
    _delete_thread,
    (_Part.of(checkpoints, "thread_id", "depth", "delta", "snapshot"),),
)


@immutable
class _Plan:
    """Either items to be deleted whole, or one that is cut: `cut` is (its id, its part, how many rows)."""

    whole: tuple[str, ...] = ()
    cut: tuple[str, _Part, int] | None = None


class SqlRetentionStore:
    """The port `RetentionStore` on a database. `clock` gives milliseconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], int] = now_ms) -> None:
        self._db = database
        self._clock = clock

    async def delete_runs(self, before_ms: int) -> Swept:
        return await self._delete(_RUNS, before_ms)

    async def delete_threads(self, before_ms: int) -> Swept:
        return await self._delete(_THREADS, before_ms)

    async def forget_keys(self) -> Swept:
        now = self._clock()
        count = await self._db.write(lambda tx: idempotency.forget_old(tx, now))
        return Swept(count, count == idempotency.MOST_FORGOTTEN)

    async def delete_secrets(self, before_ms: int) -> Swept:
        now = self._clock()
        expired = await self._db.write(lambda tx: forget_expired(tx, now))
        return Swept(expired + await delete_unused(self._db, before_ms), more=expired == MOST_FORGOTTEN)

    async def delete_items(self) -> Swept:
        limits = {"most_items": MAX_ITEMS, "most_rows": MAX_ROWS, "most_bytes": MAX_BYTES}
        return await delete_expired(self._db, self._clock(), **limits)

    async def _delete(self, kind: _Kind, before_ms: int) -> Swept:
        plan = await self._db.read(lambda tx: _plan(tx, kind, before_ms))
        cut, whole = plan.cut, plan.whole
        if cut is not None:
            await self._db.write(lambda tx: _cut_off(tx, kind, cut, before_ms))
            return Swept(0, more=True)
        if not whole:
            return Swept(0, more=False)
        count = await self._db.write(lambda tx: sum(kind.delete(tx, item, before_ms) for item in whole))
        return Swept(count, more=count > 0)


FOREVER = 2**62
"""A time that everything is before."""


async def erase_run(database: Database, run_id: str) -> None:
    """Delete a finished run with all that is its own, in short transactions."""
    await _erase(database, _RUNS, run_id)


async def erase_thread(database: Database, thread_id: str) -> None:
    """Delete a thread that is hidden and has no run, with its state, in short transactions."""
    await _erase(database, _THREADS, thread_id)


async def _erase(database: Database, kind: _Kind, item: str) -> None:
    while True:
        heavy = await database.read(lambda tx: _heavy(_weights(tx, kind, item), kind, item))
        if heavy is None:
            await database.write(lambda tx: kind.delete(tx, item, FOREVER))
            return
        await database.write(lambda tx, cut=heavy: _cut_off(tx, kind, cut, FOREVER))


def _weights(tx: Tx, kind: _Kind, item: str) -> list[tuple[int, int]]:
    return [_weight(tx.one(part.weigh, {"of": item})) for part in kind.parts]


def _heavy(weights: list[tuple[int, int]], kind: _Kind, item: str) -> tuple[str, _Part, int] | None:
    """What is to be cut from an item that is too large for one transaction."""
    if sum(weight[0] for weight in weights) <= MAX_ROWS and sum(weight[1] for weight in weights) <= MAX_BYTES:
        return None
    part, (n, weight) = max(zip(kind.parts, weights, strict=True), key=lambda found: found[1])
    return (item, part, max(1, min(MAX_ROWS, n * MAX_BYTES // max(1, weight), n - 1))) if n > 1 else None


def _plan(tx: Tx, kind: _Kind, before_ms: int) -> _Plan:
    whole: list[str] = []
    rows = size = 0
    for (item,) in tx.all(kind.old, {"before": before_ms}):
        weights = _weights(tx, kind, item)
        rows += sum(weight[0] for weight in weights)
        size += sum(weight[1] for weight in weights)
        if rows > MAX_ROWS or size > MAX_BYTES:
            if whole:
                break
            heavy = _heavy(weights, kind, item)
            if heavy is not None:
                return _Plan(cut=heavy)
        whole.append(item)
    return _Plan(tuple(whole))


def _weight(row: Row | None) -> tuple[int, int]:
    """(rows, bytes)."""
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def _cut_off(tx: Tx, kind: _Kind, cut: tuple[str, _Part, int], before_ms: int) -> None:
    item, part, most = cut
    if tx.one(kind.hide, {"of": item, "before": before_ms}) is not None:
        tx.run(part.cut, {"of": item, "most": most})
