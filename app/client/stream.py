"""A run's event stream as a program reads it: every event once and in order, whatever happens to the connection."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

import httpx
import orjson
from httpx_sse import EventSource, ServerSentEvent

from app.client.connection import Connection, Params, path_of
from app.client.errors import ClientError, ProblemError, StreamLost
from app.client.fields import JsonObject, NotOurs, object_of, objects
from app.client.interrupts import Interrupt
from app.client.retries import AGAIN, Attempts
from app.client.values import FINISHED, Event, Run

HEALTHY_S = 15.0
"""A connection that lasted so long and was then cut was not a failed attempt: some proxies cut every stream in time."""

REST_S = 1.0
"""How long the clean end after `end` is waited for, so that the connection can be used again."""

_RUN_PATH = re.compile(r"/runs/([A-Za-z0-9-]{1,64})$")


class _Cut(Exception):
    """The connection ended before the stream did."""


class RunStream:
    """The events of one run. Iterate it, within `async with` or without; nothing is sent before the first event is asked for.

    After a lost connection it goes on by itself where it was. One task reads it at a time.

    Raises, while iterated: `ProblemError` (the server refuses), `ConnectionFailed` (there was no stream at all), `StreamLost`
    (it could not be taken up again), `UnexpectedAnswer`.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        run_id: str | None = None,
        after: int = 0,
        body: bytes | None = None,
        key: str | None = None,
        events: Sequence[str] | None = None,
        tail: bool = False,
        hold: bool = False,
    ) -> None:
        if after < 0:
            raise ValueError("`after` is the id of an event, 0 or more.")
        if isinstance(events, str):
            raise TypeError("`events` is a list of event types.")
        self._connection = connection
        self._body = body
        self._key = key
        self._selection = None if events is None else ",".join(events)
        self._tail = tail
        self._hold = hold
        self._over = False
        self._begun = False
        self._held: AsyncGenerator[Event] | None = None
        self.run_id = run_id
        """`None` until the server has accepted the run."""
        self.last_id = after
        """The last event's id; where `client.runs.follow(run_id, after=…)` would go on."""
        self.run: Run | None = None
        """The run as far as this stream has told it: final once `end` came. `None` before its first event about the run.

        It has what events carry (status, output, error, usage, …); `client.runs.get` has the rest.
        """

    @property
    def ended(self) -> bool:
        """Whether the run's `end` has come."""
        return self.run is not None and self.run.finished

    async def __aenter__(self) -> "RunStream":
        self._held = self._read()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the stream. The run goes on, unless it was posted with `on_disconnect="cancel"`."""
        held, self._held = self._held, None
        if held is not None:
            await held.aclose()

    def __aiter__(self) -> AsyncIterator[Event]:
        # Without `async with` nothing of ours holds the generator, so leaving the loop finalizes it and closes the connection.
        return self._read() if self._held is None else self._held

    async def __anext__(self) -> Event:
        if self._held is None:
            self._held = self._read()
        return await anext(self._held)

    async def _read(self) -> AsyncGenerator[Event]:
        connection = self._connection
        attempts = Attempts(connection.max_attempts, connection.pause)
        now = asyncio.get_running_loop().time
        while not self._over:
            before, began = self.last_id, now()
            failure: ClientError
            try:
                async with aclosing(self._one_connection()) as events:
                    async for event in events:
                        yield event
                continue
            except (httpx.RequestError, _Cut) as error:
                if isinstance(error, httpx.LocalProtocolError):
                    raise connection.failed(error, 1) from error
                cause, wait_s = error, None
                failure = connection.failed(
                    error if isinstance(error, httpx.RequestError) else httpx.ReadError(str(error)), attempts.failed + 1
                )
                lasted = now() - began >= HEALTHY_S and not isinstance(error, httpx.TimeoutException)
            except ProblemError as error:
                if error.status not in AGAIN:
                    raise
                cause, wait_s, failure, lasted = error, error.retry_after_s, error, False
            if self.last_id > before or lasted:
                attempts.progressed()
            pause = attempts.next_pause_s(wait_s)
            if pause is None:
                raise self._lost(failure) from cause
            await asyncio.sleep(pause)

    def _lost(self, failure: ClientError) -> ClientError:
        if self.run_id is None or not self._begun:
            return failure
        text = f"The stream of run {self.run_id} broke off after event {self.last_id}. {failure}"
        return StreamLost(text, run_id=self.run_id, last_id=self.last_id)

    async def _one_connection(self) -> AsyncGenerator[Event]:
        """The events that one connection brings and that are new; returns when the stream is over.

        Raises `httpx.RequestError` or `_Cut` when it may go on, else the client's errors.
        """
        response = await self._open()
        try:
            if response.status_code == 204:
                self._over = True
                return
            await self._check(response)
            async with aclosing(EventSource(response).aiter_sse()) as received:
                async for item in received:
                    event = self._event(item, response)
                    if event is None:
                        continue
                    self._take(event)
                    yield event
                    if self._over:
                        await _rest(received)
                        return
            if self.run is None or self.run.status != "interrupted":
                raise _Cut("the stream stopped before its end")
            # The run is parked: it waits for somebody. A POST's stream cannot be held, so the run is followed from here.
            if self._hold and response.request.method != "POST":
                raise _Cut("the stream was not held open")
            self._over = not self._hold
        finally:
            with suppress(httpx.HTTPError):
                await response.aclose()

    async def _open(self) -> httpx.Response:
        params: dict[str, str] = {} if self._selection is None else {"stream": self._selection}
        if self.run_id is None:
            given: Params = params
            return await self._connection.open("POST", "/runs/stream", params=given, body=self._body, key=self._key)
        if self._tail and not self.last_id:
            params["tail"] = "true"
        if self._hold:
            params["hold"] = "true"
        path = f"{path_of('runs', self.run_id)}/stream"
        return await self._connection.open("GET", path, params=params, last_id=self.last_id)

    async def _check(self, response: httpx.Response) -> None:
        """Raises unless it is a stream of ours; then the run is known."""
        if response.status_code != 200:
            raise self._connection.refused(response.status_code, response.headers, await response.aread())
        if response.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/event-stream":
            raise self._connection.unexpected(response)
        self._begun = True
        if self.run_id is None:
            found = _RUN_PATH.search(response.headers.get("content-location", ""))
            self.run_id = found[1] if found else None

    def _event(self, item: ServerSentEvent, response: httpx.Response) -> Event | None:
        """The event, if it is one and new. Raises `_Cut` for a gap, `UnexpectedAnswer`."""
        if not item.data:  # `retry`, and `id` alone: where a stream that skips what was before begins
            if item.id.isascii() and item.id.isdigit():
                self.last_id = max(self.last_id, int(item.id[:18]))
            return None
        if not (item.id.isascii() and item.id.isdigit()) or len(item.id) > 18:
            raise self._connection.unexpected(response, "events without numbers")
        number = int(item.id)
        if number <= self.last_id:
            return None
        if self._selection is None and number != self.last_id + 1 and (self.last_id or not self._tail):
            raise _Cut(f"event {self.last_id + 1} was left out")
        try:
            data = object_of(orjson.loads(item.data), "an event")
        except ValueError:
            raise self._connection.unexpected(response, "an event that is not a JSON object") from None
        return Event(number, item.event, data, item.data)

    def _take(self, event: Event) -> None:
        """Keep what an event says of the run."""
        self.last_id = event.id
        data = event.data
        if event.event in ("run", "end"):
            self.run = _told(self.run, self.run_id, data)
            self.run_id = self.run.id or None
            self._over = event.event == "end"
        elif self.run is None:
            return
        elif event.event == "finish" and isinstance(data.get("return_values"), dict):
            self.run = replace(self.run, output=data["return_values"])
        elif event.event == "error":
            self.run = replace(self.run, error=data)
        elif event.event == "interrupt":
            self.run = replace(self.run, interrupts=[*self.run.interrupts, *_asked(event)])


def _asked(event: Event) -> list[Interrupt]:
    """The questions of an `interrupt` event; one that cannot be answered, as it has no id, is left to its `data`."""
    asked: list[Interrupt] = []
    for item in objects(event.data.get("interrupts")):
        with suppress(NotOurs):
            asked.append(Interrupt.of(item))
    return asked


def _told(known: Run | None, run_id: str | None, data: Mapping[str, Any]) -> Run:
    """The run after a `run` or `end` event."""
    facts: JsonObject = {
        name: data[name]
        for name in ("status", "thread_id", "agent", "stop_reason", "attempt", "usage")
        if data.get(name) is not None
    }
    if known is None:
        told = data.get("run_id")
        known = Run(run_id or (told if isinstance(told, str) else ""), "running")
    if known.status == "interrupted" or facts.get("status") in FINISHED:
        facts["interrupts"] = []  # all were answered, or nobody needs to
    return replace(known, **facts)


async def _rest(received: AsyncGenerator[ServerSentEvent]) -> None:
    """Read the clean end of a response, if it comes at once."""
    with suppress(httpx.HTTPError, TimeoutError, StopAsyncIteration):
        async with asyncio.timeout(REST_S):
            await anext(received)
