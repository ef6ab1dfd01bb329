"""The recorded cases' tools, which the test server loads as a plugin."""

import asyncio
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, Field

from runwire import Command, ToolContext, ToolError, tool

_later: dict[str, asyncio.Event] = {}
"""By run: set when the call that is meant to be over first is."""


class Address(BaseModel):
    zip: int
    city: str


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """add"""
    return a + b


@tool(effect="pure")
async def echo(x: str) -> str:
    """echo"""
    return f"echo:{x}"


@tool(effect="pure")
async def other(x: str) -> str:
    """other"""
    return f"other:{x}"


@tool(effect="read")
async def slow(x: str, context: ToolContext) -> str:
    """Answers after the `boom_then_tell` of its run."""
    await _later.setdefault(str(context.run_id), asyncio.Event()).wait()
    return f"slow:{x}"


@tool(effect="read")
async def refuse(x: str) -> str:
    """refuse"""
    raise ToolError(f"texc {x}")


@tool(effect="read")
async def boom(x: str) -> str:
    """boom"""
    raise ValueError(f"kaput {x}")


@tool(effect="read")
async def boom_then_tell(x: str, context: ToolContext) -> str:
    """Lets the slow call of its run go on, and fails."""
    _later.setdefault(str(context.run_id), asyncio.Event()).set()
    raise ValueError(f"kaput {x}")


@tool(effect="pure", return_direct=True)
async def rd(x: str) -> str:
    """rd"""
    return f"direct:{x}"


@tool(effect="pure")
async def art(x: str) -> Command:
    """art"""
    return Command(output="text", update={"raw": {"raw": int(x)}})


@tool(effect="read")
async def rt(x: str, context: ToolContext) -> dict[str, object]:
    """What the server fills in."""
    return {"cart": context.state.get("cart"), "context": dict(context.context), "id": context.tool_call_id}


@tool(effect="read")
async def inj(x: int, context: ToolContext) -> str:
    """Reads a field that a thread may lack."""
    return cast("str", context.state["cart"])


@tool(effect="pure")
async def setcart(v: str) -> Command:
    """setcart"""
    return Command(output=f"set {v}", update={"cart": v})


@tool(effect="pure")
async def getcart(context: ToolContext) -> str:
    """getcart"""
    return f"cart={context.state.get('cart')}"


@tool(effect="pure")
async def logit(v: str) -> Command:
    """logit"""
    return Command(output=f"logged {v}", update={"log": [v]})


@tool(effect="pure")
async def nomsg(v: str) -> Command:
    """nomsg"""
    return Command(update={"cart": v})


@tool(effect="pure")
async def wrongid(v: str) -> Command:
    """wrongid"""
    return Command(update={"cart": v, "messages": [{"role": "tool", "content": "x", "tool_call_id": "other"}]})


@tool(effect="pure")
async def ship(
    addr: Address,
    mode: Literal["air", "sea"],
    note: str | None = None,
    n: Annotated[int, Field(ge=1, le=3)] = 1,
) -> str:
    """ship"""
    return f"{addr.zip}|{addr.city}|{mode}|{note}|{n}"


@tool(effect="read", requires_approval=True)
async def who(context: ToolContext) -> dict[str, Any]:
    """who"""
    return dict(context.context)
