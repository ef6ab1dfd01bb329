"""`client.threads`: conversations, what is kept beside them, and their history."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar, cast

from app.client.connection import Answer, Connection, encode, path_of
from app.client.fields import (
    JsonObject,
    NotOurs,
    number,
    object_of,
    optional_object,
    optional_text,
    optional_time,
    required_text,
)
from app.client.keys import idempotency_key as _key
from app.client.runs import PAGE, read_page
from app.client.values import Page, Run

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation."""

    id: str
    status: str
    """`idle`, `busy`, `interrupted`, `error`; a later version may have others."""
    listed: bool = False
    active_run_id: str | None = None
    checkpoint_id: str | None = None
    """The newest state's."""
    metadata: JsonObject = field(default_factory=dict[str, Any])
    created_at: datetime | None = None
    data: JsonObject = field(default_factory=dict[str, Any], repr=False)
    """The thread as it came."""

    @classmethod
    def of(cls, value: object) -> "Thread":
        """A Thread from its JSON. Raises `NotOurs`."""
        data = object_of(value, "a thread")
        return cls(
            id=required_text(data, "id", "a thread"),
            status=required_text(data, "status", "a thread"),
            listed=data.get("listed") is True,
            active_run_id=optional_text(data, "active_run_id"),
            checkpoint_id=optional_text(data, "checkpoint_id"),
            metadata=optional_object(data, "metadata") or {},
            created_at=optional_time(data, "created_at"),
            data=data,
        )


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread's state with one of its checkpoints."""

    values: JsonObject
    """`messages`, and the agent's fields."""
    checkpoint_id: str | None = None
    """`None`: nothing was ever written."""
    parent_checkpoint_id: str | None = None
    run_id: str | None = None
    source: str | None = None
    """`input`, `loop`, `update`, `fork`."""
    created_at: datetime | None = None
    data: JsonObject = field(default_factory=dict[str, Any], repr=False)

    @property
    def messages(self) -> list[JsonObject]:
        found: object = self.values.get("messages")
        return cast("list[JsonObject]", found) if isinstance(found, list) else []

    @classmethod
    def of(cls, value: object) -> "ThreadState":
        """A ThreadState from its JSON. Raises `NotOurs`."""
        data = object_of(value, "a state")
        return cls(object_of(data.get("values"), "a state's values"), **_facts(data), data=data)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A point of a thread's history: what changed there."""

    checkpoint_id: str | None
    parent_checkpoint_id: str | None = None
    run_id: str | None = None
    source: str | None = None
    created_at: datetime | None = None
    messages: int = 0
    """How many the state has with it."""
    update: JsonObject = field(default_factory=dict[str, Any])
    """The messages that were added, and what other fields' reducers were given."""
    data: JsonObject = field(default_factory=dict[str, Any], repr=False)

    @classmethod
    def of(cls, value: object) -> "Checkpoint":
        """A Checkpoint from its JSON. Raises `NotOurs`."""
        data = object_of(value, "a checkpoint")
        update = optional_object(data, "update") or {}
        return cls(**_facts(data), messages=number(data, "messages"), update=update, data=data)


def _facts(data: JsonObject) -> dict[str, Any]:
    names = ("checkpoint_id", "parent_checkpoint_id", "run_id", "source")
    return {**{name: optional_text(data, name) for name in names}, "created_at": optional_time(data, "created_at")}


class Threads:
    """The threads of the key's tenant."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _read(self, answer: Answer, of: Callable[[object], T]) -> T:
        try:
            return of(answer.body)
        except NotOurs as error:
            raise self._connection.not_ours(error, answer.status) from None

    async def create(self, *, metadata: Mapping[str, Any] | None = None, idempotency_key: str | None = None) -> Thread:
        body = encode({"metadata": dict(metadata or {})})
        answer = await self._connection.request("POST", "/threads", body=body, key=_key(idempotency_key))
        return self._read(answer, Thread.of)

    async def get(self, thread_id: str) -> Thread:
        """Raises `NotFound`."""
        answer = await self._connection.request("GET", path_of("threads", thread_id))
        return self._read(answer, Thread.of)

    async def list(
        self, *, metadata: Mapping[str, object] | None = None, limit: int | None = None, after: str | None = None
    ) -> Page[Thread]:
        """A page of those that callers made, newest first."""
        params: dict[str, str | int] = {f"metadata.{key}": str(value) for key, value in (metadata or {}).items()}
        return await read_page(self._connection, "/threads", {**params, **_page(limit, after)}, Thread.of)

    async def iterate(self, *, metadata: Mapping[str, object] | None = None) -> AsyncIterator[Thread]:
        """All of them, newest first, page by page."""
        after: str | None = None
        while True:
            page = await self.list(metadata=metadata, limit=PAGE, after=after)
            for thread in page.data:
                yield thread
            after = page.next_cursor
            if after is None:
                return

    async def label(self, thread_id: str, metadata: Mapping[str, Any]) -> Thread:
        """Set labels beside those that are there."""
        body = encode({"metadata": dict(metadata)})
        answer = await self._connection.request("PATCH", path_of("threads", thread_id), body=body)
        return self._read(answer, Thread.of)

    async def delete(self, thread_id: str) -> None:
        """Delete it with its runs and its state. Raises `Conflict` while it has an unfinished run."""
        await self._connection.request("DELETE", path_of("threads", thread_id))

    async def state(self, thread_id: str, checkpoint_id: str | None = None) -> ThreadState:
        """The newest state, or that with a checkpoint."""
        params = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
        path = f"{path_of('threads', thread_id)}/state"
        answer = await self._connection.request("GET", path, params=params)
        return self._read(answer, ThreadState.of)

    async def update(
        self,
        thread_id: str,
        values: Mapping[str, Any],
        *,
        checkpoint_id: str | None = None,
        overwrite: Sequence[str] = (),
        agent: str | None = None,
    ) -> ThreadState:
        """Change the state through its reducers. A request that may have been taken is not sent again.

        Raises `Conflict` on a busy thread, `InvalidRequest` for what does not fit.
        """
        body: dict[str, Any] = {"values": dict(values), "overwrite": list(overwrite)}
        body |= {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
        body |= {} if agent is None else {"agent": agent}
        path = f"{path_of('threads', thread_id)}/state"
        answer = await self._connection.request("POST", path, body=encode(body), repeatable=False)
        return self._read(answer, ThreadState.of)

    async def history(self, thread_id: str, *, limit: int | None = None, after: str | None = None) -> Page[Checkpoint]:
        """A page of checkpoints, newest first."""
        path = f"{path_of('threads', thread_id)}/history"
        return await read_page(self._connection, path, _page(limit, after), Checkpoint.of)

    async def fork(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Thread:
        """A new thread with the state of a checkpoint, the newest by default. `metadata`: else the origin's."""
        body: dict[str, Any] = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
        body |= {} if metadata is None else {"metadata": dict(metadata)}
        path = f"{path_of('threads', thread_id)}/fork"
        answer = await self._connection.request("POST", path, body=encode(body), key=_key(idempotency_key))
        return self._read(answer, Thread.of)

    async def runs(self, thread_id: str, *, limit: int | None = None, after: str | None = None) -> Page[Run]:
        """A page of its runs, newest first."""
        path = f"{path_of('threads', thread_id)}/runs"
        return await read_page(self._connection, path, _page(limit, after), Run.of)


def _page(limit: int | None, after: str | None) -> dict[str, str | int]:
    more: dict[str, str | int] = {} if limit is None else {"limit": limit}
    return more if after is None else {**more, "after": after}
