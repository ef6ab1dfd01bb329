"""Keeping: how much one run keeps of results that are too long to be shown."""

from collections.abc import Awaitable, Callable

from app.core.errors import Unavailable

KEPT_OF_A_RUN = 64 * 1024 * 1024
"""Bytes of long results after which a run keeps no more of them; the one that reaches it is kept."""

KeptBytes = Callable[[str], Awaitable[int]]
"""By the run's id: the bytes of its long results that are stored."""


class Keeping:
    """Of one run. It begins with what is stored, which is asked for when the first long result comes."""

    __slots__ = ("_bytes", "_loaded", "_run_id", "_stored")

    def __init__(self, run_id: str | None = None, stored: KeptBytes | None = None) -> None:
        self._run_id = run_id
        self._stored = stored
        self._bytes = 0
        self._loaded = run_id is None or stored is None

    @property
    def full(self) -> bool:
        return self._bytes >= KEPT_OF_A_RUN

    async def load(self) -> None:
        """Know what the run has stored. Where that cannot be read now, it counts as nothing until the next time."""
        if self._loaded or self._run_id is None or self._stored is None:
            return
        try:
            stored = await self._stored(self._run_id)
        except Unavailable:
            return
        if not self._loaded:  # another call of the round may have asked, too
            self._loaded = True
            self._bytes = max(self._bytes, stored)

    def add(self, size: int) -> None:
        self._bytes += size
