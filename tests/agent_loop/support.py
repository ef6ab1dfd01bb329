"""Runs of these tests as a reader of the cases knows them: turns in, the whole conversation out."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import httpx

from tests.support.bodies import openai, run_body, shown
from tests.support.chat_completions import ChatCompletionsServer, RecordedRequest, Reply, calls, says
from tests.support.server import TIMEOUT_S
from tests.support.tool_server import ToolServer

Call = tuple[str, str, Mapping[str, object]]
"""The model's id of a call, the tool, the arguments."""

PlayedTurn = str | Reply | list[Call] | tuple[str, list[Call]]
"""A model's turn: a text, calls, or both."""

Said = tuple[object, ...]
"""A message: `("user", text)`, `("assistant", text, [calls])`, `("tool", text, call id)` or `("tool", …, "error")`."""


def reply(turn: PlayedTurn) -> Reply:
    """A model's turn as its server streams it."""
    if isinstance(turn, Reply):
        return turn
    if isinstance(turn, str):
        return says(turn)
    content, made = turn if isinstance(turn, tuple) else ("", turn)
    return calls(*((call_id, name, json.dumps(args)) for call_id, name, args in made), content=content)


def asks(made: list[Call], content: str = "") -> Said:
    return ("assistant", content, made)


def _said(message: Mapping[str, Any]) -> Said:
    content = message.get("content") or ""
    if message["role"] == "tool":
        failed = message.get("status") not in (None, "success")
        return ("tool", content, message["tool_call_id"], *(("error",) if failed else ()))
    made = [_call(item) for item in cast("list[dict[str, Any]]", message.get("tool_calls") or [])]
    return (message["role"], content, made) if made else (message["role"], content)


def _call(item: dict[str, Any]) -> Call:
    """A call as Runwire writes it, or as Chat Completions does."""
    if "function" in item:
        return item["id"], item["function"]["name"], json.loads(item["function"]["arguments"])
    return item["id"], item["name"], item["args"]


def seen(request: RecordedRequest) -> list[Said]:
    """What a model was shown. Chat Completions has no place for a result's status."""
    return [_said(message) for message in shown(request)]


class Played:
    """A run that is over or waits, what was said in it, and what its model was asked."""

    def __init__(self, client: httpx.AsyncClient, run: dict[str, Any], model: ChatCompletionsServer) -> None:
        self.client = client
        self.run = run
        self.model = model

    @property
    def model_calls(self) -> int:
        return len(self.model.requests)

    @property
    def answer(self) -> object:
        return self.run["output"] and self.run["output"]["output"]

    async def again(self) -> dict[str, Any]:
        """The run as it stands when it is over or waits."""
        found = await self.client.get(f"/runs/{self.run['id']}/wait", params={"timeout_s": TIMEOUT_S})
        assert found.status_code == 200, found.text
        self.run = cast("dict[str, Any]", found.json())
        return self.run

    async def said(self) -> list[Said]:
        """The conversation, with the status of its results."""
        answer = await self.client.get(f"/runs/{self.run['id']}/messages")
        assert answer.status_code == 200, answer.text
        data = answer.json()["data"]
        return [_said(message) for message in data]

    async def steps(self) -> list[dict[str, Any]]:
        return (await self.client.get(f"/runs/{self.run['id']}/steps", params={"limit": 100})).json()["data"]

    async def step(self, number: int = 1) -> dict[str, Any]:
        return (await self.client.get(f"/runs/{self.run['id']}/steps/{number}")).json()

    async def state(self) -> dict[str, Any]:
        return (await self.client.get(f"/threads/{self.run['thread_id']}/state")).json()["values"]

    async def resume(self, *responses: Mapping[str, object]) -> httpx.Response:
        """Send answers, each for the interrupt in its place where it names none."""
        made = [
            {"interrupt_id": self.run["interrupts"][place]["id"], **response}
            for place, response in enumerate(responses)
        ]
        return await self.client.post(f"/runs/{self.run['id']}/resume", json={"responses": made})

    async def resumed(self, *responses: Mapping[str, object]) -> dict[str, Any]:
        """The run after answers that must be taken."""
        taken = await self.resume(*responses)
        assert taken.status_code == 202, taken.text
        return await self.again()

    async def effects(self, tools: ToolServer) -> list[tuple[object, object]]:
        """What was really done for this run: (tool, arguments), oldest first."""
        ids = {step["tool_call_id"] for step in await self.steps()}
        return [(effect["tool"], effect["arguments"]) for effect in tools.effects() if effect["tool_call_id"] in ids]


async def posted(client: httpx.AsyncClient, model: ChatCompletionsServer, *tools: object, **more: object) -> Played:
    """Post a run and wait until it is over or waits itself. `agent` in `more`: settings; `text`: the input, `hi`."""
    async with asyncio.timeout(2 * TIMEOUT_S):
        body = run_body(openai(model.base_url), *tools, **{"text": "hi", **more})
        answer = await client.post("/runs/wait", json=body)
        assert answer.status_code == 200, answer.text
        return Played(client, cast("dict[str, Any]", answer.json()), model)


class Model(ChatCompletionsServer):
    """A real model server that plays turns."""

    def __init__(self, *turns: PlayedTurn) -> None:
        super().__init__([reply(turn) for turn in turns])
