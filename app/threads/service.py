"""The use cases of threads: make, look up, read and change the state, fork, delete."""

from collections.abc import Mapping, Sequence
from typing import cast

from app.agent.state_schema import MESSAGES, NO_FIELDS, FieldUpdate, StateMisfit, StateSchema
from app.core.clock import now_ms
from app.core.errors import Conflict, FieldError, InvalidRequest, NotFound
from app.core.idempotency import IdempotencyKey
from app.core.ids import IdFactory
from app.core.messages import Message
from app.core.principal import Principal
from app.runs.agents import AgentService
from app.runs.inputs import stated_messages
from app.runs.records import Checkpoint
from app.runs.spec import RunConfig
from app.runs.state_fields import refusal
from app.runs.validation import check
from app.threads.ports import Change, ThreadStore
from app.threads.records import Point, StateAt, Thread
from app.threads.spec import StateUpdate, ThreadCreate, ThreadFork, ThreadPatch

MOST_TRIES = 64
"""How often a change is made anew because another one came first."""


class ThreadService:
    def __init__(self, store: ThreadStore, agents: AgentService, new_id: IdFactory) -> None:
        self._store = store
        self._agents = agents
        self._new_id = new_id

    async def create(
        self, principal: Principal, body: object, idempotency: IdempotencyKey | None
    ) -> tuple[Thread, bool]:
        """`True`: a replay."""
        spec = check(ThreadCreate, body)
        made, replayed = await self._store.create(principal.tenant, self._new_id(), spec.metadata, idempotency)
        return await self.get(principal, made), replayed

    async def get(self, principal: Principal, thread_id: str) -> Thread:
        """Raises `NotFound` (`thread_not_found`)."""
        thread = await self._store.get(principal.tenant, thread_id)
        if thread is None:
            raise NotFound(f"There is no thread `{thread_id}`.", code="thread_not_found")
        return thread

    async def page(
        self, principal: Principal, metadata: Mapping[str, str], *, after: str | None, limit: int
    ) -> Sequence[Thread]:
        return await self._store.page(principal.tenant, metadata, after=after, limit=limit)

    async def label(self, principal: Principal, thread_id: str, body: object) -> Thread:
        spec = check(ThreadPatch, body)
        thread = await self.get(principal, thread_id)
        if len({**thread.metadata, **spec.metadata}) > 64:
            raise InvalidRequest(
                "A thread has at most 64 labels.", errors=(FieldError("/metadata", "at most 64 with those there"),)
            )
        if not await self._store.label(principal.tenant, thread_id, spec.metadata):
            raise NotFound(f"There is no thread `{thread_id}`.", code="thread_not_found")
        return await self.get(principal, thread_id)

    async def state(self, principal: Principal, thread_id: str, checkpoint_id: str | None) -> StateAt:
        """The newest state, that of a run under way included, or the state with a checkpoint.

        Raises `NotFound` (`thread_not_found`, `checkpoint_not_found`).
        """
        thread = await self.get(principal, thread_id)
        return await self._state(thread, checkpoint_id or thread.newest_checkpoint_id)

    async def history(self, principal: Principal, thread_id: str, *, after: str | None, limit: int) -> Sequence[Point]:
        thread = await self.get(principal, thread_id)
        return await self._store.history(thread.id, after=after, limit=limit)

    async def update(self, principal: Principal, thread_id: str, body: object) -> StateAt:
        """Change the state through its reducers; the new state.

        Raises `NotFound` (`thread_not_found`, `checkpoint_not_found`), `Conflict` (`thread_busy`), `InvalidRequest`.
        """
        spec = check(StateUpdate, body)
        _check_overwrite(spec)
        messages = stated_messages(spec.values.get(MESSAGES, []), f"/values/{MESSAGES}")
        schema = None
        for _ in range(MOST_TRIES):
            thread = await self.get(principal, thread_id)
            if schema is None:
                schema = await self._schema(principal, thread, spec)
            parent = spec.checkpoint_id or thread.head_checkpoint_id
            before = await self._state(thread, parent)
            fields = _fields(spec, schema, before)
            checkpoint = Checkpoint(
                self._new_id(), thread_id, parent, None, _delta(messages, fields), now_ms(), "update"
            )
            change = Change(thread.head_checkpoint_id, checkpoint, MESSAGES in spec.overwrite)
            if await self._store.change(principal.tenant, thread_id, change):
                return await self._state(thread, checkpoint.id)
        raise Conflict("The thread is changed by too many at once; try again.", code="thread_busy")

    async def fork(
        self, principal: Principal, thread_id: str, body: object, idempotency: IdempotencyKey | None
    ) -> tuple[Thread, bool]:
        """A new thread that begins with this one's state. `True`: a replay. Raises as `update`."""
        spec = check(ThreadFork, body)
        origin = await self.get(principal, thread_id)
        wanted = spec.checkpoint_id or origin.newest_checkpoint_id
        first = Checkpoint(self._new_id(), self._new_id(), None, None, _delta((), ()), now_ms(), "fork")
        metadata = origin.metadata if spec.metadata is None else spec.metadata
        made, replayed = await self._store.fork(principal.tenant, thread_id, first, wanted, metadata, idempotency)
        return await self.get(principal, made), replayed

    async def delete(self, principal: Principal, thread_id: str) -> None:
        """Raises `NotFound` (`thread_not_found`), `Conflict` (`thread_busy`)."""
        if not await self._store.delete(principal.tenant, thread_id):
            raise NotFound(f"There is no thread `{thread_id}`.", code="thread_not_found")

    async def _state(self, thread: Thread, checkpoint_id: str | None) -> StateAt:
        found = await self._store.state(thread.id, checkpoint_id)
        if found is None:
            raise NotFound("The thread has no such checkpoint.", code="checkpoint_not_found")
        return found

    async def _schema(self, principal: Principal, thread: Thread, spec: StateUpdate) -> StateSchema:
        """The fields that an update may write. Messages need no agent."""
        if spec.agent is not None:
            _, pinned = await self._agents.resolve(principal, spec.agent, RunConfig())
        elif spec.values.keys() <= {MESSAGES}:
            return NO_FIELDS
        else:
            found = await self._store.last_spec(thread.id)
            if found is None:
                name = next(name for name in spec.values if name != MESSAGES)
                raise InvalidRequest(
                    "No run of this thread says which fields it has; name the `agent` whose state it is.",
                    errors=(FieldError(f"/values/{name[:64]}", "unknown field"), FieldError("/agent", "missing")),
                )
            pinned = found
        return self._agents.fields.of(cast("Mapping[str, object]", pinned["agent"]))


def _check_overwrite(spec: StateUpdate) -> None:
    for place, name in enumerate(spec.overwrite):
        if name not in spec.values:
            raise InvalidRequest(
                "`overwrite` names a field that is not among `values`.",
                errors=(FieldError(f"/overwrite/{place}", "not among `values`"),),
            )


def _fields(spec: StateUpdate, schema: StateSchema, before: StateAt) -> Sequence[FieldUpdate]:
    given = {name: value for name, value in spec.values.items() if name != MESSAGES}
    reduced = {name: value for name, value in given.items() if name not in spec.overwrite}
    replaced = {name: value for name, value in given.items() if name in spec.overwrite}
    missing = [update for update in schema.defaults() if update.name in reduced and update.name not in before.values]
    values = {**before.values, **{update.name: update.value for update in missing}}
    try:
        return (*missing, *schema.check(reduced, values), *schema.overwrite(replaced))
    except StateMisfit as misfit:
        raise refusal(misfit, "/values") from misfit


def _delta(messages: Sequence[Message], fields: Sequence[FieldUpdate]) -> dict[str, object]:
    delta: dict[str, object] = {"messages": [message.to_json() for message in messages]}
    if fields:
        delta["fields"] = [update.to_json() for update in fields]
    return delta
