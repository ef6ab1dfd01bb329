"""What runs need from storage. One adapter, `app.storage`, on SQLite and Postgres; one contract suite for both."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from app.agent.state_schema import FieldUpdate, Values
from app.core.events import EventType
from app.core.idempotency import IdempotencyKey
from app.core.messages import Message
from app.core.values import immutable
from app.runs.records import Append, AppendResult, Batch, CallRecord, Checkpoint, Displacement, RunRecord
from app.runs.status import RunStatus

MultitaskStrategy = Literal["reject", "enqueue", "interrupt", "rollback"]


@immutable
class NewRun:
    """All that accepting a run writes, in one transaction."""

    run: RunRecord
    """`status` "running" with `epoch` 1 when the accepting process drives it at once, else "pending" with epoch 0.

    `base_checkpoint_id` and the checkpoint's parent are filled in by the store from the thread's head, `before` is set
    to the length of the thread's messages + those of the input.
    """
    input_messages: tuple[Message, ...]
    checkpoint_id: str
    """The id of the checkpoint that holds the input."""
    new_thread: bool
    """Whether `run.thread_id` is to be made (unlisted). Otherwise it must exist, and be the tenant's own, and be idle."""
    first: Batch | None
    """The `run` event, when claimed at once."""
    fields: tuple[FieldUpdate, ...] = ()
    """What the run's `state` gives the thread's fields."""
    defaults: tuple[FieldUpdate, ...] = ()
    """What fields begin with that the thread does not have yet."""
    when_busy: MultitaskStrategy = "reject"
    """What becomes of a run whose thread has an active one."""


@immutable
class RunFilter:
    status: RunStatus | None = None
    agent: str | None = None
    thread_id: str | None = None
    metadata: Mapping[str, str] | None = None
    """Equal top-level values, compared as text (`true`, `3` and `"3"` by their JSON without quotes)."""


class RunStore(Protocol):
    """Every method that takes a tenant treats another tenant's row as absent."""

    async def create(self, new: NewRun, idempotency: IdempotencyKey | None) -> tuple[RunRecord, bool]:
        """Insert, or find the run that the same key and body made (`True`: a replay; it is the run as it is now).

        On a busy thread, and where `when_busy` allows it, the run is left pending and `queued`: the append that ends the
        run before it gives it the thread. Its `queued["displaces"]` are the unfinished runs before it, where it displaces them.

        Raises `NotFound` (`thread_not_found`), `Conflict` (`thread_busy`), `InvalidRequest` (`idempotency_mismatch`).
        """
        ...

    async def find_replay(self, idempotency: IdempotencyKey) -> str | None:
        """The id of what this key made. Raises `InvalidRequest` (`idempotency_mismatch`) for another body."""
        ...

    async def get(self, tenant: str, run_id: str) -> RunRecord | None: ...

    async def page(self, tenant: str, where: RunFilter, *, after: str | None, limit: int) -> list[RunRecord]:
        """Newest first, at most `limit`, older than the run `after`."""
        ...

    async def claim(self, run_id: str, owner: str) -> RunRecord | None:
        """Raise the epoch and the attempt, set status "running" and `started_at` where unset; the row after that.

        A run that was parked and is woken keeps its attempt, and its `parked` says so. `None` when the run is terminal, gone,
        or interrupted or waiting for its thread and not cancelled. The caller then appends the `run` event.
        """
        ...

    async def unfinished(self) -> Sequence[tuple[str, RunStatus]]:
        """(id, status) of every pending or running run but the parked ones, oldest first: what a starting server takes up."""
        ...

    async def request_cancel(self, tenant: str, run_id: str) -> RunRecord | None:
        """Set the cancel flag on a run that is not terminal; the row as it is afterwards, `None` when unknown."""
        ...

    async def displace(self, run_ids: Sequence[str], how: Displacement) -> Sequence[tuple[str, bool]]:
        """Request the cancel of those that are not over, and with `rollback` that their thread goes back.

        (id, whether it waits for its thread) of each.
        """
        ...

    async def displace_again(self) -> None:
        """Displace what a waiting run displaces: where the server stopped between its acceptance and that."""
        ...

    async def delete(self, tenant: str, run_id: str) -> bool:
        """Delete a terminal run with its journal and calls; the thread's state stays. False when unknown.

        Raises `Conflict` (`run_active`).
        """
        ...

    async def append(self, append: Append) -> AppendResult:
        """Durable when it returns. Appends of all runs that wait at the same time share one transaction."""
        ...

    async def events(self, run_id: str, *, after: int, max_bytes: int) -> Sequence[Batch]:
        """The journal's event rows that reach beyond sequence number `after`, in order.

        The first may begin before it. At least one row if there is any, then as many as fit `max_bytes`.
        """
        ...

    async def calls(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        status: str | None = None,
        tool: str | None = None,
    ) -> list[CallRecord]:
        """Steps in step order, `step > after`. `status` also matches the states of calls not finished (`waiting`, `running`)."""
        ...

    async def call(self, run_id: str, step: int) -> CallRecord | None: ...

    async def messages(self, thread_id: str, checkpoint_id: str | None) -> list[Message]:
        """The fold of `messages` up to a checkpoint; `None` gives the empty list."""
        ...

    async def state(self, thread_id: str, checkpoint_id: str | None) -> tuple[list[Message], Values]:
        """The fold up to a checkpoint: the messages, and the other fields."""
        ...

    async def values(self, tenant: str, thread_id: str) -> Values:
        """The fields of a thread as it stands. Raises `NotFound` (`thread_not_found`)."""
        ...

    async def checkpoints_since(self, thread_id: str, checkpoint_id: str, base_id: str | None) -> list[Checkpoint]:
        """The checkpoints after `base_id` up to `checkpoint_id`, oldest first."""
        ...

    async def recent_calls_of(self, run_id: str, iteration: int) -> list[CallRecord]:
        """The calls of one round, in step order."""
        ...


@immutable
class Swept:
    """What one short transaction of housekeeping deleted."""

    count: int
    more: bool
    """Whether to call again: there may be more."""


class RetentionStore(Protocol):
    """Deletes what is kept no longer, a little at a time, so that live runs wait for none of it. Over all tenants."""

    async def delete_runs(self, before_ms: int) -> Swept:
        """Runs that finished before this time, each whole with its events and calls. Never one that is not terminal."""
        ...

    async def delete_threads(self, before_ms: int) -> Swept:
        """Unlisted threads without a run, made before this time and unchanged since, with their state."""
        ...

    async def forget_keys(self) -> Swept:
        """Idempotency keys that count as unused again."""
        ...

    async def delete_secrets(self, before_ms: int) -> Swept:
        """Secrets stored before this time that nothing refers to; all of them in one call, in short transactions."""
        ...

    async def delete_items(self) -> Swept:
        """Items of the store whose time is over."""
        ...


class Dispatcher(Protocol):
    """The engine that drives runs: in this process, or jobs that any replica takes."""

    def admit(self) -> AbstractContextManager[Literal["now", "queue"]]:
        """Where a run accepted within it goes; its place is kept until then.

        Raises `TooManyRuns` when both are full, `Unavailable` when shutting down.
        """
        ...

    def start_now(self, run: RunRecord, history: list[Message] | None) -> None:
        """Drive a run that was accepted as claimed by `owner`, its first event journaled.

        `history`: its conversation so far; `None`: the driver reads it.
        """
        ...

    def submit(self, run_id: str) -> None:
        """Queue a pending run."""
        ...

    def cancel(self, run_id: str) -> None:
        """A cancel was recorded: end the run now, wherever it is."""
        ...

    def wake(self, run_id: str) -> None:
        """An answer was kept for a parked run: go on where that is enough."""
        ...

    def tell(self, run_id: str, event: EventType, data: Mapping[str, object]) -> bool:
        """Add an event to a run that is driven in this process; false when none is."""
        ...

    @property
    def owner(self) -> str: ...
