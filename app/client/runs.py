"""`client.runs`: post, read, follow, wait for, cancel and delete runs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import orjson

from app.client.connection import Answer, Connection, Params, encode, path_of
from app.client.errors import ConnectionFailed, ProblemError
from app.client.interrupts import Response
from app.client.keys import idempotency_key as _key
from app.client.retries import AGAIN, Attempts
from app.client.stream import RunStream
from app.client.values import Event, JsonObject, JsonObjects, NotOurs, Page, Run, Step, object_of

T = TypeVar("T")

OnDisconnect = Literal["continue", "cancel"]
"""What becomes of a run when the connection that it was posted with is lost."""

MultitaskStrategy = Literal["reject", "enqueue", "interrupt", "rollback"]
"""What becomes of a run on a thread that has an unfinished one."""

POLL_S = 20.0
"""How long one `GET /runs/{id}/wait` waits: below the idle limits of common proxies."""

LEAST_POLL_S = 0.5
"""A server that answers 202 at once is not asked more often than this."""

PAGE = 100


class Runs:
    """The runs of the server. Every method may raise `ClientError` (see `app.client.errors`)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(
        self,
        agent: str | Mapping[str, Any],
        input: str | Mapping[str, Any],
        *,
        thread_id: str | None = None,
        context: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        on_disconnect: OnDisconnect | None = None,
        state: Mapping[str, Any] | None = None,
        multitask_strategy: MultitaskStrategy | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Post a run; it goes on in the background. `agent`: a registered name, or an AgentSpec.

        `idempotency_key`: the same key and arguments give the same run for 24 hours; without one each call is a new run.
        """
        body = _body(agent, input, thread_id, context, metadata, config, on_disconnect, state, multitask_strategy)
        return await self._create(body, _key(idempotency_key))

    async def wait(
        self,
        agent: str | Mapping[str, Any],
        input: str | Mapping[str, Any],
        *,
        thread_id: str | None = None,
        context: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        on_disconnect: OnDisconnect | None = None,
        state: Mapping[str, Any] | None = None,
        multitask_strategy: MultitaskStrategy | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Post a run and wait until it is finished or interrupted, however long that takes."""
        body, key = (
            _body(agent, input, thread_id, context, metadata, config, on_disconnect, state, multitask_strategy),
            _key(idempotency_key),
        )
        if on_disconnect == "cancel":  # a stream has a sign of life, so that only a lost connection is taken for one
            async with RunStream(self._connection, body=body, key=key, events=()) as stream:
                async for _ in stream:
                    continue
            assert stream.run_id is not None
            return await self.get(stream.run_id)
        try:
            return self._run(await self._connection.request("POST", "/runs/wait", body=body, key=key, max_attempts=1))
        except ConnectionFailed:
            pass  # lost, or longer than one request may take: find the run by its key
        except ProblemError as error:
            attempts = Attempts(self._connection.max_attempts, self._connection.pause)
            pause = attempts.next_pause_s(error.retry_after_s) if error.status in AGAIN else None
            if pause is None:
                raise
            await asyncio.sleep(pause)
        run = await self._create(body, key)
        return run if run.finished else await self.wait_for(run.id)

    def stream(
        self,
        agent: str | Mapping[str, Any],
        input: str | Mapping[str, Any],
        *,
        thread_id: str | None = None,
        context: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        on_disconnect: OnDisconnect | None = None,
        state: Mapping[str, Any] | None = None,
        multitask_strategy: MultitaskStrategy | None = None,
        events: Sequence[str] | None = None,
        hold: bool = False,
        idempotency_key: str | None = None,
    ) -> RunStream:
        """Post a run and read its events. It is posted when the first event is asked for.

        `events`: the types wanted; `run`, `interrupt`, `finish`, `error` and `end` always come. The stream ends when the
        run waits for somebody (`stream.run.status == "interrupted"`); with `hold` it stays and goes on with the run.
        """
        body = _body(agent, input, thread_id, context, metadata, config, on_disconnect, state, multitask_strategy)
        return RunStream(self._connection, body=body, key=_key(idempotency_key), events=events, hold=hold)

    async def get(self, run_id: str) -> Run:
        return self._run(await self._connection.request("GET", path_of("runs", run_id)))

    async def list(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        thread_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Page[Run]:
        """A page of runs, newest first. `metadata`: only runs that have these values."""
        params = _given(status=status, agent=agent, thread_id=thread_id, limit=limit, after=after)
        params.update({f"metadata.{name}": value for name, value in (metadata or {}).items()})
        return await self._page("/runs", params, Run.of)

    async def iterate(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        thread_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Run]:
        """All runs that fit, newest first, page by page."""
        after: str | None = None
        while True:
            page = await self.list(
                status=status, agent=agent, thread_id=thread_id, metadata=metadata, limit=PAGE, after=after
            )
            for run in page.data:
                yield run
            after = page.next_cursor
            if after is None:
                return

    def follow(
        self,
        run_id: str,
        *,
        after: int = 0,
        events: Sequence[str] | None = None,
        tail: bool = False,
        hold: bool = False,
    ) -> RunStream:
        """The run's events beyond the one with id `after`, then live. `tail` without `after`: only what is new from now on.

        `hold`: the stream stays while the run waits for somebody. Without it it ends then, at once if nothing is new.
        """
        path_of(run_id)
        return RunStream(self._connection, run_id=run_id, after=after, events=events, tail=tail, hold=hold)

    async def events(self, run_id: str, *, after: int = 0, limit: int | None = None) -> Page[Event]:
        """A page of the run's events so far."""
        return await self._page(f"{path_of('runs', run_id)}/events", _given(after=after, limit=limit), _event)

    async def steps(
        self,
        run_id: str,
        *,
        status: str | None = None,
        tool: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Page[Step]:
        """A page of the run's steps, in call order, those not finished too."""
        params = _given(status=status, tool=tool, limit=limit, after=after)
        return await self._page(f"{path_of('runs', run_id)}/steps", params, Step.of)

    async def step(self, run_id: str, n: int) -> Step:
        """Step number `n` with its whole chain."""
        answer = await self._connection.request("GET", f"{path_of('runs', run_id)}{path_of('steps', n)}")
        return self._read(Step.of, answer.body)

    async def messages(self, run_id: str) -> JsonObjects:
        """The messages that the next model call of this run would see."""
        return (await self._page(f"{path_of('runs', run_id)}/messages", {}, _same)).data

    async def wait_for(self, run_id: str, *, timeout_s: float | None = None) -> Run:
        """Wait until the run is finished or interrupted. Raises `TimeoutError` after `timeout_s` seconds (`None`: never)."""
        now = asyncio.get_running_loop().time
        end = None if timeout_s is None else now() + timeout_s
        path = f"{path_of('runs', run_id)}/wait"
        try:
            # one second more than the server is told, so that the last answer can come
            async with asyncio.timeout(None if timeout_s is None else timeout_s + 1):
                while True:
                    began = now()
                    poll = POLL_S if end is None else min(POLL_S, max(0.0, end - began))
                    answer = await self._connection.request(
                        "GET", path, params={"timeout_s": round(poll, 3)}, extra_s=poll
                    )
                    if answer.status != 202:
                        return self._run(answer)
                    if end is not None and now() >= end:
                        break
                    await asyncio.sleep(max(0.0, min(poll, LEAST_POLL_S) - (now() - began)))
        except TimeoutError:
            pass
        raise TimeoutError(f"Run {run_id} is not finished after {timeout_s:g} s; it goes on.")

    async def resume(self, run_id: str, responses: Sequence[Response]) -> Run:
        """Answer interrupts of a run that waits; it goes on when all of them are answered. The Run after that.

        All answers are kept or none. A request that may have been taken is not sent again: read the run after a
        `ConnectionFailed`. Raises `Conflict` (`interrupt_resolved`: another answer was first; `interrupt_expired`,
        `run_not_interrupted`), `NotFound` (`interrupt_not_found`), `InvalidRequest` (an answer does not fit).
        """
        body = encode({"responses": [response.to_json() for response in responses]})
        path = f"{path_of('runs', run_id)}/resume"
        return self._run(await self._connection.request("POST", path, body=body, key=_key(None), repeatable=False))

    async def cancel(self, run_id: str, *, wait: bool = False) -> Run:
        """Stop the run. `wait`: until it has stopped; without it the Run may still say `running`."""
        params: Params = {"wait": "true"} if wait else {}
        path = f"{path_of('runs', run_id)}/cancel"
        return self._run(await self._connection.request("POST", path, params=params, key=_key(None)))

    async def delete(self, run_id: str) -> None:
        """Delete a finished run and its events. Raises `Conflict` while it is not finished."""
        await self._connection.request("DELETE", path_of("runs", run_id))

    async def _create(self, body: bytes, key: str) -> Run:
        return self._run(await self._connection.request("POST", "/runs", body=body, key=key))

    def _run(self, answer: Answer) -> Run:
        return self._read(Run.of, answer.body, answer.status)

    def _read(self, of: Callable[[object], T], value: object, status: int = 200) -> T:
        try:
            return of(value)
        except NotOurs as error:
            raise self._connection.not_ours(error, status) from None

    async def _page(self, path: str, params: Params, of: Callable[[object], T]) -> Page[T]:
        return await read_page(self._connection, path, params, of)


async def read_page(connection: Connection, path: str, params: Params, of: Callable[[object], T]) -> Page[T]:
    """A page of a list. Raises as `Connection.request`."""
    return page_of(connection, await connection.request("GET", path, params=params), of)


def page_of(connection: Connection, answer: Answer, of: Callable[[object], T]) -> Page[T]:
    """A page that came. Raises `UnexpectedAnswer`."""
    body = connection.object_of(answer, "a list")
    try:
        if not isinstance(body.get("data"), list):
            raise NotOurs("a list without `data`")
        cursor = body.get("next_cursor")
        return Page(
            [of(item) for item in body["data"]], bool(body.get("has_more")), cursor if isinstance(cursor, str) else None
        )
    except NotOurs as error:
        raise connection.not_ours(error, answer.status) from None


def _body(
    agent: str | Mapping[str, Any],
    input: str | Mapping[str, Any],
    thread_id: str | None,
    context: Mapping[str, Any] | None,
    metadata: Mapping[str, Any] | None,
    config: Mapping[str, Any] | None,
    on_disconnect: OnDisconnect | None,
    state: Mapping[str, Any] | None,
    multitask_strategy: MultitaskStrategy | None,
) -> bytes:
    given = _given(
        thread_id=thread_id,
        context=context,
        metadata=metadata,
        config=config,
        on_disconnect=on_disconnect,
        state=state,
        multitask_strategy=multitask_strategy,
    )
    return encode({"agent": agent, "input": input, **given})


def _given(**fields: Any) -> dict[str, Any]:
    """The fields that are not `None`."""
    return {name: value for name, value in fields.items() if value is not None}


def _event(value: object) -> Event:
    item = object_of(value, "an event")
    if not isinstance(item.get("id"), int) or not isinstance(item.get("data"), dict):
        raise NotOurs("an event without `id` or `data`")
    return Event(item["id"], str(item.get("event", "message")), item["data"], orjson.dumps(item["data"]).decode())


def _same(value: object) -> JsonObject:
    return object_of(value, "a list of other things than objects")
