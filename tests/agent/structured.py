"""Runs of agents with a structured answer, and what is looked at of them."""

from typing import Any

import httpx

from tests.support.bodies import run_body, scripted

Body = dict[str, Any]

W: Body = {
    "title": "W",
    "type": "object",
    "properties": {"city": {"type": "string"}, "temp": {"type": "integer"}},
    "required": ["city", "temp"],
    "additionalProperties": False,
}
FITS = {"city": "HZ", "temp": 28}
HOT = {"city": "HZ", "temp": "hot"}
MISFIT = 'at /temp: expected an integer, got the text "hot"'


def asked(*turns: Body, schema: Body = W, repeat: bool = False, **settings: object) -> Body:
    """A run of an agent with the tool `a` and a structured answer, on a scripted model."""
    agent = {"output_schema": schema, "output_strategy": "tool", **settings}
    if agent.get("type", "tool_calling") != "tool_calling":
        del agent["output_strategy"]
    return run_body(scripted(*turns, repeat=repeat), "a", agent=agent)


async def ran(client: httpx.AsyncClient, body: Body) -> tuple[Body, list[Body]]:
    """The finished run and its conversation. Every call in it has its one result."""
    answer = await client.post("/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    run = answer.json()
    messages = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    made = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    told = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert sorted(made) == sorted(told)
    return run, messages


def results(messages: list[Body]) -> list[tuple[str, str, str | None]]:
    return [(m["name"], m["content"], m.get("status")) for m in messages if m["role"] == "tool"]


def ended(run: Body) -> tuple[str, str, int]:
    return run["status"], run["stop_reason"], run["usage"]["model_calls"]
