"""Waiting for the tool server's ledger, which another process writes."""

import asyncio

from tests.support.tool_server import ToolServer


async def until_effects(tools: ToolServer, *names: str, count: int) -> list[dict[str, object]]:
    """Wait until the tools have had so many effects together; the effects. Under the caller's timeout."""
    while True:
        found = [item for item in tools.effects() if item["tool"] in names]
        if len(found) >= count:
            return found
        await asyncio.sleep(0.01)  # a file tells nobody that it has grown
