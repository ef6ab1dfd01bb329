"""The background task of retention: what it deletes when, what it tells, and that a failure is not its end."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import structlog

from app.core.errors import NotFound, Unavailable
from app.core.idempotency import KEPT_MS, IdempotencyKey
from app.core.ids import new_id
from app.core.principal import Principal
from app.runs.follower import FollowOptions, follow
from app.runs.hub import Hub
from app.runs.ports import RetentionStore, Swept
from app.runs.retention import DAY_MS, EVERY_S, FIRST_AFTER_S, REST_S, SECRETS_KEPT_MS, Retention, Sweep
from app.settings import load
from app.storage.open import Stores, build_stores, open_database
from app.threads.store import StoreService
from app.wiring import Parts, build
from tests.contracts.samples import Clock, Driver, new_run, started

pytestmark = pytest.mark.anyio

TIMEOUT_S = 10.0
END_MS = 1_800_000_009_000


@dataclass
class Pauses:
    """The passing of time, by hand: each long pause waits for `go`."""

    asked: "asyncio.Queue[float]" = field(default_factory=lambda: asyncio.Queue[float]())
    _gate: "asyncio.Queue[None]" = field(default_factory=lambda: asyncio.Queue[None]())
    rests: int = 0

    async def __call__(self, seconds: float) -> None:
        if seconds == REST_S:
            self.rests += 1
            return
        self.asked.put_nowait(seconds)
        await self._gate.get()

    async def next(self) -> float:
        """The pause that is asked for now."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self.asked.get()

    def go(self) -> None:
        self._gate.put_nowait(None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def stores(tmp_path: Path, clock: Clock) -> AsyncIterator[Stores]:
    database = open_database(f"sqlite:///{tmp_path}/runs.db")
    await database.start()
    yield build_stores(database, "a key of sixteen or more characters", clock)
    await database.stop()


async def test_a_run_is_deleted_when_its_days_are_over_and_not_before(stores: Stores, clock: Clock) -> None:
    driver = await started(stores.runs)
    await driver.end()
    retention = Retention(stores.retention, 1.5, clock=clock)
    clock.now = END_MS + int(1.5 * DAY_MS)
    assert await retention.sweep() == Sweep()
    clock.now += 1
    assert await retention.sweep() == Sweep(runs=1, threads=1)
    assert await stores.runs.get("acme", driver.run.id) is None


async def test_without_a_limit_runs_stay_and_the_rest_is_still_swept(stores: Stores, clock: Clock) -> None:
    run, _ = await stores.runs.create(new_run(), IdempotencyKey.of("acme", "POST /runs", "k", b"{}"))
    await Driver(stores.runs, run).end()
    await stores.secrets.put("acme", "nobody's")
    clock.now += 1000 * DAY_MS
    assert await Retention(stores.retention, None, clock=clock).sweep() == Sweep(idempotency_keys=1, secrets=1)
    assert await stores.runs.get("acme", run.id) is not None


async def test_keys_and_secrets_wait_for_their_day(stores: Stores, clock: Clock) -> None:
    await stores.runs.create(new_run(), IdempotencyKey.of("acme", "POST /runs", "k", b"{}"))
    await stores.secrets.put("acme", "nobody's")
    retention = Retention(stores.retention, None, clock=clock)
    clock.now += min(KEPT_MS, SECRETS_KEPT_MS)
    assert await retention.sweep() == Sweep()
    clock.now += 1
    assert await retention.sweep() == Sweep(idempotency_keys=1, secrets=1)


async def test_it_sweeps_soon_after_the_start_and_every_hour_and_tells_how_much(stores: Stores, clock: Clock) -> None:
    pauses = Pauses()
    retention = Retention(stores.retention, 1, clock=clock, pause=pauses)
    for _ in range(3):
        await (await started(stores.runs)).end()
    clock.now = END_MS + DAY_MS + 1
    with structlog.testing.capture_logs() as lines:
        retention.start()
        assert FIRST_AFTER_S[0] <= await pauses.next() <= FIRST_AFTER_S[1]
        assert lines == []
        pauses.go()
        assert await pauses.next() == EVERY_S
        await (await started(stores.runs)).end()
        pauses.go()
        assert await pauses.next() == EVERY_S
        await retention.stop()
    swept = [{key: line[key] for key in ("event", "runs", "threads")} for line in lines]
    assert swept == [
        {"event": "retention_swept", "runs": 3, "threads": 3},
        {"event": "retention_swept", "runs": 1, "threads": 1},
    ]
    assert pauses.rests >= 2


async def test_items_of_the_store_go_when_their_time_is_over_however_long_runs_are_kept(
    stores: Stores, clock: Clock
) -> None:
    service = StoreService(stores.items, new_id)
    await service.put("acme", ["a"], "goes", {"n": 1}, ttl_s=60)
    await service.put("acme", ["a"], "stays", {"n": 1})
    retention = Retention(stores.retention, None, clock=clock)
    clock.now += 59_999
    assert await retention.sweep() == Sweep()
    clock.now += 1
    assert await retention.sweep() == Sweep(items=1)
    assert [item.key for item in (await service.search("acme", [], {})).data] == ["stays"]


@dataclass
class Failing:
    """A store that fails for a while."""

    store: RetentionStore
    errors: list[Exception]

    async def delete_runs(self, before_ms: int) -> Swept:
        if self.errors:
            raise self.errors.pop(0)
        return await self.store.delete_runs(before_ms)

    async def delete_threads(self, before_ms: int) -> Swept:
        return await self.store.delete_threads(before_ms)

    async def forget_keys(self) -> Swept:
        return await self.store.forget_keys()

    async def delete_secrets(self, before_ms: int) -> Swept:
        return await self.store.delete_secrets(before_ms)

    async def delete_items(self) -> Swept:
        return await self.store.delete_items()


async def test_a_failed_sweep_is_told_without_what_it_holds_and_tried_again(stores: Stores, clock: Clock) -> None:
    pauses = Pauses()
    broken = Failing(stores.retention, [Unavailable("The database is away."), ValueError("a secret of someone")])
    retention = Retention(broken, 1, clock=clock, pause=pauses)
    await (await started(stores.runs)).end()
    clock.now = END_MS + DAY_MS + 1
    with structlog.testing.capture_logs() as lines:
        retention.start()
        for _ in range(3):
            await pauses.next()
            pauses.go()
        await pauses.next()
        await retention.stop()
    assert [line["event"] for line in lines] == ["retention_failed", "retention_failed", "retention_swept"]
    assert "secret of someone" not in str(lines)
    assert lines[2]["runs"] == 1


async def test_stopping_ends_the_task_at_once_and_twice_is_fine(stores: Stores) -> None:
    pauses = Pauses()
    retention = Retention(stores.retention, 1, pause=pauses)
    await retention.stop()
    retention.start()
    await pauses.next()
    async with asyncio.timeout(TIMEOUT_S):
        await retention.stop()
        await retention.stop()


async def read_on(stream: AsyncIterator[bytes]) -> None:
    async for _ in stream:
        continue


async def test_a_stream_of_a_run_that_is_deleted_meanwhile_ends(
    stores: Stores, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.runs.follower.CHUNK_BYTES", 10)
    driver = await started(stores.runs)
    await driver.append(("output", {"delta": "a"}))
    await driver.end()
    clock.now = END_MS + DAY_MS + 1
    stream = follow(stores.runs, Hub(), "acme", driver.run.id, FollowOptions(0, None))
    async with asyncio.timeout(TIMEOUT_S):
        assert b"event: run\n" in await anext(stream)
        assert (await Retention(stores.retention, 1, clock=clock).sweep()).runs == 1
        with pytest.raises(Unavailable):
            await read_on(stream)


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    built = build(load({}, database_url=f"sqlite:///{tmp_path}/runs.db"))
    await built.start()
    yield built
    await built.stop()


async def test_a_server_sweeps_its_own_runs(parts: Parts) -> None:
    """The parts of a server as they are wired, its database, and a clock that is thirty days ahead."""
    caller = Principal("default", "someone", None)
    body = {"agent": {"model": {"provider": "scripted", "script": [{"content": "hi"}]}}, "input": "x"}
    accepted = await parts.services.runs.create(caller, body, None)
    async with asyncio.timeout(TIMEOUT_S):
        run = await parts.services.runs.wait(caller, accepted.run.id, None)
    assert run.status == "success"
    assert run.finished_at is not None
    parts.retention._clock = lambda: run.created_at + 30 * DAY_MS
    assert (await parts.retention.sweep()).runs == 0
    parts.retention._clock = lambda: run.created_at + 31 * DAY_MS
    assert await parts.retention.sweep() == Sweep(runs=1, threads=1)
    with pytest.raises(NotFound):
        await parts.services.runs.get(caller, run.id)
