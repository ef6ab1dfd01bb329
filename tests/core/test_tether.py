"""A tether: the code runs within its caller's task, and whoever asked it is not kept when it does not stop."""

import asyncio

import pytest

from app.core.tether import tethered
from tests.core.test_leash import Deaf

pytestmark = pytest.mark.anyio


async def test_what_it_gives_and_raises_comes_through_and_its_task_is_the_callers() -> None:
    async def gives() -> object:
        await asyncio.sleep(0)
        return asyncio.current_task()

    async def fails() -> int:
        await asyncio.sleep(0)
        raise KeyError("x")

    assert await tethered(gives(), "tool", "t") is asyncio.current_task()
    with pytest.raises(KeyError):
        await tethered(fails(), "tool", "t")


async def test_it_may_catch_what_it_awaits_and_use_timeouts_and_tasks_of_its_own() -> None:
    async def works() -> list[str]:
        done: list[str] = []
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            done.append("timeout")
        failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failing.set_exception(KeyError("x"))
        try:
            await failing
        except KeyError:
            done.append("caught")
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        return [*done, *await asyncio.gather(*(asyncio.sleep(0, name) for name in "ab"))]

    async with asyncio.timeout(5):
        assert await tethered(works(), "tool", "t") == ["timeout", "caught", "a", "b"]


async def test_the_deaf_are_told_once_and_left_behind() -> None:
    deaf, before = Deaf(), asyncio.all_tasks()
    async with asyncio.timeout(5):
        task = asyncio.create_task(tethered(deaf(), "tool", "t", grace_s=0.01))
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
        task = asyncio.create_task(tethered(deaf(), "tool", "t", grace_s=3600))
        await deaf.begun.wait()
        task.cancel()
        await deaf.heard.wait()
        await asyncio.sleep(0)
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

    async def swallows() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cleaned.append("at once")
        return "late"

    async with asyncio.timeout(5):
        for work in (tidy, swallows):
            begun.clear()
            task = asyncio.create_task(tethered(work(), "tool", "t"))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert cleaned == ["all", "at once"]


async def test_an_outer_timeout_ends_it_too() -> None:
    deaf = Deaf()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await tethered(deaf(), "tool", "t", grace_s=0.01)
    deaf.may_go.set()
