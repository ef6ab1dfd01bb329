"""The benchmarks' tools, in-process plugins: one that returns at once, one that takes 50 ms."""

import asyncio

from runwire import Command, tool

PAUSE_S = 0.05


@tool(effect="pure")
async def lookup(key: str) -> str:
    """Look a value up."""
    return f"{key} is 42"


@tool(effect="pure")
async def pause(number: int) -> int:
    """Answer after 50 ms."""
    await asyncio.sleep(PAUSE_S)
    return number


@tool(effect="pure")
async def note(key: str) -> Command:
    """Write two fields of the state."""
    return Command(output="noted", update={"notes": [f"note {key}"], "count": 1})
