"""The guide to the client: its program runs as it stands, and it names what there is."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from app import client
from tests.cli.command import environment
from tests.support.bodies import calls, says, scripted, tool_spec
from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer

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


async def test_the_guides_loop_answers_what_a_run_asks(tmp_path: Path) -> None:
    programs: list[str] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (loop,) = [program for program in programs if "approve()" in program]
    body = "".join(f"        {line}\n" for line in loop.splitlines())
    program = (
        "import asyncio\nfrom runwire import Client\n\n\nasync def main():\n    async with Client() as client:\n"
        f"{body}        print(run.status, [step.status for step in (await client.runs.steps(run.id)).data])\n"
        "\n\nasyncio.run(main())\n"
    )
    with ToolServer.start(tmp_path) as tools, RunwireServer.open(tmp_path, keys="") as server:
        refund = tool_spec("refund", tools.url("/echo"), requires_approval=True)
        script = scripted(calls(("refund", {"amount": 50}), ("refund", {"amount": 500})), says("done"))
        async with server.client(None) as made:
            (
                await made.post("/agents", json={"name": "support", "model": script, "tools": [refund]})
            ).raise_for_status()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program,
            env=environment({"RUNWIRE_URL": server.url}),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    assert (err.decode(), out.decode()) == ("", "success ['success', 'denied']\n")
