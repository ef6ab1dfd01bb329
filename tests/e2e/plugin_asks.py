"""In-process tools that ask while they run. What they did stands in `effects.log`, in the server's folder."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runwire import ToolContext, tool

AMOUNT: Mapping[str, object] = {
    "type": "object",
    "properties": {"amount": {"$ref": "#/$defs/amount"}},
    "required": ["amount"],
    "$defs": {"amount": {"type": "integer", "minimum": 1}},
}


def did(line: str) -> None:
    descriptor = os.open(Path("effects.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


@tool
def ask(n: int, context: ToolContext) -> dict[str, Any]:
    """Ask, then do it: in a thread."""
    did(f"start {n}")
    answer = context.interrupt({"n": n}, message=f"And {n}?")
    did(f"do {n} {answer!r}")
    return {"answer": answer, "attempt": context.attempt}


@tool
async def ask_twice(n: int, context: ToolContext) -> list[Any]:
    """Ask for two things, one after the other."""
    did(f"start {n}")
    first = context.interrupt("The first?")
    second = context.interrupt("The second?")
    did(f"do {n} {first!r} {second!r}")
    return [first, second, context.attempt]


@tool
async def ask_amount(n: int, context: ToolContext) -> Any:
    """Take an amount."""
    return context.interrupt({"n": n}, AMOUNT)


@tool
async def ask_and_catch(n: int, context: ToolContext) -> str:
    """Catch everything, as some code does."""
    try:
        answer = context.interrupt(n)
    except Exception:
        answer = "caught"
    did(f"do {n} {answer!r}")
    return str(answer)


@tool
async def ask_deaf(n: int, context: ToolContext) -> str:
    """Catch even what is no exception, and go on."""
    try:
        answer = context.interrupt(n)
    except BaseException:
        answer = "swallowed"
    return str(answer)


@tool
async def ask_in_a_group(n: int, context: ToolContext) -> list[Any]:
    """Ask from a task, beside another one."""
    answers: list[Any] = []

    async def one() -> None:
        answers.append(context.interrupt(n))

    async with asyncio.TaskGroup() as group:
        group.create_task(one())
    return answers


@tool(timeout_s=0.5)
async def ask_soon(n: int, context: ToolContext) -> Any:
    """Ask, with little time of its own."""
    return context.interrupt(n, expires_s=30)


@tool
async def ask_badly(n: int, context: ToolContext) -> Any:
    """Ask what nobody can keep."""
    return context.interrupt({1, n}, expires_s=-1)


@tool
async def ask_briefly(n: int, context: ToolContext) -> Any:
    """Ask for one second."""
    return context.interrupt(n, expires_s=1)


@tool
async def ask_then_hang(n: int, context: ToolContext) -> Any:
    """Ask, then be there for a kill: a write."""
    answer = context.interrupt(n)
    did(f"do {n} {answer!r}")
    await asyncio.Event().wait()


@tool(idempotent=True)
async def ask_then_hang_once(n: int, context: ToolContext) -> Any:
    """Ask twice, then hang in the first process: safe to run again."""
    answers = [context.interrupt("one"), context.interrupt("two")]
    did(f"do {n} {answers!r} {context.attempt} {context.idempotency_key[:8]}")
    if context.attempt == 1:
        await asyncio.Event().wait()
    return answers
