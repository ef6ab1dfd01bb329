"""`runwire serve` as the console command: where it finds plugins, and what it prints when it is up."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.cli.command import TIMEOUT_S, environment

pytestmark = pytest.mark.anyio

SOURCE = '''
from runwire import tool


@tool(effect="pure")
def beside(text: str) -> str:
    """Give it back."""
    return text
'''

CONSOLE_SCRIPT = "from app.cli.main import main\n\nmain()\n"
"""As an installer writes it: Python puts the script's folder on the path, and not the working directory."""


@dataclass(frozen=True, slots=True)
class Started:
    process: asyncio.subprocess.Process
    said: str
    """Its first line."""

    async def stop(self) -> str:
        """What it wrote to stderr from its start to its end."""
        self.process.terminate()
        async with asyncio.timeout(TIMEOUT_S):
            return (await self.process.communicate())[1].decode()


@asynccontextmanager
async def served(folder: Path, *flags: str, **env: str) -> AsyncGenerator[Started]:
    """The command in `folder`, started by a script in another one."""
    script = folder / "bin" / "runwire"
    script.parent.mkdir()
    script.write_text(CONSOLE_SCRIPT, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *flags, str(script), "serve", "--port", "0",
        cwd=folder,
        env=environment(env),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield Started(process, (await process.stdout.readline()).decode())
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_plugins_in_the_working_directory_are_found(tmp_path: Path) -> None:
    (tmp_path / "my_own_tools.py").write_text(SOURCE, encoding="utf-8")
    async with served(tmp_path, RUNWIRE_PLUGINS="my_own_tools") as server:
        url = server.said.removeprefix("Runwire is at ").split()[0]
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=TIMEOUT_S) as client:
            answer = await client.post("/tools/beside/invoke", json={"arguments": {"text": "a"}})
    assert answer.json()["data"] == "a"


async def test_they_are_not_where_python_is_told_to_be_safe(tmp_path: Path) -> None:
    (tmp_path / "my_own_tools.py").write_text(SOURCE, encoding="utf-8")
    async with served(tmp_path, "-P", RUNWIRE_PLUGINS="my_own_tools") as server:
        assert server.said == ""
        assert "my_own_tools" in (await server.process.communicate())[1].decode()
        assert server.process.returncode == 2


@pytest.mark.parametrize(("level", "told"), [("info", False), ("debug", True)])
async def test_nothing_is_printed_beside_its_own_line_unless_for_debugging(
    level: str, told: bool, tmp_path: Path
) -> None:
    async with served(tmp_path, RUNWIRE_LOG_LEVEL=level) as server:
        assert server.said.startswith("Runwire is at http://127.0.0.1:")
        assert ("Started server process" in await server.stop()) is told
