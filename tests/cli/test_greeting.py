"""What a demo server shows when it is up: one real run, short enough to be read."""

import asyncio
import json
import re
import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.command import TIMEOUT_S, environment
from tests.support.server import ROOT

pytestmark = pytest.mark.anyio

MOST_LINES = 25


async def test_a_demo_server_shows_one_run_in_a_few_lines(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app", "serve", "--demo", "--port", "0",
        cwd=tmp_path,
        env=environment({"PYTHONPATH": str(ROOT)}),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    shown: list[str] = []
    try:
        async with asyncio.timeout(TIMEOUT_S), httpx.AsyncClient(trust_env=False) as client:
            while not shown or "Ctrl-C" not in shown[-1]:
                line = await process.stdout.readline()
                assert line, shown
                shown.append(line.decode().rstrip("\n"))
            url = shown[0].removeprefix("Runwire is at ").split()[0]
            [run] = (await client.get(f"{url}/runs")).json()["data"]
            events = (await client.get(f"{url}/runs/{run['id']}/events", params={"limit": 100})).json()["data"]
    finally:
        process.terminate()
        await process.wait()
    assert len(shown) <= MOST_LINES
    assert max(map(len, shown)) < 160
    (posted,) = [line for line in shown if "curl -N" in line]
    match = re.fullmatch(r"  curl -N (\S+)/runs/stream --json '([^']*)'", posted)
    assert match is not None
    assert (match[1], json.loads(match[2])) == (url, {"agent": "demo", "input": run["input"]})
    names = [event["event"] for event in events if event["event"] != "output"]
    told = [line.split()[0] for line in shown if line.startswith("  ") and "curl" not in line]
    assert [name for name in told if name != "output"] == names
    text = run["output"]["output"]
    assert any(line.split(maxsplit=1) == ["output", text] for line in shown)
    assert shown[-2].split() == ["end", "success"]
