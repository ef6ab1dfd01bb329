"""A tether: a plugin's code runs within its caller's task, and is left behind where it does not stop when it is told to.

A leash (see `leash`) makes a task of each call; here there is one only for code that goes on after it was cancelled. That
is for calls which are many and short. What the code sees is the same, but that its task is the caller's.
"""

import asyncio
import types
from collections.abc import Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from app.core.leash import GRACE_S, leave_behind

ResultT = TypeVar("ResultT")


async def tethered(work: Coroutine[Any, Any, ResultT], kind: str, name: str, *, grace_s: float = GRACE_S) -> ResultT:
    """What `work` comes to. Cancelled, it has `grace_s` seconds to clean up, in a task of its own; then it is left behind.

    What it gives back once it was cancelled does not count. Raises what the work raises; `SystemExit` too.
    """
    return await _held(work, kind, name, grace_s)


@types.coroutine
def _held(work: Coroutine[Any, Any, ResultT], kind: str, name: str, grace_s: float) -> Generator[Any, Any, ResultT]:
    step = partial(work.send, None)
    told: asyncio.CancelledError | None = None
    while True:
        try:
            waits = step()
        except StopIteration as done:
            if told is not None and _is_cancelled():
                raise told from None
            return done.value
        if told is not None and _is_cancelled():
            yield from _handed_over(work, waits, kind, name, grace_s).__await__()
            raise told
        try:
            value = yield waits
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:  # noqa: BLE001  (it is the work's to handle)
            told = error if isinstance(error, asyncio.CancelledError) else None
            step = partial(work.throw, error)
        else:
            told = None
            step = partial(work.send, value)


def _is_cancelled() -> bool:
    """Whether a cancellation came from outside: one by a timeout inside the work is taken back as that ends."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _handed_over(work: Coroutine[Any, Any, object], waits: object, kind: str, name: str, grace_s: float) -> None:
    """Let the work clean up in a task of its own, for `grace_s` seconds at most, and no longer when cancelled again."""
    rest = asyncio.get_running_loop().create_task(_rest(work, waits))
    try:
        await asyncio.wait((rest,), timeout=grace_s)
    finally:
        if not rest.done():
            leave_behind(rest, kind, name)
        elif not rest.cancelled():
            rest.exception()  # asked for, else Python would complain of it: nobody wants it any more


async def _rest(work: Coroutine[Any, Any, object], waits: object) -> None:
    with suppress(SystemExit):  # out of a task it would end the event loop
        await _driven(work, waits)


@types.coroutine
def _driven(work: Coroutine[Any, Any, object], waits: object) -> Generator[Any, Any, None]:
    while True:
        try:
            value = yield waits
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:  # noqa: BLE001  (it is the work's to handle)
            step = partial(work.throw, error)
        else:
            step = partial(work.send, value)
        try:
            waits = step()
        except StopIteration:
            return
