"""The `runwire` command as a real process."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

TIMEOUT_S = 30.0
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, object]]:
        """What `--json` printed."""
        return [cast("dict[str, object]", json.loads(line)) for line in self.out.splitlines()]


def environment(env: Mapping[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RUNWIRE_", "OPENAI_"))}
    return {**clean, "PYTHONPATH": str(ROOT), **env}


async def start(
    *args: str, cwd: Path, env: Mapping[str, str] | None = None, stdout: int = asyncio.subprocess.PIPE
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app", *args,
        cwd=cwd,
        env=environment(env or {}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def finish(process: asyncio.subprocess.Process) -> Result:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            out, err = cast("tuple[bytes | None, bytes]", await process.communicate())
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert process.returncode is not None
    return Result(process.returncode, (out or b"").decode(), err.decode())


async def runwire(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> Result:
    """Run the command to its end."""
    return await finish(await start(*args, cwd=cwd, env=env))
