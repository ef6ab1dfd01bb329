"""The recorded cases' tools, which the test server loads as a plugin: one text in, `name:text` out."""

from runwire import ToolError, tool


@tool(effect="pure")
async def a(text: str) -> str:
    """a"""
    return f"a:{text}"


@tool(effect="pure")
async def b(text: str) -> str:
    """b"""
    return f"b:{text}"


@tool(effect="pure")
async def bad(text: str) -> str:
    """bad"""
    raise ToolError("boom")


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """add"""
    return a + b


@tool(effect="pure")
async def found(text: str) -> dict[str, object]:
    """found"""
    return {"k": "值"}
