"""Requests of these tests: runs of a stateful agent, and their events."""

from typing import Any

import httpx
import orjson

from tests.support.bodies import run_body, says, scripted

TEXTS = {"type": "array", "items": {"type": "string"}}
STATE: dict[str, object] = {
    "log": {"schema": TEXTS, "reducer": "append", "default": []},
    "count": {"schema": {"type": "integer", "maximum": 10}, "reducer": "sum", "default": 0},
    "note": {"schema": {"type": "string"}},
    "last": {"reducer": "last_two"},
    "odd": {"reducer": "broken"},
}


def stateful(
    *turns: dict[str, object],
    tools: tuple[object, ...] = (),
    settings: dict[str, object] | None = None,
    **more: object,
) -> dict[str, object]:
    """A run of an agent with fields; its model plays `turns` and then says done."""
    used = tools or ("put", "write", "look", "spoil", "tell", "tell_from_a_thread", "hang")
    return run_body(
        scripted(*turns, says("done"), repeat=True), *used, agent={"state_schema": STATE, **(settings or {})}, **more
    )


async def done(client: httpx.AsyncClient, body: dict[str, object]) -> dict[str, Any]:
    answer = await client.post("/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def events(client: httpx.AsyncClient, run_id: str, stream: str | None = None) -> list[tuple[str, Any]]:
    """The run's events as its stream has them."""
    params = {} if stream is None else {"stream": stream}
    text = (await client.get(f"/runs/{run_id}/stream", params=params)).text
    found: list[tuple[str, Any]] = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":") and ": " in line)
        if "event" in lines:
            found.append((lines["event"], orjson.loads(lines["data"])))
    return found


async def steps(client: httpx.AsyncClient, run_id: str) -> list[dict[str, Any]]:
    return (await client.get(f"/runs/{run_id}/steps")).json()["data"]
