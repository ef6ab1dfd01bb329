"""What the guides tell to type: commands, options, settings, bodies; and the README's walk through a real server."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import typer.main
from typer.core import TyperGroup

from app.cli.main import app
from app.runs.spec import RegisteredAgentSpec, RunCreate
from app.settings import OF_THE_COMMAND, Settings, variable_of
from app.tools.spec import ToolSpec
from tests.examples.processes import EXAMPLES, blocks, shell, uvicorn
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
README, QUICKSTART = ROOT / "README.md", ROOT / "docs" / "quickstart.md"
GUIDES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])
BODIES = {
    "/runs": RunCreate,
    "/runs/stream": RunCreate,
    "/runs/wait": RunCreate,
    "/agents": RegisteredAgentSpec,
    "/tools": ToolSpec,
}
SETTING = re.compile(r"\b(?:RUNWIRE|OPENAI|ANTHROPIC)_[A-Z_]*[A-Z]\b")

SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"


def by_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def lines(page: Path) -> list[str]:
    """The command lines of a page's shell blocks, continuations joined, comments and set variables taken off."""
    found: list[str] = []
    for block in blocks(page):
        for line in block.replace("\\\n", " ").splitlines():
            found += [re.sub(r"^(?:\w+=\S* )+", "", part.strip()) for part in re.split(r"[;|&(]\s*", line)]
    return found


def commands(page: Path) -> list[list[str]]:
    """Calls of `runwire`, as their arguments."""
    found: list[list[str]] = []
    for line in lines(page):
        if re.match(r"(?:\.venv/bin/)?runwire(?= )", line):
            text = re.sub(r"\)$", "", line) if line.count("(") < line.count(")") else line
            found.append(shlex.split(text, comments=True)[1:])
    return found


def wrong_in(args: list[str]) -> str | None:
    """What the command line does not know of a call; placeholders count as values."""
    command, path, args = typer.main.get_command(app), ["runwire"], list(args)
    while isinstance(command, TyperGroup) and args and not args[0].startswith("--"):
        path.append(args.pop(0))
        following = command.commands.get(path[-1])
        if following is None:
            return f"there is no {' '.join(path)}"
        command = following
    known = {"--help"}.union(*(parameter.opts for parameter in command.params))
    unknown = {arg.partition("=")[0] for arg in args if arg.startswith("--")} - known
    return f"{' '.join(path)} knows no {', '.join(sorted(unknown))}" if unknown else None


@pytest.mark.parametrize("page", GUIDES, ids=by_name)
def test_the_commands_of_a_guide_and_their_options_exist(page: Path) -> None:
    assert [wrong for call in commands(page) if (wrong := wrong_in(call)) is not None] == []


def test_a_command_that_does_not_exist_would_be_found() -> None:
    assert wrong_in(["runs", "list"]) == "there is no runwire runs list"
    assert wrong_in(["runs", "ls", "--newest"]) == "runwire runs ls knows no --newest"
    assert sum(len(commands(page)) for page in GUIDES) > 20


@pytest.mark.parametrize("page", GUIDES, ids=by_name)
def test_the_settings_that_a_guide_names_exist(page: Path) -> None:
    settings = {variable_of(name) for name in Settings.model_fields}
    known = settings | {f"{name}_FILE" for name in settings} | OF_THE_COMMAND
    text = re.sub(r"--build-arg \w+", "", page.read_text(encoding="utf-8"))
    assert set(SETTING.findall(text)) - known == set()


@pytest.mark.parametrize("page", GUIDES, ids=by_name)
def test_the_make_targets_that_a_guide_names_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {line.split()[1] for line in lines(page) if re.match(r"make [a-z-]+", line)}
    named |= set(re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8")))
    assert named - set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)) == set()


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    listed = re.findall(r"@echo \"make ([a-z-]+) ", makefile)
    assert set(listed) == set(phony[1].split()) - {"help"}


@pytest.mark.parametrize("page", [README, QUICKSTART], ids=by_name)
def test_the_bodies_that_a_guide_posts_are_what_the_route_takes(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("'\"$TOOL_SECRET\"'", SECRET)
    posts = re.findall(r"http://127\.0\.0\.1:8080(/[\w/-]+) --json '([^']*)'", text)
    assert len(posts) == text.count("--json '") >= 3
    for route, body in posts:
        value = cast("dict[str, object]", json.loads(body))
        if route in BODIES:
            BODIES[route].model_validate(value)
        else:
            assert re.fullmatch(r"/tools/\w+/invoke", route), route
            assert value.keys() == {"arguments"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    """As `make run` starts it."""
    env = {"RUNWIRE_PLUGINS": "", "RUNWIRE_EGRESS_ALLOW": ""}
    with RunwireServer.open(tmp_path_factory.mktemp("demo"), keys="", env=env, args=("--demo",)) as running:
        yield running


def typed(block: str, demo: RunwireServer, tools: str = "") -> str:
    """A block of a guide for these servers, instead of the ports that it names."""
    block = block.replace("http://127.0.0.1:8080", demo.url).replace("http://127.0.0.1:9000", tools)
    return block.replace(".venv/bin/runwire", f"{shlex.quote(sys.executable)} -m app").replace("curl ", "curl -sS ")


async def test_the_readme_leads_to_an_answer_through_a_tool_of_ones_own(demo: RunwireServer, tmp_path: Path) -> None:
    watched, _, registered, ran = [block for block in blocks(README) if "8080" in block or "9000" in block][:4]
    env = {"TOOL_SECRET": SECRET, "RUNWIRE_URL": demo.url}
    with uvicorn(EXAMPLES / "tool_service", {"TOOL_SECRET": SECRET}, tmp_path / "tool.log") as port:
        tools = f"http://127.0.0.1:{port}"
        assert '"status":"success"' in await shell(typed(watched, demo), env)
        answers = await shell(typed(registered, demo, tools), env)
        assert '"ok":true,"data":5.0' in answers
        run = cast("dict[str, object]", json.loads(await shell(typed(ran, demo, tools), env)))
    assert (run["status"], run["output"]) == ("success", {"output": "It is 5."})
    steps = cast("list[dict[str, object]]", run["intermediate_steps"])
    assert [(step["status"], step["observation"]) for step in steps] == [("success", 5.0)]


async def test_the_readmes_commands_and_its_client_work(demo: RunwireServer) -> None:
    (block,) = [block for block in blocks(README) if "runwire run " in block]
    shown = await shell(typed(block, demo), {"RUNWIRE_URL": demo.url, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)})
    assert "The calculator says 5." in shown
    (program,) = blocks(README, "python")
    told = await shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(typed(program, demo))}", {})
    assert told.splitlines()[-1].startswith('end {"run_id"')


async def test_the_quickstart_registers_an_agent_and_runs_it(demo: RunwireServer) -> None:
    (block,) = [block for block in blocks(QUICKSTART) if "/agents --json" in block]
    shown = await shell(typed(block, demo), {"RUNWIRE_URL": demo.url, "NO_COLOR": "1"})
    assert "The calculator says 42." in shown


async def test_the_quickstarts_plugin_is_found_and_answers(tmp_path: Path) -> None:
    (source,) = blocks(QUICKSTART, "python")
    (start,) = [block for block in blocks(QUICKSTART) if "RUNWIRE_PLUGINS" in block]
    (call,) = [block for block in blocks(QUICKSTART) if "invoke find_order" in block]
    (tmp_path / "my_tools.py").write_text(source, encoding="utf-8")
    assert start.split()[:3] == ["RUNWIRE_PLUGINS=my_tools", ".venv/bin/runwire", "serve"]
    with RunwireServer.open(tmp_path, keys="", env={"RUNWIRE_PLUGINS": "my_tools"}, args=("--demo",)) as server:
        shown = await shell(typed(call, server), {"RUNWIRE_URL": server.url, "NO_COLOR": "1"})
    assert json.loads(shown) == {"item": "lamp", "total": 40}


async def test_a_run_has_the_events_that_concepts_shows(demo: RunwireServer) -> None:
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    told = [(int(id_), name) for id_, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)]
    script = scripted(calls(("text_length", {"text": "hello"})), says("It is 5."))
    async with demo.client(key=None) as client:
        run = (await client.post("/runs/wait", json=run_body(script, "text_length"))).json()
        events = (await client.get(f"/runs/{run['id']}/events")).json()["data"]
    assert [(event["id"], event["event"]) for event in events] == told
