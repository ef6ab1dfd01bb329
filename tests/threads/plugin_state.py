"""In-process tools that read and write the thread's state, and reducers of their own."""

import asyncio
from typing import Any, cast

from runwire import Command, ToolContext, reducer, tool


@tool(effect="pure")
async def put(field: str, value: str, context: ToolContext) -> Command:
    """Add a text to a list of the state."""
    return Command(output=f"put {value}", update={field: [value]})


@tool(effect="pure")
async def write(update: dict[str, Any], goto: str | None = None, output: str = "written") -> Command:
    """Write whatever it is told."""
    return Command(output=output, update=update, goto=cast("Any", goto))


@tool(effect="pure")
async def look(field: str, context: ToolContext) -> object:
    """Read a field of the state."""
    return context.state.get(field)


@tool(effect="pure")
async def spoil(context: ToolContext) -> str:
    """Try to change what was read."""
    cast("list[object]", context.state["log"]).append("spoiled")
    cast("list[dict[str, object]]", context.state["messages"])[0]["content"] = "spoiled"
    return "tried"


@tool(effect="pure")
async def tell(text: str, context: ToolContext) -> str:
    """Tell the readers something."""
    context.custom({"said": text})
    context.progress(0.5, text)
    return "told"


@tool(effect="pure")
def tell_from_a_thread(text: str, context: ToolContext) -> str:
    """The same, from a thread."""
    for number in range(3):
        context.custom([text, number])
    return "told"


@tool(effect="pure")
async def flood(size: int) -> Command:
    """Write a very long text."""
    return Command(output="flooded", update={"note": "x" * size})


@tool(effect="read")
async def hang() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return "never"


@reducer("last_two")
def last_two(old: object, update: object) -> object:
    held = cast("list[object]", old or [])
    held += cast("list[object]", update)
    return held[-2:]


@reducer("broken")
def broken(old: object, update: object) -> object:
    raise RuntimeError("a secret detail")
