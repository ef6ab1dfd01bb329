"""What threads need from storage. One adapter, `app.storage.threads`; one contract suite for both databases."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from app.core.idempotency import IdempotencyKey
from app.core.values import immutable
from app.runs.records import Checkpoint
from app.threads.records import Point, StateAt, Thread


@immutable
class Change:
    """A caller's change of a thread's state."""

    expected_head: str | None
    """The head that it was made for; another one refuses it."""
    checkpoint: Checkpoint
    """Its parent may be any checkpoint of the thread: the thread then goes on from there."""
    whole_messages: bool
    """Its messages take the place of all that were there."""


class ThreadStore(Protocol):
    """Every method that takes a tenant treats another tenant's row as absent."""

    async def create(
        self, tenant: str, thread_id: str, metadata: Mapping[str, object], idempotency: IdempotencyKey | None
    ) -> tuple[str, bool]:
        """Make a listed, empty thread; its id. `True`: a replay. Raises `InvalidRequest` (`idempotency_mismatch`)."""
        ...

    async def fork(
        self,
        tenant: str,
        origin_id: str,
        checkpoint: Checkpoint,
        checkpoint_id: str | None,
        metadata: Mapping[str, object],
        idempotency: IdempotencyKey | None,
    ) -> tuple[str, bool]:
        """Make a listed thread (`checkpoint.thread_id`) whose first checkpoint holds the origin's state at `checkpoint_id`.

        Raises `NotFound` (`thread_not_found`, `checkpoint_not_found`), `InvalidRequest` (`idempotency_mismatch`).
        """
        ...

    async def get(self, tenant: str, thread_id: str) -> Thread | None: ...

    async def page(
        self, tenant: str, metadata: Mapping[str, str], *, after: str | None, limit: int
    ) -> Sequence[Thread]:
        """Listed ones, newest first, older than the thread `after`."""
        ...

    async def label(self, tenant: str, thread_id: str, metadata: Mapping[str, object]) -> bool:
        """Set these labels beside those that are there. False when unknown."""
        ...

    async def state(self, thread_id: str, checkpoint_id: str | None) -> StateAt | None:
        """The state with a checkpoint; `None` when the thread does not have it."""
        ...

    async def history(self, thread_id: str, *, after: str | None, limit: int) -> Sequence[Point]:
        """Every checkpoint of the thread, newest first, older than `after`."""
        ...

    async def change(self, tenant: str, thread_id: str, change: Change) -> bool:
        """Write a change, which becomes the head; false when the head is another one by now.

        Raises `NotFound` (`thread_not_found`), `Conflict` (`thread_busy`).
        """
        ...

    async def last_spec(self, thread_id: str) -> Mapping[str, object] | None:
        """The pinned agent of the thread's newest run."""
        ...

    async def delete(self, tenant: str, thread_id: str) -> bool:
        """Delete a thread with its runs, their events, calls and results, and its state. False when unknown.

        Nobody sees any of it from its first moment on. Raises `Conflict` (`thread_busy`).
        """
        ...
