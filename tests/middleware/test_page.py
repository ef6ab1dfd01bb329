"""The page on middleware: its commands and its plugin do what it says, and it names every setting."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.bodies import calls, run_body, scripted
from tests.support.server import ROOT, RunwireServer

pytestmark = pytest.mark.anyio

PAGE = (ROOT / "docs" / "middleware.md").read_text(encoding="utf-8")

COMMANDS: list[dict[str, Any]] = [
    json.loads(body) for body in re.findall(r"curl -s localhost:8080/runs/wait --json '([^']*)'", PAGE)
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    """`serve --demo` with the page's plugin in its working directory."""
    folder: Path = tmp_path_factory.mktemp("page")
    (plugin,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (folder / "my_middleware.py").write_text(plugin, encoding="utf-8")
    with RunwireServer.open(folder, keys="", env={"RUNWIRE_PLUGINS": "my_middleware"}, args=("--demo",)) as running:
        yield running


@pytest.fixture
async def client(server: RunwireServer) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client(None) as opened:
        yield opened


ANSWERS = {
    "pii": "Mail sent to [REDACTED_EMAIL], 或者[REDACTED_EMAIL]。",
    "guardrail": "I may not talk about that.",
    "model_fallback": "I am here.",
    "dynamic_model": "the large one",
}


async def test_every_command_of_the_page_works(client: httpx.AsyncClient) -> None:
    found: dict[str, object] = {}
    for body in COMMANDS:
        answer = await client.post("/runs/wait", json=body)
        assert answer.status_code == 200, answer.text
        found[body["agent"]["middleware"][0]["name"]] = answer.json()["output"]["output"]
    assert found == ANSWERS


async def test_the_plugin_of_the_page_works(client: httpx.AsyncClient) -> None:
    quota = {"name": "quota", "config": {"calls": 2}}
    script = scripted({"content": " spaced "}, repeat=True)
    thread = (await client.post("/threads", json={})).json()["id"]
    outputs: list[object] = []
    for _ in range(3):
        body = run_body(script, agent={"middleware": [quota]}, thread_id=thread)
        outputs.append((await client.post("/runs/wait", json=body)).json()["output"]["output"])
    assert outputs == ["spaced", "spaced", "That is all for today."]
    script = scripted(calls(("calculator", {"expression": "2+3"})), {"content": "5"})
    body = run_body(script, "calculator", agent={"middleware": [quota]}, context={"dry_run": True})
    assert (await client.post("/runs/wait", json=body)).json()["output"] == {"output": "5"}


async def test_the_page_names_every_middleware_and_setting_of_the_server(client: httpx.AsyncClient) -> None:
    listed: list[dict[str, Any]] = (await client.get("/middleware")).json()["data"]
    names = [item["name"] for item in listed]
    assert names == sorted({*re.findall(r"^### (\w+)$", PAGE, re.MULTILINE), "quota"})
    words = set(re.findall(r"\w+", PAGE))
    for item in listed:
        assert set(item["config_schema"]["properties"]) <= words, item["name"]
    (shown,) = (item for item in listed if item["name"] == "quota")
    assert shown["state_schema"] == {"asked": {"schema": {"type": "integer"}, "reducer": "sum", "default": 0}}
    assert (await client.get("/middleware", params={"limit": 1})).json()["has_more"] is True
