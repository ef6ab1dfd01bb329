"""The recorded cases' tools, which the test server loads as a plugin: one text in, `name:text` out; and a planner."""

from collections.abc import Sequence

from runwire import AgentFinish, AgentStep, PlannerContext, ToolError, planner, tool


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


@planner("says_what_its_model_says")
async def says_what_its_model_says(steps: Sequence[AgentStep], context: PlannerContext) -> AgentFinish:
    """Its finish is what its model says, after the steps so far."""
    answer = await context.model(f"{len(steps)} steps so far")
    return AgentFinish({"output": answer.content}, answer.content)
