"""In-process tools that the test servers load as a plugin."""

import asyncio
import time

from runwire import ToolContext, ToolError, tool


@tool(effect="pure")
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@tool(effect="pure", return_direct=True)
async def direct(text: str) -> str:
    """Give the text back as the run's answer."""
    return text


@tool(effect="pure")
async def repeat_text(text: str, times: int) -> str:
    """The text, many times."""
    return text * times


@tool(effect="read")
async def wait_for(ms: int) -> str:
    """Answer after a while."""
    await asyncio.sleep(ms / 1000)
    return f"waited {ms}"


@tool(effect="read")
async def hang() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return "never"


@tool(effect="read")
def block(seconds: float) -> str:
    """Block a thread, deaf to everything."""
    time.sleep(seconds)
    return "done"


@tool(effect="read")
async def fail(message: str) -> str:
    """Fail on purpose."""
    raise ToolError(message)


@tool(effect="read")
async def crash(secret: str) -> str:
    """Fail by accident."""
    raise RuntimeError(f"internal detail {secret}")


@tool(effect="read")
async def whoami(context: ToolContext) -> dict[str, object]:
    """Who is calling."""
    return {"tenant": context.principal.tenant, "context": dict(context.context)}


@tool(effect="pure")
def babble(times: int, context: ToolContext) -> str:
    """Tell of its progress, again and again."""
    for number in range(times):
        context.progress(number / times, "x" * 2000)
    return "told"
