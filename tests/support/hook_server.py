"""A real server of HTTP hooks, in the test's own process, which keeps what it was asked.

async with HookServer(lambda asked: {"action": "deny", "message": "no"}) as server:
    config = {"url": server.url, "hooks": ["before_model"], "signing_secret": SECRET}
    ...
    assert server.asked[0].type == "middleware.before_model"
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

HANG = object()
"""An answer that never comes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.body))

    @property
    def type(self) -> str:
        return str(self.json["type"])

    @property
    def data(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.json["data"])


class HookServer:
    """Answers with what its function gives: JSON, bytes as they are, a number as the status, `HANG`."""

    def __init__(self, answer: Callable[[Asked], object] = lambda asked: {}) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")[1:-2]
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                asked = Asked(headers, await reader.readexactly(int(headers["content-length"])))
                self.asked.append(asked)
                answer = self._answer(asked)
                if answer is HANG:
                    await reader.read()
                    return
                status = answer if isinstance(answer, int) else 200
                body = (
                    answer
                    if isinstance(answer, bytes)
                    else b""
                    if isinstance(answer, int)
                    else json.dumps(answer).encode()
                )
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
