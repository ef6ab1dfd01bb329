"""Waiting calls in storage: what they wait for, the questions asked for them, and the answers."""

from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import bindparam, func, insert, null, select, update

from app.core.clock import now_ms
from app.core.errors import Conflict, Gone, NotFound
from app.core.events import EventType, wire
from app.runs.records import Append, Batch, CallRecord, RunRecord
from app.runs.waiting import Answer, HeldTurn, Woken
from app.storage.database import Database, Tx
from app.storage.journal_rows import write_batch
from app.storage.rows import CALL_COLUMNS, RUN_COLUMNS, call_record, run_record, text, value_of
from app.storage.statement import Statement
from app.storage.tables import interrupts, runs, tool_calls, tools

_r, _k, _i, _t = runs.c, tool_calls.c, interrupts.c, tools.c
_RUN = bindparam("run", type_=_r.id.type)
_TENANT = bindparam("tenant", type_=_r.tenant.type)

_WAIT = Statement(
    update(tool_calls)
    .values(
        state="waiting",
        answer=null(),  # to what it waited for before; its interrupt keeps it
        asked_version=select(_t.version)
        .where(_t.tenant == _k.tenant, _t.name == _k.tool, _t.live == 1)
        .correlate(tool_calls)
        .scalar_subquery(),
        **{
            name: bindparam(f"new_{name}", type_=_k[name].type)
            for name in ("wait", "wait_until", "attempt_log", "chain")
        },
    )
    .where(_k.id == bindparam("call_id"), _k.run_id == _RUN)
    .returning(_k.id)
)
_ASK = Statement(insert(interrupts))
_PENDING = Statement(select(_i.shown).where(_i.run_id == _RUN, _i.state == "pending").order_by(_i.created_at, _i.id))
_SHOW = Statement(
    update(runs).values(interrupts=bindparam("new_interrupts", type_=_r.interrupts.type)).where(_r.id == _RUN)
)
_VOID = Statement(update(interrupts).values(state="void").where(_i.run_id == _RUN, _i.state == "pending"))
_LOCK = Statement(select(*RUN_COLUMNS).where(_r.id == _RUN, _r.tenant == _TENANT))
_ROW = Statement(
    select(_i.id, _i.tool_call_id, _i.state, _i.expires_at, _i.shown, _i.reason).where(
        _i.id == bindparam("interrupt"), _i.run_id == _RUN
    )
)
_ANSWER = Statement(
    update(interrupts)
    .values(
        state=bindparam("new_state", type_=_i.state.type),
        answer=bindparam("new_answer", type_=_i.answer.type),
        answered_by=bindparam("by", type_=_i.answered_by.type),
        answered_at=bindparam("now", type_=_i.answered_at.type),
    )
    .where(_i.id == bindparam("interrupt"), _i.state == "pending")
)
_ANSWER_CALL = Statement(
    update(tool_calls)
    .values(answer=bindparam("new_answer", type_=_k.answer.type))
    .where(_k.id == bindparam("call_id"), _k.state == "waiting", _k.answer.is_(None))
    .returning(_k.id)
)
_LATE_RESULT = Statement(
    update(tool_calls)
    .values(late_result=bindparam("new_result", type_=_k.late_result.type))
    .where(_k.id == bindparam("call_id"), _k.late_result.is_(None))
)
_RESUME = Statement(update(runs).values(status="pending").where(_r.id == _RUN, _r.status == "interrupted"))
_EXPIRED = Statement(
    select(_i.id, _i.tool_call_id).where(
        _i.run_id == _RUN, _i.state == "pending", _i.expires_at <= bindparam("now", type_=_i.expires_at.type)
    )
)
_PARKING = Statement(select(_r.status, _r.parked, _r.owner, _r.finished_at, _r.cancel_requested).where(_r.id == _RUN))
_READY = Statement(
    select(func.count()).where(
        _k.run_id == _RUN,
        _k.state == "waiting",
        _k.late_result.is_not(None) | (_k.wait_until <= bindparam("now", type_=_k.wait_until.type)),
    )
)
_NEXT = Statement(
    update(runs)
    .values(last_seq=_r.last_seq + 1, batches=_r.batches + 1)
    .where(_r.id == _RUN, _r.finished_at.is_(None), _r.parked.is_not(None), _r.owner.is_(None))
    .returning(_r.last_seq, _r.batches, _r.epoch, _r.tenant)
)
_PARKED = Statement(
    select(_k.run_id, func.min(_k.wait_until))
    .select_from(tool_calls.join(runs, _r.id == _k.run_id))
    .where(_r.finished_at.is_(None), _r.parked.is_not(None), _r.owner.is_(None), _k.state == "waiting")
    .group_by(_k.run_id)
)
_DEFERRED = Statement(
    select(_k.id, _k.run_id, _k.tenant, _k.wait, _k.wait_until)
    .select_from(tool_calls.join(runs, _r.id == _k.run_id))
    .where(_r.finished_at.is_(None), _k.state == "waiting", _k.attempts > 0, _k.late_result.is_(None))
    .order_by(_k.id)
)
_NEXT_QUESTION = Statement(select(func.min(_i.expires_at)).where(_i.run_id == _RUN, _i.state == "pending"))
_NEXT_WAIT = Statement(select(func.min(_k.wait_until)).where(_k.run_id == _RUN, _k.state == "waiting"))
_CALL = Statement(select(*CALL_COLUMNS).where(_k.id == bindparam("call_id", type_=_k.id.type)))


def begin(tx: Tx, append: Append, tenant: str) -> None:
    """Calls of a run begin to wait; whoever is asked for them finds the question."""
    for wait in append.waits:
        values = {
            "call_id": wait.id,
            "run": append.run_id,
            "new_wait": text(wait.wait),
            "new_wait_until": wait.wait["until_ms"],
            "new_attempt_log": text(wait.attempt_log),
            "new_chain": text(wait.chain),
        }
        if tx.one(_WAIT, values) is None:
            raise LookupError(f"run {append.run_id} has no call {wait.id} that could wait")
    for asked in append.interrupts:
        tx.run(
            _ASK,
            {
                "id": asked.id,
                "tenant": tenant,
                "run_id": asked.run_id,
                "tool_call_id": asked.tool_call_id,
                "reason": asked.reason,
                "shown": text(asked.shown),
                "state": "pending",
                "created_at": asked.created_at,
                "expires_at": asked.expires_at,
                "answer": None,
                "answered_by": None,
                "answered_at": None,
            },
        )
    if append.interrupts:
        _show_pending(tx, append.run_id)


def end(tx: Tx, run_id: str) -> None:
    """The run is over: nobody needs to answer any more."""
    tx.run(_VOID, {"run": run_id})
    tx.run(_SHOW, {"run": run_id, "new_interrupts": "[]"})


def _show_pending(tx: Tx, run_id: str) -> bool:
    """List the run's open questions in its row; whether there are any."""
    shown = [value_of(row[0]) for row in tx.all(_PENDING, {"run": run_id})]
    tx.run(_SHOW, {"run": run_id, "new_interrupts": text(shown)})
    return bool(shown)


class SqlWaitStore:
    """The port `WaitStore` on a database. `clock` gives milliseconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], int] = now_ms) -> None:
        self._db = database
        self._clock = clock

    async def answer(self, tenant: str, run_id: str, answers: Sequence[Answer], by: str) -> tuple[RunRecord, bool]:
        now = self._clock()
        return await self._db.write(lambda tx: _answer(tx, tenant, run_id, answers, by, now))

    async def call(self, tool_call_id: str) -> CallRecord | None:
        row = await self._db.look(lambda tx: tx.one(_CALL, {"call_id": tool_call_id}))
        return None if row is None else call_record(row)

    async def deliver(self, tool_call_id: str, result: Mapping[str, object]) -> str:
        now = self._clock()
        return await self._db.write(lambda tx: _deliver(tx, tool_call_id, result, now))

    async def tell(self, run_id: str, event: EventType, data: Mapping[str, object]) -> Batch | None:
        return await self._db.write(lambda tx: _tell(tx, run_id, event, data))

    async def wake(self, run_id: str) -> Woken:
        now = self._clock()
        return await self._db.write(lambda tx: _wake(tx, run_id, now))

    async def parked(self) -> Sequence[tuple[str, int]]:
        return await self._db.read(lambda tx: [(row[0], row[1]) for row in tx.all(_PARKED, {})])

    async def held_turns(self) -> Sequence[HeldTurn]:
        return await self._db.read(_held_turns)


def _answer(tx: Tx, tenant: str, run_id: str, answers: Sequence[Answer], by: str, now: int) -> tuple[RunRecord, bool]:
    values = {"run": run_id, "tenant": tenant}
    row = tx.one(_LOCK, values)
    if row is None:
        raise NotFound(f"There is no run `{run_id}`.", code="run_not_found")
    for answer in answers:
        asked = tx.one(_ROW, {"interrupt": answer.interrupt_id, "run": run_id})
        if asked is None:
            raise NotFound(f"The run has no interrupt `{answer.interrupt_id}`.", code="interrupt_not_found")
        if asked[2] == "expired" or (asked[2] == "pending" and asked[3] <= now):
            raise Conflict("The interrupt has expired; its call is rejected.", code="interrupt_expired")
        if asked[2] == "void":
            status = row[_STATUS_AT]
            raise Conflict(f"The run is over ({status}); there is nothing to answer.", code="run_not_interrupted")
        if asked[2] != "pending":
            raise Conflict("The interrupt was answered already.", code="interrupt_resolved")
        decided = {**answer.decided, "by": by, "at": now}
        if not _settle(tx, answer.interrupt_id, asked[1], decided, "answered", by, now):
            raise Conflict("The call does not wait any more.", code="interrupt_resolved")
    pending = _show_pending(tx, run_id)
    resumed = not pending and row[_STATUS_AT] == "interrupted"
    if resumed:
        tx.run(_RESUME, {"run": run_id})
    after = tx.one(_LOCK, values)
    assert after is not None
    return run_record(after), resumed


_STATUS_AT = [column.name for column in RUN_COLUMNS].index("status")


def _settle(
    tx: Tx, interrupt_id: str, call_id: str, answer: Mapping[str, object], state: str, by: str | None, now: int
) -> bool:
    """Whether the call waited for it."""
    said = text(answer)
    tx.run(_ANSWER, {"interrupt": interrupt_id, "new_state": state, "new_answer": said, "by": by, "now": now})
    return tx.one(_ANSWER_CALL, {"call_id": call_id, "new_answer": said}) is not None


def _tell(tx: Tx, run_id: str, event: EventType, data: Mapping[str, object]) -> Batch | None:
    row = tx.one(_NEXT, {"run": run_id})
    if row is None:
        return None
    seq, number, epoch, tenant = row
    batch = Batch(seq, 1, wire(seq, event, data), ((event, 0),))
    write_batch(tx, run_id, tenant, number, epoch, batch)
    return batch


def _wake(tx: Tx, run_id: str, now: int) -> Woken:
    row = tx.one(_PARKING, {"run": run_id})
    if row is None or row[1] is None or row[2] is not None or row[3] is not None:
        return Woken()
    if row[4]:  # by a server that died before it could end the run
        return Woken(ready=True)
    for interrupt_id, call_id in tx.all(_EXPIRED, {"run": run_id, "now": now}):
        _settle(tx, interrupt_id, call_id, {"decision": "expired"}, "expired", None, now)
    if row[0] == "interrupted":
        if not _show_pending(tx, run_id):
            tx.run(_RESUME, {"run": run_id})
            return Woken(ready=True)
        return Woken(until_ms=_next(tx, _NEXT_QUESTION, run_id))
    ready = tx.one(_READY, {"run": run_id, "now": now})
    if ready is not None and ready[0] > 0:
        return Woken(ready=True)
    return Woken(until_ms=_next(tx, _NEXT_WAIT, run_id))


def _held_turns(tx: Tx) -> list[HeldTurn]:
    found: list[HeldTurn] = []
    for call_id, run_id, tenant, wait, until_ms in tx.all(_DEFERRED, {}):
        shared = value_of(wait)["facts"].get("turns")
        if shared:
            found.append(HeldTurn(call_id, run_id, tenant, tuple((kind, key) for kind, key in shared), until_ms))
    return found


def _next(tx: Tx, statement: Statement, run_id: str) -> int | None:
    row = tx.one(statement, {"run": run_id})
    return None if row is None else row[0]


def _deliver(tx: Tx, call_id: str, result: Mapping[str, object], now: int) -> str:
    row = tx.one(_CALL, {"call_id": call_id})
    if row is None:
        raise NotFound("There is no such tool call.", code="tool_call_not_found")
    call = call_record(row)
    if call.late_result is not None:
        if call.late_result == result:
            return call.run_id
        raise Conflict("The call has another result already.", code="result_exists")
    # One that was sent may call back before its 202 is read; what it waited for before it was sent is past.
    waits = call.wait_until is not None and call.wait_until > now and (call.wait or {}).get("reason") == "deferred"
    if call.state != "dispatched" and not (call.state == "waiting" and waits):
        raise Gone("The call is over: its result came too late.", code="call_over")
    tx.run(_LATE_RESULT, {"call_id": call_id, "new_result": text(result)})
    return call.run_id
