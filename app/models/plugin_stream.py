"""The stream of a plugin's model: its generator runs in a task of its own, whoever reads it, and for however long."""

import asyncio
from collections.abc import AsyncGenerator

import structlog

from app.core.leash import PluginQuit, let_go

AHEAD = 16
"""How many items the generator may be ahead of the reader."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class End:
    """Comes after the last item."""


END = End()


class PluginStream:
    """All steps of the generator are taken in one task, as timeouts and cancel scopes in it need it."""

    __slots__ = ("_closing", "_failed", "_items", "_provider", "_ready", "_task")

    def __init__(self, items: AsyncGenerator[object], provider: str) -> None:
        self._items = items
        self._provider = provider
        self._ready: asyncio.Queue[object] = asyncio.Queue(AHEAD)
        self._failed: BaseException | None = None
        self._closing = False
        self._task = asyncio.create_task(self._pump())

    async def next(self) -> object:
        """The next item, at last `END`. Raises what the generator raises, and `PluginQuit` where it cancelled itself."""
        item = await self._ready.get()
        if item is END and self._failed is not None:
            raise self._failed
        return item

    async def close(self) -> None:
        """Let the generator clean up; one that does not stop is left behind."""
        self._closing = True
        await let_go(self._task, "model", self._provider)

    async def _pump(self) -> None:
        try:
            async for item in self._items:
                if self._closing:  # it took the cancellation for its own and went on
                    break
                await self._ready.put(item)
        except asyncio.CancelledError as error:
            if self._closing:
                raise
            self._failed = PluginQuit("it cancelled itself")
            self._failed.__cause__ = error
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the named boundary: foreign code behind it
            self._failed = error
        finally:
            await self._tidy()
        await self._ready.put(END)

    async def _tidy(self) -> None:
        """What goes wrong here is no concern of the run, which has its answer or its end."""
        try:
            await self._items.aclose()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the named boundary: foreign code behind it
            _log.warning("model_plugin_not_closed", provider=self._provider, exc_info=error)
