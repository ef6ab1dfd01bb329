"""A TCP proxy that cuts connections, the way bad networks do."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(slots=True)
class CuttingProxy:
    """`cuts[i]`: after how many bytes of the server's answer connection i is aborted; `None` and the ones beyond are left alone."""

    target: str
    cuts: Sequence[int | None]
    url: str = ""
    requests: list[bytes] = field(default_factory=list[bytes])
    """The first bytes of each connection's request."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.requests)
        left = self.cuts[number] if number < len(self.cuts) else None
        self.requests.append(await reader.read(65536))
        address = urlsplit(self.target)
        inner, outer = await asyncio.open_connection(address.hostname, address.port)
        outer.write(self.requests[number])
        forward = asyncio.create_task(_copy(reader, outer))
        try:
            while data := await inner.read(1024):
                part = data if left is None else data[:left]
                writer.write(part)
                await writer.drain()
                left = None if left is None else left - len(part)
                if left == 0:
                    break
        except ConnectionError:
            pass
        finally:
            forward.cancel()
            await asyncio.gather(forward, return_exceptions=True)
            outer.transport.abort()
            if left is None:
                writer.close()
            else:
                writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1024):
        writer.write(data)


@asynccontextmanager
async def cutting_proxy(target: str, cuts: Sequence[int | None]) -> AsyncGenerator[CuttingProxy]:
    proxy = CuttingProxy(target, cuts)
    server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await server.wait_closed()
