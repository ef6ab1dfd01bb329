"""How following a run ends when no `end` comes: a run that waits for a person, a stream that is lost for good."""

import asyncio
import io
import json
from pathlib import Path

import pytest

from app.cli.following import follow
from app.cli.presses import counted_presses
from app.cli.screen import Screen
from app.cli.session import Session
from app.client.client import Client
from app.client.errors import StreamLost
from tests.cli.command import TIMEOUT_S, runwire
from tests.cli.proxy import cutting_proxy
from tests.cli.servers import canned
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

RUN_ID = "01a22e60-b268-7150-88a9-da3696082c82"


def stream_of(*events: tuple[str, dict[str, object]]) -> bytes:
    return b"retry: 2000\n\n" + b"".join(
        f"id: {at}\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode() for at, (name, data) in enumerate(events, 1)
    )


async def test_a_run_that_waits_for_a_person_ends_with_code_6(tmp_path: Path) -> None:
    asked: dict[str, object] = {"id": "i", "reason": "tool_approval", "tool": "pay", "message": "May I pay?\x1b[2J"}
    parked = stream_of(
        ("run", {"run_id": RUN_ID, "status": "running", "attempt": 1}),
        ("interrupt", {"interrupts": [asked]}),
        ("run", {"run_id": RUN_ID, "status": "interrupted", "attempt": 1}),
    )
    run = json.dumps({"id": RUN_ID, "status": "interrupted"}).encode()
    answers = {
        "POST /runs/stream": (200, parked),
        f"GET /runs/{RUN_ID}/stream": (200, parked),
        f"GET /runs/{RUN_ID}": (200, run),
    }
    async with canned(answers, "text/event-stream") as server:
        posted = await runwire("run", "x", "--url", server.url, cwd=tmp_path)
        followed = await runwire("runs", "stream", RUN_ID, "--url", server.url, "--json", cwd=tmp_path)
    assert (posted.code, followed.code) == (6, 6)
    assert "(the run waits for a person)\n  tool_approval pay May I pay?\n" in posted.out
    assert f"runwire runs show {RUN_ID} --url {server.url}\n" in posted.err
    assert [event["event"] for event in followed.events] == ["run", "interrupt", "run"]


async def test_a_stream_that_is_lost_says_how_to_take_it_up(demo_server: RunwireServer) -> None:
    screen = Screen(io.StringIO(), as_json=True)
    async with (
        asyncio.timeout(TIMEOUT_S),
        cutting_proxy(demo_server.url, [4000, *([1] * 20)]) as proxy,
        Client(proxy.url, max_attempts=1) as client,
    ):
        session = Session(client, screen, proxy.url, proxy.url, has_key=False)
        with counted_presses() as presses, pytest.raises(StreamLost) as lost:
            await follow(session, client, client.runs.stream("talking", "x"), presses)
    run_id, last = lost.value.run_id, lost.value.last_id
    assert last > 0
    assert f"follow it: runwire runs stream {run_id} --after {last} --url {proxy.url}\n" in str(lost.value)
    assert len(screen.out.getvalue().splitlines()) == last  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue, reportUnknownArgumentType]
