"""`runwire threads`."""

import json
from pathlib import Path

import httpx
import pytest

from tests.cli.command import Result, runwire
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio


async def cli(server: RunwireServer, folder: Path, *args: str) -> Result:
    return await runwire("threads", *args, cwd=folder, env={"RUNWIRE_URL": server.url})


async def test_a_thread_is_listed_shown_read_forked_and_deleted(demo_server: RunwireServer, tmp_path: Path) -> None:
    async with httpx.AsyncClient(base_url=demo_server.url, trust_env=False, timeout=30) as http:
        thread = (await http.post("/threads", json={"metadata": {"of": "cli"}})).json()
        body = {"agent": "demo", "input": "What is 2+3?", "thread_id": thread["id"]}
        assert (await http.post("/runs/wait", json=body)).json()["status"] == "success"
    listed = await cli(demo_server, tmp_path, "ls", "--metadata", "of=cli")
    assert listed.code == 0
    assert thread["id"] in listed.out
    assert "of=cli" in listed.out
    shown = await cli(demo_server, tmp_path, "show", thread["id"], "--json")
    assert json.loads(shown.out)["id"] == thread["id"]
    state = await cli(demo_server, tmp_path, "state", thread["id"])
    assert "user: What is 2+3?" in state.out
    history = await cli(demo_server, tmp_path, "history", thread["id"], "--json")
    points = history.events
    assert points[-1]["source"] == "input"
    first = str(points[-1]["checkpoint_id"])
    table = await cli(demo_server, tmp_path, "history", thread["id"])
    assert first in table.out
    forked = await cli(demo_server, tmp_path, "fork", thread["id"], "--checkpoint", first, "--json")
    fork = json.loads(forked.out)["id"]
    early = await cli(demo_server, tmp_path, "state", fork, "--json")
    assert len(json.loads(early.out)["values"]["messages"]) == 1
    gone = await cli(demo_server, tmp_path, "rm", thread["id"], fork)
    assert (gone.code, gone.out) == (0, f"deleted {thread['id']}\ndeleted {fork}\n")
    missing = await cli(demo_server, tmp_path, "show", thread["id"])
    assert missing.code == 5
