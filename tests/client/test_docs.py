"""The guide to the client: its program runs as it stands, and it names what there is."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from app import client
from tests.cli.command import environment
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"


async def test_the_program_of_the_guide_runs(tmp_path: Path) -> None:
    program = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    with RunwireServer.open(tmp_path, keys="", env={"RUNWIRE_PLUGINS": ""}, args=("--demo",)) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program,
            env=environment({"RUNWIRE_URL": server.url}),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    assert err.decode() == ""
    first, answer, last, refused = out.decode().splitlines()
    assert re.fullmatch(r"success .*5.* \d+", first)
    assert "84" in answer
    assert answer.endswith(last.removeprefix("success "))
    assert refused == "422 unknown_agent"


def test_the_guide_names_every_error() -> None:
    page = PAGE.read_text(encoding="utf-8")
    errors = [
        name
        for name in client.__all__
        if isinstance(getattr(client, name), type) and issubclass(getattr(client, name), Exception)
    ]
    assert len(errors) >= 12
    assert [name for name in errors if f"`{name}`" not in page] == []
