"""Servers that are not as they should be, for the command line to meet."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

JSON = "application/json"


@dataclass(slots=True)
class Canned:
    """A server that gives the same answers whoever asks: `answers["GET /info"]` is a status and a body."""

    answers: Mapping[str, tuple[int, bytes]]
    kind: str = JSON
    url: str = ""
    asked: list[str] = field(default_factory=list[str])
    """`METHOD /path` of each request, with its query."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, _ = head.split(" ", 2)
        self.asked.append(f"{method} {target}")
        status, body = self.answers.get(f"{method} {target.partition('?')[0]}", (404, b"nothing here"))
        lines = f"HTTP/1.1 {status} X\r\nContent-Type: {self.kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(lines.encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def canned(answers: Mapping[str, tuple[int, bytes]], kind: str = JSON) -> AsyncGenerator[Canned]:
    server = Canned(answers, kind)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server
