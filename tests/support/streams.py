"""Event streams as a client reads them: bytes in, whole events out."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import httpx


@dataclass(frozen=True, slots=True)
class Event:
    id: int
    event: str
    data: dict[str, object]
    raw: bytes
    """The event as it came, with its blank line."""


def read_event(block: bytes) -> Event:
    """One event from its lines. It must be exactly `id`, `event`, `data`, each once, LF only."""
    assert b"\r" not in block
    first, second, third = block.split(b"\n")
    assert first.startswith(b"id: ")
    assert second.startswith(b"event: ")
    assert third.startswith(b"data: ")
    data = cast("dict[str, object]", json.loads(third[6:]))
    return Event(int(first[4:]), second[7:].decode(), data, block + b"\n\n")


def read_events(body: bytes) -> list[Event]:
    """The events of a whole body; comments and `retry` lines are left out."""
    blocks = body.split(b"\n\n")
    assert blocks[-1] == b"", "the body ends in the middle of an event"
    return [read_event(block) for block in blocks[:-1] if not block.startswith((b":", b"retry:"))]


class Stream:
    """A response that is read event by event."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.preamble: list[bytes] = []
        """`retry` lines and comments so far."""
        self.events: list[Event] = []
        self._iterator = self._read()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._iterator

    async def until(self, event: str) -> Event:
        """Read on to the next event of a type."""
        async for item in self._iterator:
            if item.event == event:
                return item
        raise AssertionError(f"the stream ended without {event}: {names(self.events)}")

    async def rest(self) -> list[Event]:
        """Read to the clean end; all events of this stream."""
        async for _ in self._iterator:
            pass
        return self.events

    async def until_broken(self) -> list[Event]:
        """Read on until the connection breaks; a clean end would be a lie. All whole events of this stream."""
        try:
            await self.rest()
        except (httpx.RemoteProtocolError, httpx.ReadError):
            return self.events
        raise AssertionError(f"the stream ended cleanly: {names(self.events)}")

    async def _read(self) -> AsyncGenerator[Event]:
        held = b""
        async for data in self.response.aiter_raw():
            *blocks, held = (held + data).split(b"\n\n")
            for block in blocks:
                if block.startswith((b":", b"retry:")):
                    self.preamble.append(block)
                    continue
                item = read_event(block)
                self.events.append(item)
                yield item
        assert held == b"", "the stream ended in the middle of an event"


@asynccontextmanager
async def stream(client: httpx.AsyncClient, method: str, path: str, **options: object) -> AsyncGenerator[Stream]:
    """Open a stream; it must be one."""
    async with client.stream(method, path, **options) as response:  # pyright: ignore[reportArgumentType]
        if response.status_code != 200:
            await response.aread()
            raise AssertionError(f"{response.status_code}: {response.text}")
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Stream(response)


def names(events: Sequence[Event]) -> list[str]:
    return [item.event for item in events]


def check_whole(events: Sequence[Event]) -> None:
    """Ids 1..n without gap or repeat, exactly one `end`, and it is last and knows its own id."""
    assert [item.id for item in events] == list(range(1, len(events) + 1))
    assert names(events).count("end") == 1
    assert events[-1].event == "end"
    assert events[-1].data["last_seq"] == events[-1].id
