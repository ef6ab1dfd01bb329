"""Following a run: nothing is lost between replay and live, and a stream never falls silent."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.core.errors import Unavailable
from app.runs.follower import FollowOptions, follow
from app.runs.hub import TAIL_BYTES, Hub
from app.runs.ports import RunStore
from app.storage.open import build_stores, open_database
from tests.contracts.samples import Driver, started

pytestmark = pytest.mark.anyio

TIMEOUT_S = 10.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RunStore]:
    database = open_database(f"sqlite:///{tmp_path}/runs.db")
    await database.start()
    yield build_stores(database, "a key of sixteen or more characters").runs
    await database.stop()


async def say(driver: Driver, hub: Hub, name: str, **data: object) -> None:
    """One event, durable and then shown, as a run's journal does it."""
    append = driver.next((name, data))
    await driver.store.append(append)
    hub.publish(driver.run.id, append.events)


async def test_a_stream_that_filters_everything_out_still_says_that_it_lives(store: RunStore) -> None:
    hub = Hub()
    driver = await started(store)
    hub.open(driver.run.id, 1)
    pieces = follow(store, hub, "acme", driver.run.id, FollowOptions(1, {"step"}, quiet_s=0.05))

    async def talk() -> None:
        while True:
            await say(driver, hub, "output", text="token")
            await asyncio.sleep(0.005)  # a model that speaks all the time

    talking = asyncio.create_task(talk())
    async with asyncio.timeout(TIMEOUT_S):
        assert [await anext(pieces) for _ in range(3)] == [b"", b"", b""]
    talking.cancel()
    await asyncio.gather(talking, return_exceptions=True)
    await pieces.aclose()


@pytest.mark.parametrize("driven", [True, False])
async def test_a_quiet_run_is_kept_alive_wherever_it_is_driven(store: RunStore, driven: bool) -> None:
    hub = Hub()
    driver = await started(store)
    if driven:
        hub.open(driver.run.id, 1)
    pieces = follow(store, hub, "acme", driver.run.id, FollowOptions(1, None, quiet_s=0.02))
    async with asyncio.timeout(TIMEOUT_S):
        assert [await anext(pieces) for _ in range(2)] == [b"", b""]
        await say(driver, hub, "output", text="at last")
        while not (piece := await anext(pieces)):
            pass
    assert b"at last" in piece
    await pieces.aclose()


async def test_readers_that_join_at_any_time_see_the_same_bytes(store: RunStore) -> None:
    hub = Hub()
    driver = await started(store)
    hub.open(driver.run.id, 1)
    big = "x" * (TAIL_BYTES // 8)

    async def read(after: int) -> bytes:
        pieces = follow(store, hub, "acme", driver.run.id, FollowOptions(after))
        return b"".join([piece async for piece in pieces])

    readers: list[asyncio.Task[bytes]] = []
    async with asyncio.timeout(TIMEOUT_S):
        for number in range(40):
            readers.append(asyncio.create_task(read(0)))
            await say(driver, hub, "output", text=f"{number} {big}")
        readers.append(asyncio.create_task(read(30)))
        await driver.end()  # by another process, say: this one's hub is not told
        hub.close(driver.run.id)
        *whole, late = await asyncio.gather(*readers)
        replay = await read(0)
    assert set(whole) == {replay}
    assert replay.endswith(late)
    assert replay.count(b"event: ") == 42


async def test_draining_breaks_every_follower_off(store: RunStore) -> None:
    hub = Hub()
    driver = await started(store)
    hub.open(driver.run.id, 1)
    pieces = follow(store, hub, "acme", driver.run.id, FollowOptions(1))
    waiting = asyncio.create_task(anext(pieces))
    async with asyncio.timeout(TIMEOUT_S):
        while not (tail := hub.tail(driver.run.id)) or not tail.waiters:  # noqa: ASYNC110
            await asyncio.sleep(0)  # one turn of the loop, until the follower waits
        hub.drain()
        with pytest.raises(Unavailable):
            await waiting
