"""The walk-through with curl: its script runs from end to end, and the guide has the same lines."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.tools.signing import new_secret
from tests.examples.processes import EXAMPLES, ROOT, blocks, run, uvicorn
from tests.support.server import ACME, RunwireServer
from tests.support.streams import Event, check_whole, names, read_events

pytestmark = pytest.mark.anyio

SCRIPT = EXAMPLES / "curl" / "walkthrough.sh"
PAGE = ROOT / "docs" / "examples.md"


def sections(script: str) -> list[tuple[str, str]]:
    """Title and commands of each step."""
    parts = re.split(r'^step "(.*)"\n', script, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], (body.strip() for body in parts[1::2]), strict=True))


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The Python tool service, as the environment tells the script of it."""
    secret = new_secret()
    with uvicorn(EXAMPLES / "tool_service", {"TOOL_SECRET": secret}, tmp_path / "tool.log") as port:
        yield {"TOOL_URL": f"http://127.0.0.1:{port}/add", "TOOL_SECRET": secret}


def told(text: str) -> list[Event]:
    return read_events(f"{text.strip()}\n\n".encode())


async def walk(server: RunwireServer, tool: dict[str, str], **env: str) -> list[str]:
    """What each step printed."""
    out = await run("bash", str(SCRIPT), env={"RUNWIRE_URL": server.url, **tool, **env})
    return re.split(r"^== .*\n", out, flags=re.MULTILINE)[1:]


async def test_the_script_runs_from_end_to_end_and_again(demo: RunwireServer, tool: dict[str, str]) -> None:
    first = await walk(demo, tool)
    streamed, resumed, registered, answered, steps, repeated, cancelled, refused = first
    check_whole(told(streamed))
    assert names(told(streamed)).count("step") == 1
    before, after = resumed.split("retry: 2000")[1:]
    seen = told(f"retry: 2000{before}") + told(f"retry: 2000{after}")
    check_whole(seen)
    assert len(told(f"retry: 2000{before}")) == 3
    assert registered.split()[0] == "201"
    assert '"data":5' in registered
    assert '"output":{"output":"It is 42."}' in answered
    assert '"observation":42' in steps
    assert '"stage":"authorization"' in steps
    one, two, replayed = repeated.split("\n\n")[0].strip().lower().split("\n")
    assert one == two
    assert replayed.strip() == "idempotency-replayed: true"
    assert '"status":"cancelled"' in cancelled
    assert '"code":"unknown_agent"' in refused
    again = await walk(demo, tool)
    assert again[2].split()[0] == "200"
    assert again[5] != repeated


async def test_the_script_sends_a_key_where_there_is_one(tmp_path: Path, tool: dict[str, str]) -> None:
    env = {"RUNWIRE_PLUGINS": ""}
    with RunwireServer.open(tmp_path, keys=f"{ACME}:default", env=env, args=("--demo",)) as server:
        *_, refused = await walk(server, tool, RUNWIRE_API_KEY=ACME)
        assert '"code":"unknown_agent"' in refused
        with pytest.raises(AssertionError, match="unauthenticated"):  # it stops where something is refused
            await walk(server, tool)


async def test_the_script_says_what_is_missing() -> None:
    with pytest.raises(AssertionError, match="the secret that the tool service was started with"):
        await run("bash", str(SCRIPT), env={})


async def test_the_script_can_be_parsed() -> None:
    assert await run("bash", "-n", str(SCRIPT), env={}) == ""
    assert SCRIPT.stat().st_mode & 0o111 == 0o111


def test_the_guide_has_the_same_lines() -> None:
    page = PAGE.read_text(encoding="utf-8")
    steps = sections(SCRIPT.read_text(encoding="utf-8"))
    assert len(steps) == 8
    assert re.findall(r"^### (.*)$", page, re.MULTILINE)[: len(steps)] == [title for title, _ in steps]
    assert [block.strip() for block in blocks(PAGE)[1 : len(steps) + 1]] == [body for _, body in steps]
