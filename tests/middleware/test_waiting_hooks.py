"""Hooks that never wait run without a task of their own; all others have one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from app.runs.middleware.plugin_kind import _waits  # pyright: ignore[reportPrivateUsage]


class Plain:
    async def hook(self, state: object) -> None:
        return None


async def awaits() -> None:
    await asyncio.sleep(0)


async def enters() -> None:
    async with contextlib.AsyncExitStack():
        pass


async def loops(numbers: AsyncIterator[int]) -> None:
    async for _ in numbers:
        pass


async def computes(numbers: AsyncIterator[int]) -> list[int]:
    return [number async for number in numbers]


def gives() -> object:
    return awaits()


@pytest.mark.parametrize("function", [awaits, enters, loops, computes, gives, print, Plain])
def test_what_may_wait_is_known(function: Callable[..., object]) -> None:
    assert _waits(function)


def test_what_never_waits_is_known() -> None:
    assert not _waits(Plain().hook)
    assert not _waits(Plain.hook)
