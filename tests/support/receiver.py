"""A tool in the test's own process: keeps what it was sent, and answers as the test says.

async with Receiver.open() as tool:
    tool.hold = asyncio.Event()      # answers wait for it
    ...
    [request] = await tool.until(1)
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Received:
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def data(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.body)["data"])


def works(_: Received) -> tuple[int, object]:
    return 200, {"output": "done"}


@dataclass(slots=True)
class Receiver:
    url: str = ""
    connections: int = 0
    requests: list[Received] = field(default_factory=list[Received])
    answer: Callable[[Received], tuple[int, object]] = works
    """(status, JSON) of an answer."""
    hold: asyncio.Event | None = None
    """Answers wait until it is set."""
    _more: asyncio.Condition = field(default_factory=asyncio.Condition)

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncGenerator["Receiver"]:
        """On loopback, on a free port."""
        state = cls()
        server = await asyncio.start_server(state._connection, "127.0.0.1")
        state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/call"
        try:
            yield state
        finally:
            server.close()

    async def until(self, count: int) -> list[Received]:
        """Wait until so many requests have come; all of them. Under the caller's timeout."""
        async with self._more:
            await self._more.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                pairs = (line.partition(":") for line in head.split("\r\n")[1:] if line)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                request = Received(headers, await reader.readexactly(int(headers.get("content-length", "0"))))
                async with self._more:
                    self.requests.append(request)
                    self._more.notify_all()
                if self.hold is not None:
                    await self.hold.wait()
                status, answer = self.answer(request)
                body = json.dumps(answer).encode()
                head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        writer.close()
