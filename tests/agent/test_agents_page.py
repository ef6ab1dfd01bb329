"""The page on agents: its commands and its plugins do what it says, and it names every setting."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.agent.prompts.registry import PROMPTS
from app.agent.stop import ITERATION_OR_TIME_TEXT, MAX_ITERATIONS_TEXT, REPEATS_TEXT, USAGE_TEXT
from app.runs.spec import AGENT_TYPES, AgentSpec, LimitsSpec
from tests.support.server import ROOT, RunwireServer

pytestmark = pytest.mark.anyio

PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")

COMMANDS: list[dict[str, Any]] = [
    json.loads(body) for body in re.findall(r"curl -s localhost:8080/runs/wait --json '([^']*)'", PAGE)
]

PLUGINS: str = next(text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "@planner" in text)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    """`serve --demo` with the page's plugins in its working directory."""
    folder: Path = tmp_path_factory.mktemp("page")
    (folder / "my_agents.py").write_text(PLUGINS, encoding="utf-8")
    with RunwireServer.open(folder, keys="", env={"RUNWIRE_PLUGINS": "my_agents"}, args=("--demo",)) as running:
        yield running


@pytest.fixture
async def client(server: RunwireServer) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client(None) as opened:
        yield opened


async def run_of(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    answer = await client.post("/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    run = answer.json()
    return run, (await client.get(f"/runs/{run['id']}/steps")).json()["data"]


def body_with(part: str) -> dict[str, Any]:
    (found,) = (body for body in COMMANDS if part in json.dumps(body))
    return found


@pytest.mark.parametrize("kind", AGENT_TYPES)
async def test_the_command_of_each_type_works(client: httpx.AsyncClient, kind: str) -> None:
    body = next(body for body in COMMANDS if body["agent"]["type"] == kind)
    run, steps = await run_of(client, body)
    assert (run["status"], run["stop_reason"], run["output"]) == ("success", "finish", {"output": "5"})
    assert [(step["action"]["tool"], step["observation"]) for step in steps] == [("calculator", 5)]


async def test_the_command_with_a_prompt_of_ones_own_works(client: httpx.AsyncClient) -> None:
    body = body_with("Answer in {lang}")
    run, _ = await run_of(client, body)
    assert run["output"] == {"output": "quinque"}
    shown = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    assert "Answer in Latin: What is 2+3?" in shown[0]["content"]
    refused = await client.post("/runs/wait", json={**body, "input": "What is 2+3?"})
    assert (refused.status_code, refused.json()["code"]) == (422, "missing_input")


async def test_the_planner_of_the_page_works(client: httpx.AsyncClient) -> None:
    run, steps = await run_of(client, body_with("work_it_out"))
    assert run["output"] == {"output": "It is 5."}
    assert [(step["action"]["log"], step["observation"]) for step in steps] == [("First the numbers.", 5)]


async def test_the_parse_policy_and_the_trimmer_of_the_page_work(client: httpx.AsyncClient) -> None:
    run, steps = await run_of(client, body_with("show_the_form"))
    assert run["output"] == {"output": "5"}
    assert [step["action"]["tool"] for step in steps] == ["_Exception", "calculator", "calculator"]
    assert steps[0]["observation"].startswith("I could not read that.")
    (prompt, _) = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    assert "I could not read that." in prompt["content"]
    assert "Action Input: 2+2" not in prompt["content"]
    assert "Action Input: 2+3" in prompt["content"]


async def test_a_structured_answer_is_mended_until_it_fits(client: httpx.AsyncClient) -> None:
    run, steps = await run_of(client, body_with("output_schema"))
    assert (run["stop_reason"], run["output"]) == ("finish", {"output": '{"sum":5}', "structured": {"sum": 5}})
    assert [(step["action"]["tool"], step["status"]) for step in steps] == [
        ("calculator", "success"),
        ("Sum", "error"),
        ("Sum", "success"),
    ]


def test_every_command_is_run_above() -> None:
    kinds = [body["agent"]["type"] for body in COMMANDS]
    assert kinds == [*AGENT_TYPES, "react", "tool_calling", "work_it_out", "react"]


def test_every_setting_stands_in_the_table() -> None:
    rows = set(re.findall(r"^\| `([\w.]+)` \|", PAGE, re.MULTILINE))
    later = {"middleware"}
    limits = {f"limits.{name}" for name in LimitsSpec.model_fields}
    assert (AgentSpec.model_fields.keys() - {"limits"} - later) | limits <= rows


@pytest.mark.parametrize("kind", sorted(PROMPTS))
def test_what_a_template_must_hold_and_where_its_model_stops_is_told(kind: str) -> None:
    (row,) = (
        line for line in PAGE.splitlines() if line.startswith("|") and f"`{kind}`" in line and "_scratchpad" in line
    )
    _, _, variables, stop, _ = row.split("|")
    assert set(re.findall(r"\{(\w+)\}", variables)) == PROMPTS[kind].required
    assert stop.strip() == f"`{PROMPTS[kind].stop[0]}`".replace("\n", "\\n")


@pytest.mark.parametrize("text", [ITERATION_OR_TIME_TEXT, MAX_ITERATIONS_TEXT, REPEATS_TEXT, USAGE_TEXT])
def test_the_texts_of_limits_are_told(text: str) -> None:
    assert f"`{text}`" in PAGE
