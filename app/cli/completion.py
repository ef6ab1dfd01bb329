"""What a shell completes: names of runs, tools and agents that the server has. Silent when it is away."""

import asyncio
from collections.abc import Mapping
from typing import cast

ENOUGH_S = 1.5
"""A person waits for the shell meanwhile."""

MOST = 100
"""A page; more is no help at a prompt."""


def names(kind: str, params: Mapping[str, object], incomplete: str) -> list[str]:
    """Names that begin with `incomplete`, without those given already. Never raises: a shell has no use for an error."""
    try:
        found = asyncio.run(_within(kind, params.get("url")))
    except (Exception, KeyboardInterrupt):  # noqa: BLE001 (boundary: whatever is wrong, the shell completes nothing)
        return []
    given = {
        name
        for value in params.values()
        if isinstance(value, list | tuple)
        for name in cast("list[object]", value)
        if isinstance(name, str)
    }
    return [name for name in found if name.startswith(incomplete) and name.isprintable() and name not in given]


async def _within(kind: str, url: object) -> list[str]:
    from app.client.client import Client

    async with asyncio.timeout(ENOUGH_S):
        async with Client(url if isinstance(url, str) else None) as client:
            match kind:
                case "runs":
                    return [run.id for run in (await client.runs.list(limit=MOST)).data]
                case "tools":
                    return [str(tool["name"]) for tool in (await client.tools.list(limit=MOST)).data]
                case _:
                    return [str(agent["name"]) for agent in (await client.agents.list(limit=MOST)).data]
