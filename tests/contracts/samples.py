"""Runs, appends and calls to try a store with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.core.events import wire
from app.core.ids import new_id
from app.core.messages import Message
from app.runs.ports import NewRun, RunStore
from app.runs.records import (
    Append,
    AppendResult,
    Batch,
    CallRecord,
    CallResult,
    Checkpoint,
    Dispatch,
    RunRecord,
    Transition,
)
from app.runs.status import RunStatus

HELLO = Message("user", "hello")


@dataclass
class Clock:
    """Milliseconds since the epoch, moved by hand."""

    now: int = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


def new_run(
    tenant: str = "acme",
    *,
    thread_id: str | None = None,
    messages: Sequence[Message] = (HELLO,),
    claimed: bool = True,
    **changes: Any,
) -> NewRun:
    run = RunRecord(
        id=new_id(),
        tenant=tenant,
        thread_id=thread_id or new_id(),
        agent="support",
        spec={"agent": {"model": "scripted:any"}, "tools": []},
        input={"messages": ["ä", 1, None]},
        context={"locale": "de"},
        metadata={},
        subject="key_1",
        scopes=["runs:read"],
        created_at=1_800_000_000_000,
    )
    first = None
    if claimed:
        run = replace(run, status="running", epoch=1, attempt=1, started_at=run.created_at, owner="me")
        first = events(1, ("run", {"attempt": 1}))
    return NewRun(replace(run, **changes), tuple(messages), new_id(), thread_id is None, first)


def events(first_seq: int, *items: tuple[Any, Mapping[str, object]]) -> Batch:
    parts: list[bytes] = []
    index: list[tuple[str, int]] = []
    offset = 0
    for number, (kind, data) in enumerate(items):
        part = wire(first_seq + number, kind, data)
        index.append((kind, offset))
        offset += len(part)
        parts.append(part)
    return Batch(first_seq, len(items), b"".join(parts), tuple(index))


@dataclass
class Driver:
    """Appends to one run as its driver would: it keeps count of batches and ids."""

    store: RunStore
    run: RunRecord
    batch: int = field(init=False)
    seq: int = field(init=False)

    def __post_init__(self) -> None:
        self.batch, self.seq = self.run.batches, self.run.last_seq

    def next(self, *items: tuple[Any, Mapping[str, object]], **parts: Any) -> Append:
        self.batch += 1
        batch = events(self.seq + 1, *items)
        self.seq = batch.last_seq
        return Append(self.run.id, self.run.thread_id, self.run.epoch, self.batch, batch, **parts)

    async def append(self, *items: tuple[Any, Mapping[str, object]], **parts: Any) -> AppendResult:
        return await self.store.append(self.next(*items, **parts))

    async def end(self, status: RunStatus = "success", **parts: Any) -> AppendResult:
        return await self.append(("end", {"status": status}), transition=ending(status), **parts)


async def started(store: RunStore, tenant: str = "acme", **changes: Any) -> Driver:
    run, replayed = await store.create(new_run(tenant, **changes), None)
    assert not replayed
    return Driver(store, run)


def ending(status: RunStatus = "success") -> Transition:
    return Transition(status, "finish", {"output": "done"}, None, 1_800_000_009_000)


def a_call(run: RunRecord, step: int = 1, **changes: Any) -> CallRecord:
    call = CallRecord(
        id=new_id(),
        tenant=run.tenant,
        run_id=run.id,
        thread_id=run.thread_id,
        step=step,
        iteration=1,
        message_id=new_id(),
        tool="lookup",
        tool_input={"q": "ä"},
        log="thinking",
        created_at=1_800_000_000_001,
        provider_call_id=f"call_{step}",
        tool_version=2,
        effect="read",
        arguments_sha256="a" * 64,
        idempotency_key="b" * 64,
        token_sha256="c" * 64,
    )
    return replace(call, **changes)


def a_result(call: CallRecord, **changes: Any) -> CallResult:
    result = CallResult(
        id=call.id,
        state="done",
        status="success",
        observation={"rows": [1, 2]},
        error=None,
        envelope={"ok": True, "data": {"rows": [1, 2]}},
        attempt_log=({"attempt": 1, "outcome": "success"},),
        chain=({"stage": "intent", "verdict": "ok"},),
        started_at=1_800_000_000_500,
        duration_ms=12.5,
    )
    return replace(result, **changes)


def a_dispatch(
    call: CallRecord, *, attempt: int = 1, registered: bool = False, at: int = 1_800_000_000_400
) -> Dispatch:
    return Dispatch(call.id, ({"attempt": attempt, "at": at, "outcome": "running"},), call.tool, registered)


def a_checkpoint(run: RunRecord, parent_id: str | None, *messages: Message) -> Checkpoint:
    delta = {"messages": [message.to_json() for message in messages]}
    return Checkpoint(new_id(), run.thread_id, parent_id, run.id, delta, 1_800_000_000_002)
