"""A leash: whatever a plugin does when it is told to stop, whoever asked it is not kept."""

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from app.core.leash import PluginQuit, leashed

pytestmark = pytest.mark.anyio


class Deaf:
    """Takes no cancellation for an answer until it may go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_go = asyncio.Event()
        self.heard = asyncio.Event()
        self.told = 0

    async def __call__(self) -> str:
        self.begun.set()
        while not self.may_go.is_set():
            try:
                await self.may_go.wait()
            except asyncio.CancelledError:
                self.told += 1
                self.heard.set()
        return "late"


async def test_what_it_gives_and_raises_comes_through() -> None:
    async def gives() -> int:
        return 7

    async def fails() -> int:
        raise KeyError("x")

    assert await leashed(gives(), "tool", "t") == 7
    with pytest.raises(KeyError):
        await leashed(fails(), "tool", "t")


async def cancels() -> None:
    raise asyncio.CancelledError


async def exits() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("quits", [cancels, exits])
async def test_it_ends_neither_its_caller_nor_the_process(quits: Callable[[], Awaitable[None]]) -> None:
    with pytest.raises(PluginQuit):
        await leashed(quits(), "tool", "t")


async def test_the_deaf_are_told_once_and_left_behind() -> None:
    deaf, before = Deaf(), asyncio.all_tasks()
    async with asyncio.timeout(5):
        task = asyncio.create_task(leashed(deaf(), "tool", "t", grace_s=0.01))
        await deaf.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert deaf.told == 1
        assert asyncio.all_tasks() == before, "the end of the loop would wait for it"
        deaf.may_go.set()


async def test_a_second_cancel_ends_the_grace() -> None:
    deaf = Deaf()
    async with asyncio.timeout(5):
        task = asyncio.create_task(leashed(deaf(), "tool", "t", grace_s=3600))
        await deaf.begun.wait()
        task.cancel()
        await deaf.heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        deaf.may_go.set()


async def test_within_its_grace_it_may_clean_up_and_what_it_gives_then_does_not_count() -> None:
    begun, cleaned = asyncio.Event(), list[str]()

    async def tidy() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for _ in range(3):
                await asyncio.sleep(0)
            cleaned.append("all")
        return "late"

    async with asyncio.timeout(5):
        task = asyncio.create_task(leashed(tidy(), "tool", "t"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert cleaned == ["all"]


async def test_what_was_cancelled_before_its_first_step_is_not_complained_of(
    recwarn: pytest.WarningsRecorder,
) -> None:
    async def never_begun() -> None:
        """Nothing."""

    task = asyncio.create_task(leashed(never_begun(), "tool", "t"))
    await asyncio.sleep(0)
    task.cancel()  # what it is to run has had no turn yet
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    gc.collect()
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]
