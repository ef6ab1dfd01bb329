"""Retention: the background task that deletes what is kept no longer.

Finished runs go as a whole after the configured time. What nobody can reach any more (the state of unlisted threads without
a run, used idempotency keys, secrets that nothing refers to, items of the store whose time is over) goes with them.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from app.core.clock import now_ms
from app.core.errors import RunwireError
from app.core.values import immutable
from app.runs.ports import RetentionStore, Swept

log = structlog.get_logger("runwire.retention")

EVERY_S = 3600.0
FIRST_AFTER_S = (30.0, 150.0)
"""When the first sweep after a start is due: somewhere in between, so that servers started together do not sweep together."""

REST_S = 0.02
"""Between two transactions, so that most of the time belongs to live runs."""

SECRETS_KEPT_MS = 24 * 3600 * 1000
"""An unused secret is kept this long: a request under way may be about to refer to it."""

DAY_MS = 24 * 3600 * 1000


@immutable
class Sweep:
    """How much one sweep deleted."""

    runs: int = 0
    threads: int = 0
    idempotency_keys: int = 0
    secrets: int = 0
    items: int = 0


class Retention:
    """Sweeps soon after `start` and then every hour, until `stop`.

    `keep_days`: days from a run's end to its deletion, `None` = for ever. `clock` gives milliseconds since the epoch,
    `pause` waits for seconds.
    """

    def __init__(
        self,
        store: RetentionStore,
        keep_days: float | None,
        *,
        clock: Callable[[], int] = now_ms,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._keep_ms = None if keep_days is None else int(keep_days * DAY_MS)
        self._clock = clock
        self._pause = pause
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """A transaction under way is finished or not by the database; the next start goes on."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def sweep(self) -> Sweep:
        """Delete all that is due now. Raises `Unavailable`."""
        now = self._clock()
        runs = threads = 0
        if self._keep_ms is not None:
            before = now - self._keep_ms
            runs = await self._all(lambda: self._store.delete_runs(before))
            threads = await self._all(lambda: self._store.delete_threads(before))
        keys = await self._all(self._store.forget_keys)
        secrets = await self._all(lambda: self._store.delete_secrets(now - SECRETS_KEPT_MS))
        items = await self._all(self._store.delete_items)
        return Sweep(runs, threads, keys, secrets, items)

    async def _all(self, delete_some: Callable[[], Awaitable[Swept]]) -> int:
        count = 0
        while True:
            swept = await delete_some()
            count += swept.count
            if not swept.more:
                return count
            await self._pause(REST_S)

    async def _run(self) -> None:
        await self._pause(random.uniform(*FIRST_AFTER_S))  # noqa: S311 - nothing secret about it
        while True:
            await self._sweep_and_tell()
            await self._pause(EVERY_S)

    async def _sweep_and_tell(self) -> None:
        try:
            done = await self.sweep()
        except RunwireError as error:
            log.error("retention_failed", code=error.code, error=error.message, retry_s=EVERY_S)
        except Exception as error:  # noqa: BLE001 - the boundary of a background task: one bad sweep must not be the last
            log.error("retention_failed", error=type(error).__name__, retry_s=EVERY_S)
        else:
            log.info(
                "retention_swept",
                runs=done.runs,
                threads=done.threads,
                idempotency_keys=done.idempotency_keys,
                secrets=done.secrets,
                items=done.items,
            )
