"""Shell completion, and the help: what the command line says of itself."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import ROOT, runwire
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

HEAVY = {"rich", "httpx", "pydantic", "fastapi", "uvicorn", "sqlalchemy"}


async def completed(line: str, folder: Path, url: str) -> list[str]:
    """What bash is offered at the end of this line."""
    words = line.split(" ")
    env = {
        "_RUNWIRE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "RUNWIRE_URL": url,
    }  # fmt: skip
    result = await runwire(cwd=folder, env=env)
    assert (result.code, result.err) == (0, "")
    return result.out.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
async def test_the_completion_script_of_a_shell_asks_this_command(shell: str, tmp_path: Path) -> None:
    env = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    result = await runwire("--show-completion", shell, cwd=tmp_path, env=env)
    assert result.code == 0
    assert "_RUNWIRE_COMPLETE" in result.out


async def test_commands_and_names_are_completed(demo_server: RunwireServer, tmp_path: Path) -> None:
    assert await completed("runwire to", tmp_path, demo_server.url) == ["tools"]
    assert await completed("runwire tools show ", tmp_path, demo_server.url) == [
        "calculator", "current_time", "text_length",
    ]  # fmt: skip
    assert await completed("runwire agents show de", tmp_path, demo_server.url) == ["demo"]
    assert await completed("runwire run --agent sl", tmp_path, demo_server.url) == ["slow"]
    assert await completed("runwire runs ls --status ca", tmp_path, demo_server.url) == ["cancelled"]


async def test_ids_of_runs_are_completed(demo_server: RunwireServer, tmp_path: Path) -> None:
    async with demo_server.client(None) as client:
        run_id = (await client.post("/runs/wait", json={"agent": "demo", "input": "hello"})).json()["id"]
    assert run_id in await completed("runwire runs show 0", tmp_path, demo_server.url)
    assert run_id not in await completed(f"runwire runs rm {run_id} 0", tmp_path, demo_server.url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense"])
async def test_nothing_is_completed_and_nothing_said_without_a_server(url: str, tmp_path: Path) -> None:
    assert await completed("runwire tools show ", tmp_path, url) == []


async def test_the_help_names_every_command_and_exit_code(tmp_path: Path) -> None:
    result = await runwire("--help", cwd=tmp_path)
    assert result.code == 0
    commands = set(re.findall(r"^  (\w+) {2,}\S", result.out, re.MULTILINE))
    assert commands >= {"serve", "run", "runs", "tools", "agents", "models", "info", "migrate", "openapi"}
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for code in re.findall(r"^ {4}(\d+) ", result.out, re.MULTILINE):
        assert f"| {code} |" in page


@pytest.mark.parametrize("args", [("--help",), ("runs", "--help"), ("runs", "ls", "--help"), ("run", "--help")])
def test_help_loads_nothing_heavy(args: tuple[str, ...]) -> None:
    program = (
        "import json, sys\n"
        f"sys.argv = ['runwire', *{args!r}]\n"
        "from app.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Usage: runwire" in done.stdout
    # typer reads the options that stand before a command by pydantic
    assert set(json.loads(done.stderr)) & HEAVY <= ({"pydantic"} if len(args) > 1 else set())
