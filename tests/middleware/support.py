"""Runs of agents with middleware."""

from collections.abc import Sequence
from typing import Any, cast

import httpx

from tests.agent_loop.support import Model, Played, posted

__all__ = ["Model", "Played", "played", "told"]


async def played(
    client: httpx.AsyncClient, model: Model, middleware: Sequence[object], *tools: object, **more: Any
) -> Played:
    """A run of an agent with middleware, when it is over or waits."""
    agent = {"middleware": middleware, **more.pop("agent", {})}
    return await posted(client, model, *(tools or ("echo",)), agent=agent, **more)


async def events(client: httpx.AsyncClient, run: dict[str, Any]) -> list[dict[str, Any]]:
    found = await client.get(f"/runs/{run['id']}/events", params={"limit": 100})
    return cast("list[dict[str, Any]]", found.json()["data"])


async def told(client: httpx.AsyncClient, run: dict[str, Any]) -> list[object]:
    """What the run's middleware and tools said of themselves, in order."""
    return [event["data"]["data"] for event in await events(client, run) if event["event"] == "custom"]
