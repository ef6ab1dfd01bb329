"""Plugins that take no cancellation for an answer, which the test servers of their own load."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence

from runwire import (
    AgentFinish,
    AgentStep,
    ModelAnswer,
    ModelRequest,
    OutputParserException,
    PlannerContext,
    PolicyAnswer,
    PolicyRequest,
    TextDelta,
    model,
    parsing_error_handler,
    planner,
    tool,
    tool_policy,
)


async def never() -> None:
    """Wait for what never comes, whoever tells it to stop."""
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@tool(effect="read")
async def deaf_read() -> str:
    """Never answer."""
    await never()
    return "never"


@tool(effect="write", timeout_s=1)
async def deaf_brief() -> str:
    """Never answer, though it has a second only."""
    await never()
    return "never"


@tool(effect="write")
async def deaf_write() -> str:
    """Never answer, by way of another task."""
    await asyncio.gather(never(), never())
    return "never"


@tool(effect="pure")
async def asked_about() -> str:
    """The policy never lets it."""
    return "fine"


@tool_policy("deaf")
async def policy(request: PolicyRequest) -> PolicyAnswer:
    """Allows all but one tool, about which it thinks for ever."""
    if request.tool == "asked_about":
        await never()
    return "allow"


@planner("deaf_planner")
async def deaf_planner(steps: Sequence[AgentStep], context: PlannerContext) -> AgentFinish:
    """Never decides."""
    await never()
    return AgentFinish({"output": "never"})


@parsing_error_handler("deaf_handler")
async def deaf_handler(error: OutputParserException) -> str:
    """Never finds the words."""
    await never()
    return "never"


@model("deaf_model")
class DeafModel:
    """Says something, and then nothing more."""

    def __init__(self, model: str, params: Mapping[str, object]) -> None:
        self.name = model

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelAnswer]:
        """A model `chatty` goes on and on, the others fall silent."""
        yield TextDelta("so ")
        while self.name == "chatty":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            yield TextDelta("on ")
        await never()
        yield ModelAnswer("never")
