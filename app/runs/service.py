"""The use cases of runs: accept, look up, follow, wait, cancel, delete."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import replace
from typing import cast

from app.agent.state_schema import FieldUpdate, StateMisfit, apply
from app.agent.text_formats import prompt_variables
from app.core.actions import AgentAction
from app.core.clock import now_ms
from app.core.errors import NotFound
from app.core.events import wire
from app.core.idempotency import IdempotencyKey
from app.core.ids import IdFactory
from app.core.messages import Message
from app.core.principal import Principal
from app.core.trace import TraceContext
from app.core.values import immutable
from app.runs.agents import AgentService
from app.runs.event_data import run_event
from app.runs.fold import fold, planned_call
from app.runs.follower import FollowOptions, follow
from app.runs.hub import Hub
from app.runs.inputs import check_variables, input_messages
from app.runs.loop_parts import LoopAssembler, settings_of
from app.runs.ports import Dispatcher, MultitaskStrategy, NewRun, RunFilter, RunStore
from app.runs.records import Batch, CallRecord, RunRecord
from app.runs.resume import ResumeSpec, answers_of
from app.runs.spec import RunCreate
from app.runs.state_fields import refusal, refuse_messages
from app.runs.status import TERMINAL
from app.runs.validation import check
from app.runs.waiting import WaitStore

SETTLED = TERMINAL | {"interrupted"}
"""Statuses a waiter is told of."""


@immutable
class Accepted:
    run: RunRecord
    request: RunCreate
    replayed: bool


@immutable
class Start:
    """What a run brings to its thread: messages, updates of its fields, what missing fields begin with."""

    messages: tuple[Message, ...]
    fields: tuple[FieldUpdate, ...]
    defaults: tuple[FieldUpdate, ...]


class RunService:
    def __init__(
        self,
        store: RunStore,
        waits: WaitStore,
        hub: Hub,
        dispatcher: Dispatcher,
        agents: AgentService,
        assembler: LoopAssembler,
        new_id: IdFactory,
    ) -> None:
        self._store = store
        self._waits = waits
        self._hub = hub
        self._dispatcher = dispatcher
        self._agents = agents
        self._assembler = assembler
        self._new_id = new_id

    async def create(
        self,
        principal: Principal,
        body: object,
        idempotency: IdempotencyKey | None,
        trace: TraceContext | None = None,
    ) -> Accepted:
        """Accept a run: checked, then journaled with its first event, then driven at once where there is room.

        `trace`: the caller's, which the run continues.
        Raises `InvalidRequest`, `NotFound` (`thread_not_found`), `Conflict` (`thread_busy`), `TooManyRuns`.
        """
        request = check(RunCreate, body)
        if idempotency is not None:
            earlier = await self._store.find_replay(idempotency)
            if earlier is not None:
                return Accepted(await self.get(principal, earlier), request, replayed=True)
        messages = input_messages(request.input)
        name, spec = await self._agents.resolve(principal, request.agent, request.config)
        settings = cast("dict[str, object]", spec["agent"])
        check_variables(request.input, prompt_variables(settings))
        self._agents.fields.check_context(settings, request.context)
        start = await self._start_of(principal, request, settings, messages)
        with self._dispatcher.admit() as place:
            return await self._accept(principal, request, idempotency, start, name, spec, trace, here=place == "now")

    async def _start_of(
        self, principal: Principal, request: RunCreate, settings: dict[str, object], messages: tuple[Message, ...]
    ) -> Start:
        """What the run brings to its thread. Raises `InvalidRequest` where its `state` does not fit."""
        schema = self._agents.fields.of(settings)
        defaults = schema.defaults()
        if not request.state:
            return Start(messages, (), defaults)
        refuse_messages(request.state, "/state")
        values = apply({}, defaults)
        if request.thread_id is not None:
            values = {**values, **await self._store.values(principal.tenant, request.thread_id)}
        try:
            return Start(messages, schema.check(request.state, values), defaults)
        except StateMisfit as misfit:
            raise refusal(misfit, "/state") from misfit

    async def _accept(
        self,
        principal: Principal,
        request: RunCreate,
        idempotency: IdempotencyKey | None,
        start: Start,
        name: str | None,
        spec: dict[str, object],
        trace: TraceContext | None,
        *,
        here: bool,
    ) -> Accepted:
        now = now_ms()
        run = RunRecord(
            id=self._new_id(),
            tenant=principal.tenant,
            thread_id=request.thread_id or self._new_id(),
            agent=name,
            spec=spec,
            input=request.input,
            context=request.context,
            metadata=request.metadata,
            subject=principal.subject,
            scopes=None if principal.scopes is None else sorted(principal.scopes),
            on_disconnect=request.on_disconnect,
            created_at=now,
            traceparent=None if trace is None else trace.traceparent(),
            tracestate=None if trace is None else trace.state,
        )
        first = None
        if here:
            run.status, run.epoch, run.attempt, run.owner, run.started_at = "running", 1, 1, self._dispatcher.owner, now
            encoded = wire(1, "run", run_event(run))
            first = Batch(1, 1, encoded, (("run", 0),))
            run.last_seq = run.batches = 1
        new = NewRun(
            run,
            start.messages,
            self._new_id(),
            new_thread=request.thread_id is None,
            first=first,
            fields=start.fields,
            defaults=start.defaults,
            when_busy=request.multitask_strategy,
        )
        created, replayed = await self._store.create(new, idempotency)
        if replayed:
            return Accepted(created, request, replayed=True)
        self._hub.open(created.id, 0)
        if created.queued is not None:  # the end of the run before it submits it
            await self._displace(created, request.multitask_strategy)
        elif first is not None:
            self._hub.publish(created.id, first)
            known = new.new_thread and not (start.fields or start.defaults)
            self._dispatcher.start_now(created, list(start.messages) if known else None)
        else:
            self._dispatcher.submit(created.id)
        return Accepted(created, request, replayed=False)

    async def _displace(self, run: RunRecord, how: MultitaskStrategy) -> None:
        """Stop the runs before one that takes their place."""
        before = cast("list[str]", (run.queued or {}).get("displaces") or [])
        if before and how in ("interrupt", "rollback"):
            for run_id, waits in await self._store.displace(before, how):
                self._halt(run_id, waits=waits)

    def _halt(self, run_id: str, *, waits: bool) -> None:
        """A cancel is recorded: end the run. `waits`: for its thread, so that nobody would claim it."""
        if waits:
            self._dispatcher.submit(run_id)
        self._dispatcher.cancel(run_id)

    async def get(self, principal: Principal, run_id: str) -> RunRecord:
        run = await self._store.get(principal.tenant, run_id)
        if run is None:
            raise NotFound(f"There is no run `{run_id}`.", code="run_not_found")
        return run

    async def page(self, principal: Principal, where: RunFilter, *, after: str | None, limit: int) -> list[RunRecord]:
        return await self._store.page(principal.tenant, where, after=after, limit=limit)

    def follow(
        self, principal: Principal, run: RunRecord, *, after: int, types: Collection[str] | None, hold: bool = False
    ) -> AsyncGenerator[bytes]:
        """Pieces of the run's event stream beyond `after` (see `app.runs.follower`)."""
        return follow(self._store, self._hub, principal.tenant, run.id, FollowOptions(after, types, hold))

    def reached(self, run: RunRecord) -> int:
        """The highest event number known to be durable."""
        tail = self._hub.tail(run.id)
        return run.last_seq if tail is None else max(tail.reached, run.last_seq)

    async def wait(
        self, principal: Principal, run_id: str, timeout_s: float | None, *, ended: bool = False
    ) -> RunRecord:
        """The run when it is settled, or as it is when the time is over. Raises `Unavailable` on shutdown.

        `ended`: waiting for a person does not count as settled.
        """
        run = await self.get(principal, run_id)
        if run.status in (TERMINAL if ended else SETTLED):
            return run
        try:
            async with asyncio.timeout(timeout_s):
                pieces = follow(
                    self._store, self._hub, principal.tenant, run_id, FollowOptions(run.last_seq, (), hold=ended)
                )
                try:
                    async for _ in pieces:
                        continue
                finally:
                    await pieces.aclose()
        except TimeoutError:
            pass
        return await self.get(principal, run_id)

    async def events(
        self, principal: Principal, run_id: str, *, after: int, limit: int
    ) -> tuple[list[tuple[int, str, bytes]], bool]:
        """((id, type, wire bytes) of up to `limit` events, whether there are more)."""
        run = await self.get(principal, run_id)
        self.check_cursor(run, after)
        found: list[tuple[int, str, bytes]] = []
        cursor = after
        while len(found) <= limit:
            batches = await self._store.events(run_id, after=cursor, max_bytes=256 * 1024)
            if not batches:
                break
            for batch in batches:
                ends = [offset for _, offset in batch.index[1:]] + [len(batch.wire)]
                for position, (name, offset) in enumerate(batch.index):
                    seq = batch.first_seq + position
                    if seq > after:
                        found.append((seq, name, batch.wire[offset : ends[position]]))
                cursor = batch.last_seq
        return found[:limit], len(found) > limit

    def check_cursor(self, run: RunRecord, after: int) -> None:
        """Raises `NotFound` (`event_not_found`) for a cursor beyond what the run has told."""
        reached = self.reached(run)
        if after > reached:
            raise NotFound(f"The run has no event {after} yet; its last one is {reached}.", code="event_not_found")

    async def steps(
        self, principal: Principal, run_id: str, *, after: int, limit: int, status: str | None, tool: str | None
    ) -> list[CallRecord]:
        await self.get(principal, run_id)
        return await self._store.calls(run_id, after=after, limit=limit, status=status, tool=tool)

    async def actions(self, principal: Principal, run_id: str, calls: Sequence[CallRecord]) -> list[AgentAction]:
        """The actions of the run's `calls`, each with the model's message that asked for it where that made tool calls.

        An action has the input that was sent; what the model asked for is in its message.
        Read after the calls: a call's message is durable before the call is.
        """
        run = await self.get(principal, run_id)
        said = (await self._store.messages(run.thread_id, run.checkpoint_id))[run.before :]
        asked = {call.id: message for message in said for call in message.tool_calls}
        actions = [planned_call(call, asked.get(call.provider_call_id or "")).action for call in calls]
        return [
            action if call.sent_input is None else replace(action, tool_input=call.sent_input)
            for action, call in zip(actions, calls, strict=True)
        ]

    async def step(self, principal: Principal, run_id: str, number: int) -> CallRecord:
        await self.get(principal, run_id)
        call = await self._store.call(run_id, number)
        if call is None:
            raise NotFound(f"The run has no step {number}.", code="step_not_found")
        return call

    async def intermediate_steps(self, run: RunRecord) -> list[CallRecord] | None:
        """The run's finished steps, where its agent asks for them in the Run.

        A step that a stop of the run cut (`meta.cut` in its envelope) did not finish; `/steps` has it.
        """
        if not settings_of(run).return_intermediate_steps:
            return None
        return [
            call
            for call in await self._store.calls(run.id)
            if call.status is not None
            and "cut" not in cast("dict[str, object]", (call.envelope or {}).get("meta") or {})
        ]

    async def messages(self, principal: Principal, run_id: str) -> Sequence[Message]:
        """What the next model call of this run would see."""
        run = await self.get(principal, run_id)
        messages, values = await self._store.state(run.thread_id, run.checkpoint_id)
        state = fold(run, messages, await self._store.calls(run_id))
        state.values = values
        return await self._assembler.context(run, state)

    async def resume(self, principal: Principal, run_id: str, body: object) -> RunRecord:
        """Keep answers to the run's interrupts; the run goes on when all are answered.

        Raises `NotFound`, `InvalidRequest` (nothing is kept), `Conflict` (`interrupt_resolved`, `interrupt_expired`,
        `run_not_interrupted`).
        """
        run = await self.get(principal, run_id)
        answers = await answers_of(run, check(ResumeSpec, body), self._assembler.judge)
        run, resumed = await self._waits.answer(principal.tenant, run_id, answers, principal.subject)
        if resumed:
            self._dispatcher.submit(run_id)
        return run

    async def cancel(self, principal: Principal, run_id: str) -> RunRecord:
        """Record the cancel, then stop the run. The run as it is after the record; terminal ones are left alone."""
        run = await self._store.request_cancel(principal.tenant, run_id)
        if run is None:
            raise NotFound(f"There is no run `{run_id}`.", code="run_not_found")
        if run.status not in TERMINAL:
            self._halt(run.id, waits=run.queued is not None)
        return run

    async def delete(self, principal: Principal, run_id: str) -> None:
        """Raises `NotFound`, `Conflict` (`run_active`)."""
        if not await self._store.delete(principal.tenant, run_id):
            raise NotFound(f"There is no run `{run_id}`.", code="run_not_found")
