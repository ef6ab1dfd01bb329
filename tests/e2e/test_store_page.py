"""The guide to the store: its commands and its tools do what it says, on a real server."""

import asyncio
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.examples.processes import blocks
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).resolve().parents[2] / "docs" / "store.md"
TIMEOUT_S = 60.0


async def output_of(command: str) -> bytes:
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(TIMEOUT_S):
        out, _ = await process.communicate()
    assert process.returncode == 0, command
    return out


async def test_the_commands_of_the_guide_do_what_it_says(tmp_path: Path) -> None:
    lines = [line for block in blocks(PAGE) for line in block.splitlines() if line.startswith("curl")]
    with RunwireServer.open(tmp_path, keys="") as server:
        answers = [await output_of(f"{line.replace('localhost:8080', server.url)} -fsS") for line in lines]
    assert answers[-1] == b""
    made, got, found, namespaces = (orjson.loads(answer) for answer in answers[:-1])
    shape = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    expected = orjson.loads(shape)
    assert made == got == {**expected, "created_at": made["created_at"], "updated_at": made["updated_at"]}
    assert found["data"] == [made]
    assert namespaces["data"] == [{"namespace": ["users", "c-7"]}]


async def test_the_tools_of_the_guide_remember_across_threads(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "memory_tools.py").write_text(program, encoding="utf-8")

    def run(tool: str, customer: str, **arguments: object) -> dict[str, object]:
        script = scripted(calls((tool, arguments)), says("done"))
        return run_body(script, tool, context={"customer": customer})

    with RunwireServer.open(tmp_path, keys="", env={"RUNWIRE_PLUGINS": "memory_tools"}) as server:
        async with server.client(None) as client:

            async def observed(body: dict[str, object]) -> Any:
                made = (await client.post("/runs/wait", json=body)).json()
                return (await client.get(f"/runs/{made['id']}/steps/1")).json()["observation"]

            assert await observed(run("remember", "c-7", fact="likes tea")) == "remembered"
            assert await observed(run("recall", "c-7")) == ["likes tea"]
            assert await observed(run("recall", "c-8")) == []
