"""Runs of text agents as tests make and look at them."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx

from tests.support.bodies import openai, shown
from tests.support.chat_completions import ChatCompletionsServer, RecordedRequest
from tests.support.server import RunwireServer
from tests.support.streams import Event, check_whole, read_events

PLUGINS = "tests.e2e.plugin_tools,tests.e2e.plugin_loop"

CASE_PROMPT = "TOOLS<{tools}> NAMES<{tool_names}>\nQuestion: {input}\nThought:{agent_scratchpad}"
"""The template of the recorded cases."""


@contextmanager
def text_server(folder: Path, **env: str) -> Generator[RunwireServer]:
    """A server with the loop plugins of the tests."""
    with RunwireServer.open(folder, env={"RUNWIRE_PLUGINS": PLUGINS, **env}) as running:
        yield running


def agent(kind: str, model: object, *tools: object, **settings: object) -> dict[str, object]:
    return {"type": kind, "model": model, "tools": list(tools), **settings}


def on(server: ChatCompletionsServer, kind: str, *tools: object, text: object = "q?", **settings: object) -> Any:
    """The body of a run of a text agent on an OpenAI-compatible server."""
    settings.setdefault("return_intermediate_steps", True)
    return {"agent": agent(kind, openai(server.base_url), *tools, **settings), "input": text}


async def ended(client: httpx.AsyncClient, body: Mapping[str, object]) -> dict[str, Any]:
    """The run, after its end."""
    answer = await client.post("/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    return cast("dict[str, Any]", answer.json())


async def told(client: httpx.AsyncClient, body: Mapping[str, object]) -> list[Event]:
    """All events of a run."""
    answer = await client.post("/runs/stream", json=body)
    assert answer.status_code == 200, answer.text
    found = read_events(answer.content)
    check_whole(found)
    return found


def steps_of(run: Mapping[str, Any]) -> list[list[object]]:
    """`[[action, observation], …]`, as the recorded cases have it."""
    return [
        [{name: step["action"][name] for name in ("tool", "tool_input", "log")}, step["observation"]]
        for step in run["intermediate_steps"]
    ]


def prompts(server: ChatCompletionsServer) -> list[str]:
    """The last message of each request: a text agent's prompt."""
    return [str(shown(request)[-1]["content"]) for request in server.requests]


def stop_of(request: RecordedRequest) -> object:
    return request.json.get("stop")


def spoken(events: list[Event], kind: str = "text") -> str:
    """What was streamed of a kind, joined."""
    deltas = [cast("dict[str, str]", item.data["delta"]) for item in events if item.event == "output"]
    return "".join(delta["text"] for delta in deltas if delta["type"] == kind)
