"""An append: what one transaction adds to a run, as statements. The hot path of storage."""

from typing import Any

from sqlalchemy import bindparam, case, func, insert, select, true, update

from app.runs.records import Append, AppendResult, Dispatch, DispatchVerdict
from app.storage import checkpoints, thread_queue, waiting
from app.storage.call_results import keep_whole
from app.storage.database import Tx
from app.storage.journal_rows import write_batch
from app.storage.registry import DELETED
from app.storage.rows import call_row, result_row, text, text_or_null
from app.storage.statement import Statement
from app.storage.tables import interrupts, runs, tool_calls, tool_switches, tools
from app.storage.tool_switches import STOPS, stopping

_PROGRESS = ("iterations", "steps", "usage", "active_ms")
_TRANSITION = ("status", "stop_reason", "output", "error", "finished_at")


_HEAD = case((runs.c.displaced == "rollback", runs.c.base_checkpoint_id), else_=runs.c.checkpoint_id)
"""Where the thread stands after the run."""


def _advance(*, progress: bool, transition: bool, checkpoint: bool, parks: bool = False) -> Statement:
    """The fenced update of the run's row: no row comes back under an old epoch, after the end, or for a deleted run."""
    names = ["last_seq", "batches"]
    names += _PROGRESS if progress else ()
    names += _TRANSITION if transition else ()
    names += ("checkpoint_id",) if checkpoint else ()
    names += ("parked",) if parks else ()
    values: dict[str, Any] = {name: bindparam(f"new_{name}", type_=runs.c[name].type) for name in names}
    if parks:
        values["owner"] = None
    return Statement(
        update(runs)
        .values(values)
        .where(runs.c.id == bindparam("run"), runs.c.epoch == bindparam("mine"), runs.c.finished_at.is_(None))
        .returning(runs.c.cancel_requested, runs.c.tenant, _HEAD)
    )


_ADVANCE = {
    (progress, transition, checkpoint): _advance(progress=progress, transition=transition, checkpoint=checkpoint)
    for progress in (False, True)
    for transition in (False, True)
    for checkpoint in (False, True)
}
_PARK = {
    checkpoint: _advance(progress=True, transition=True, checkpoint=checkpoint, parks=True)
    for checkpoint in (False, True)
}
_CALL = Statement(insert(tool_calls))
_RESULT = Statement(
    update(tool_calls)
    .values(
        {
            **{
                name: bindparam(name, type_=tool_calls.c[name].type)
                for name in ("state", "status", "observation", "error", "envelope", "attempt_log", "chain", "command")
            },
            "duration_ms": bindparam("duration_ms", type_=tool_calls.c.duration_ms.type),
            "started_at": func.coalesce(
                bindparam("started", type_=tool_calls.c.started_at.type), tool_calls.c.started_at
            ),
        }
    )
    .where(tool_calls.c.id == bindparam("call_id"), tool_calls.c.run_id == bindparam("run"))
)
_DISPATCH = Statement(
    update(tool_calls)
    .values(
        state="dispatched",
        attempts=bindparam("attempt", type_=tool_calls.c.attempts.type),
        attempt_log=bindparam("log", type_=tool_calls.c.attempt_log.type),
        started_at=func.coalesce(tool_calls.c.started_at, bindparam("at", type_=tool_calls.c.started_at.type)),
    )
    .where(tool_calls.c.id == bindparam("call_id"), tool_calls.c.run_id == bindparam("run"))
)
_SENT_INPUT = Statement(
    update(tool_calls)
    .values(
        sent_input=bindparam("said", type_=tool_calls.c.sent_input.type),
        arguments_sha256=bindparam("digest", type_=tool_calls.c.arguments_sha256.type),
    )
    .where(tool_calls.c.id == bindparam("call_id"), tool_calls.c.run_id == bindparam("run"))
)
_deleted = tools.alias("deleted")
_SWITCHED_OFF = select(tool_switches.c.id).where(*STOPS)
_TOOL_LIVES = (
    select(tools.c.version)
    .where(
        tools.c.tenant == bindparam("tenant"),
        tools.c.name == bindparam("name"),
        tools.c.live == 1,
        ~select(_deleted.c.version)
        .where(
            _deleted.c.tenant == tools.c.tenant,
            _deleted.c.name == tools.c.name,
            _deleted.c.live == DELETED,
            _deleted.c.version
            >= select(tool_calls.c.tool_version).where(tool_calls.c.id == bindparam("call_id")).scalar_subquery(),
        )
        .exists(),
    )
    .exists()
)
_MAY_DISPATCH = {
    True: Statement(select(_SWITCHED_OFF.exists(), _TOOL_LIVES)),
    False: Statement(select(_SWITCHED_OFF.exists(), true())),
}
"""By whether the tool is registered: (it is switched off, it was not deleted)."""
_NEWEST = (
    select(tools.c.version)
    .where(tools.c.tenant == tool_calls.c.tenant, tools.c.name == tool_calls.c.tool, tools.c.live == 1)
    .correlate(tool_calls)
    .scalar_subquery()
)
_STANDS = Statement(
    select((tool_calls.c.asked_version == _NEWEST) | tool_calls.c.asked_version.is_(None)).where(
        tool_calls.c.id == bindparam("call_id")
    )
)
"""Whether an approval is still for the tool that would be called. A call that waited before versions were kept has none."""

_UNASKED = Statement(
    select(runs.c.id).where(
        runs.c.id == bindparam("run"),
        runs.c.epoch == bindparam("mine"),
        ~select(interrupts.c.id).where(interrupts.c.run_id == runs.c.id, interrupts.c.state == "pending").exists(),
    )
)

FENCED = AppendResult(fenced=True)
UNASKED = AppendResult(fenced=False, unasked=True)


def write_append(tx: Tx, append: Append, states: checkpoints.States) -> AppendResult:
    """Write an append in the transaction. Nothing is written under an old epoch, nor where a run would be parked unasked."""
    transition = append.transition
    parks = transition is not None and transition.parked == "people" and not append.interrupts
    if parks and tx.one(_UNASKED, {"run": append.run_id, "mine": append.epoch}) is not None:
        return UNASKED
    if transition is not None and transition.parked is not None:
        statement = _PARK[append.checkpoint is not None]
    else:
        statement = _ADVANCE[append.progress is not None, transition is not None, append.checkpoint is not None]
    row = tx.one(statement, _advance_values(append))
    if row is None:
        return FENCED
    cancel_requested, tenant = bool(row[0]), row[1]
    if append.checkpoint is not None:
        checkpoints.add(tx, tenant, append.checkpoint, states)
    for call in append.calls:
        tx.run(_CALL, call_row(call))
    for result in append.results:
        tx.run(_RESULT, {**result_row(result), "run": append.run_id})
        if result.whole is not None:
            keep_whole(tx, result.id, tenant, append.run_id, result.whole)
    if append.waits:
        waiting.begin(tx, append, tenant)
    private: list[Any] = list(append.private)
    verdicts: tuple[DispatchVerdict, ...] = ()
    if append.dispatches:
        verdicts = tuple(
            _dispatch(tx, append.run_id, tenant, dispatch, private, cancel_requested=cancel_requested)
            for dispatch in append.dispatches
        )
    if append.events.n or private:
        write_batch(tx, append.run_id, tenant, append.batch, append.epoch, append.events, private)
    next_run = None
    if transition is not None and transition.finished_at is not None:
        waiting.end(tx, append.run_id)
        next_run = thread_queue.leave(tx, append.thread_id, append.run_id, row[2], states)
    return AppendResult(False, cancel_requested, verdicts, next_run=next_run)


def _advance_values(append: Append) -> dict[str, Any]:
    values: dict[str, Any] = {
        "run": append.run_id,
        "mine": append.epoch,
        "new_last_seq": append.events.last_seq,
        "new_batches": append.batch,
    }
    progress, transition = append.progress, append.transition
    if progress is not None:
        values["new_iterations"] = progress.iterations
        values["new_steps"] = progress.steps
        values["new_usage"] = text(progress.usage)
        values["new_active_ms"] = progress.active_ms
    if transition is not None:
        values["new_status"] = transition.status
        values["new_stop_reason"] = transition.stop_reason
        values["new_output"] = text_or_null(transition.output)
        values["new_error"] = text_or_null(transition.error)
        values["new_finished_at"] = transition.finished_at
        if transition.parked is not None:
            values["new_parked"] = transition.parked
    if append.checkpoint is not None:
        values["new_checkpoint_id"] = append.checkpoint.id
    return values


def _dispatch(
    tx: Tx, run_id: str, tenant: str, dispatch: Dispatch, private: list[Any], *, cancel_requested: bool
) -> DispatchVerdict:
    if cancel_requested:
        return "cancelled"
    named = {"tenant": tenant, "name": dispatch.tool}
    asked = {**named, "call_id": dispatch.tool_call_id} if dispatch.registered else named
    switched_off, lives = tx.one(_MAY_DISPATCH[dispatch.registered], asked) or (0, 0)
    if not lives:
        return "withdrawn"
    if switched_off:
        switch = stopping(tx, tenant, dispatch.tool)
        if switch is not None:
            return switch
    if dispatch.approved and dispatch.registered:
        row = tx.one(_STANDS, {"call_id": dispatch.tool_call_id})
        if row is None or not row[0]:
            return "void"
    if dispatch.sent_input is not None:
        said, digest = text(dispatch.sent_input), dispatch.arguments_sha256
        tx.run(_SENT_INPUT, {"call_id": dispatch.tool_call_id, "run": run_id, "said": said, "digest": digest})
    if not dispatch.log:  # the wait for the caller follows
        return "sent"
    tx.run(
        _DISPATCH,
        {
            "call_id": dispatch.tool_call_id,
            "run": run_id,
            "attempt": dispatch.attempt,
            "log": text(dispatch.log),
            "at": dispatch.at,
        },
    )
    private.append(
        {"type": "dispatch", "tool_call_id": dispatch.tool_call_id, "attempt": dispatch.attempt, "at": dispatch.at}
    )
    return "sent"
