"""The line of runs at a thread: one has it, the others wait in the order in which they were accepted.

What a waiting run brings is kept with it, and becomes a checkpoint when the run gets the thread: only then is it known what
that stands on. The thread's row is the lock: who takes, joins or leaves the line has written it first.
"""

from collections.abc import Sequence
from typing import Any, cast

import orjson
from sqlalchemy import bindparam, func, select, update

from app.agent.state_schema import FieldUpdate, updates_of
from app.core.errors import Conflict, NotFound
from app.core.values import immutable
from app.runs.ports import NewRun
from app.runs.records import Checkpoint, Displacement
from app.storage import checkpoints
from app.storage.database import Tx
from app.storage.statement import Statement
from app.storage.tables import runs, threads

LONGEST = 100
"""Runs that wait for one thread."""

_r, _t = runs.c, threads.c
_thread = bindparam("thread", type_=_t.id.type)
_tenant = bindparam("tenant", type_=_t.tenant.type)
_run = bindparam("run", type_=_r.id.type)
_head = bindparam("head", type_=_t.head_checkpoint_id.type)

_TAKE = Statement(
    update(threads)
    .values(active_run_id=func.coalesce(_t.active_run_id, _run))
    .where(_t.id == _thread, _t.tenant == _tenant)
    .returning(_t.active_run_id, _t.head_checkpoint_id)
)
_LEAVE = Statement(
    update(threads)
    .values(head_checkpoint_id=_head, active_run_id=None)
    .where(_t.id == _thread, _t.active_run_id == _run)
    .returning(_t.id)
)
_ENTER = Statement(update(threads).values(active_run_id=_run).where(_t.id == _thread))
_WAITING = (_r.thread_id == _thread, _r.queued.is_not(None))
_LINE = Statement(select(_r.id).where(*_WAITING).order_by(_r.id))
_NEXT = Statement(
    select(_r.id, _r.queued, _r.tenant, _r.created_at)
    .where(*_WAITING, _r.cancel_requested == 0)
    .order_by(_r.id)
    .limit(1)
)
_ALL_WAITING = Statement(select(_r.queued).where(_r.queued.is_not(None), _r.cancel_requested == 0).order_by(_r.id))
_START = Statement(
    update(runs)
    .values(
        queued=None,
        base_checkpoint_id=_head,
        checkpoint_id=bindparam("checkpoint", type_=_r.checkpoint_id.type),
        before=bindparam("count", type_=_r.before.type),
    )
    .where(_r.id == _run)
)


@immutable
class Place:
    """Where a new run stands at an existing thread."""

    head: str | None
    queued: dict[str, object] | None
    """What is kept with it where it has to wait."""


def take(tx: Tx, new: NewRun) -> Place:
    """Give the run its thread, or a place in the line. Raises `NotFound` (`thread_not_found`), `Conflict` (`thread_busy`)."""
    run = new.run
    row = tx.one(_TAKE, {"thread": run.thread_id, "tenant": run.tenant, "run": run.id})
    if row is None:
        raise NotFound("There is no such thread.", code="thread_not_found")
    active, head = row
    if active == run.id:
        return Place(head, None)
    if new.when_busy == "reject":
        raise Conflict("The thread has an active run; wait for it or cancel it.", code="thread_busy")
    line = [item for (item,) in tx.all(_LINE, {"thread": run.thread_id})]
    if new.when_busy == "enqueue" and len(line) >= LONGEST:
        raise Conflict(f"{LONGEST} runs wait for this thread already.", code="thread_busy")
    displaces = [] if new.when_busy == "enqueue" else [active, *line]
    queued: dict[str, object] = {
        "messages": [message.to_json() for message in new.input_messages],
        "fields": [item.to_json() for item in new.fields],
        "defaults": [item.to_json() for item in new.defaults],
        "checkpoint_id": new.checkpoint_id,
        "displaces": displaces,
        "how": new.when_busy,
    }
    return Place(head, queued)


def begin(tx: Tx, new: NewRun, head: str | None, states: checkpoints.States) -> checkpoints.State:
    """Write what a run that has its thread begins with."""
    run = new.run
    delta = _delta(tx, run.thread_id, head, [item.to_json() for item in new.input_messages], new.fields, new.defaults)
    checkpoint = Checkpoint(new.checkpoint_id, run.thread_id, head, run.id, delta, run.created_at, "input")
    return checkpoints.add(tx, run.tenant, checkpoint, states)


def leave(tx: Tx, thread_id: str, run_id: str, head: str | None, states: checkpoints.States) -> str | None:
    """A run is over: its thread goes to the next in the line, whose id is the answer."""
    if tx.one(_LEAVE, {"thread": thread_id, "run": run_id, "head": head}) is None:
        return None  # it never had the thread
    row = tx.one(_NEXT, {"thread": thread_id})
    if row is None:
        return None
    next_id, kept, tenant, created_at = row
    queued = cast("dict[str, Any]", orjson.loads(kept))
    fields, defaults = updates_of(queued["fields"]), updates_of(queued["defaults"])
    delta = _delta(tx, thread_id, head, queued["messages"], fields, defaults)
    checkpoint = Checkpoint(queued["checkpoint_id"], thread_id, head, next_id, delta, created_at, "input")
    state = checkpoints.add(tx, tenant, checkpoint, states)
    tx.run(_START, {"run": next_id, "head": head, "checkpoint": checkpoint.id, "count": state.messages})
    tx.run(_ENTER, {"thread": thread_id, "run": next_id})
    return next_id


def displacements(tx: Tx) -> list[tuple[list[str], Displacement]]:
    """(the runs that it displaces, how) of every waiting run that displaces any."""
    kept = [cast("dict[str, Any]", orjson.loads(row[0])) for row in tx.all(_ALL_WAITING, {})]
    return [(queued["displaces"], queued["how"]) for queued in kept if queued["displaces"]]


def _delta(
    tx: Tx,
    thread_id: str,
    head: str | None,
    messages: Sequence[object],
    fields: Sequence[FieldUpdate],
    defaults: Sequence[FieldUpdate],
) -> dict[str, object]:
    """Defaults of the fields that the thread does not have, then what the run gives."""
    delta: dict[str, object] = {"messages": messages}
    if defaults and head is not None:
        there = checkpoints.values(tx, thread_id, head)
        defaults = [item for item in defaults if item.name not in there]
    if fields or defaults:
        delta["fields"] = [item.to_json() for item in (*defaults, *fields)]
    return delta
