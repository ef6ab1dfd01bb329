"""The body of a tool's answer, as much of it as is shown or kept."""

import zlib
from collections.abc import AsyncGenerator

import httpx

from app.tools.result import KEPT_BYTES


class AnswerBody:
    """An answer's body as it is read: decoded, and no more of it than is kept. A gzip bomb grows no further."""

    __slots__ = ("_limit", "_parts", "_size", "more")

    def __init__(self, limit: int) -> None:
        """`limit`: bytes that are shown; of a success, more are kept."""
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self.more = True
        """Whether it goes on beyond `data`; so it does as long as it was not read to its end."""

    @property
    def over(self) -> bool:
        """More came than is shown: what is still to come changes nothing about the outcome."""
        return self._size > self._limit

    async def read(self, response: httpx.Response) -> None:
        keep = max(self._limit, KEPT_BYTES) if 200 <= response.status_code < 300 else self._limit
        if response.is_stream_consumed:  # a transport may hand over answers it has read (respx does)
            self._add(response.content)
        else:
            async for piece in pieces_of(response, keep + 1):
                self._add(piece)
        self.more = self._size > keep

    def _add(self, piece: bytes) -> None:
        self._parts.append(piece)
        self._size += len(piece)

    def data(self) -> bytes:
        return b"".join(self._parts)[: max(self._limit, KEPT_BYTES)]


async def pieces_of(response: httpx.Response, room: int) -> AsyncGenerator[bytes]:
    """The body, decoded, `room` bytes of it. Raises `RemoteProtocolError` when a compressed one ends early."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in ("gzip", "x-gzip", "deflate") else None
    async for chunk in response.aiter_raw():
        piece = chunk[:room] if inflate is None else inflate.decompress(chunk, room)
        room -= len(piece)
        yield piece
        if room <= 0:
            return
    if inflate is not None and not inflate.eof:
        raise httpx.RemoteProtocolError("the compressed answer ended early")
