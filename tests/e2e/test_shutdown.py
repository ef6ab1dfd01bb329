"""Stopping on purpose: streams break off resumably, runs go on after the next start."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.bodies import calls, openai, run_body, says, scripted
from tests.support.chat_completions import ChatCompletionsServer, RecordedRequest, Reply, answer_chunks, events
from tests.support.chat_completions import says as model_says
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import check_whole, read_events, stream

pytestmark = pytest.mark.anyio

_BODY = events(answer_chunks("an answer that is broken off"))


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    with RunwireServer.open(tmp_path) as running:
        yield running


class SlowThenQuick:
    """Replies of a model that stops in the middle of its answer, until it is told to be quick."""

    quick = False

    def __call__(self, _: RecordedRequest) -> Reply:
        return model_says("whole") if self.quick else Reply(body=_BODY, pause_after=len(_BODY) // 2)


async def test_sigterm_breaks_streams_off_and_their_runs_go_on_after_the_restart(own: RunwireServer) -> None:
    replies = SlowThenQuick()
    async with asyncio.timeout(2 * TIMEOUT_S), ChatCompletionsServer(replies) as model:
        body = run_body(openai(model.base_url))
        async with own.client() as client, AsyncExitStack() as stack:
            opened = [stream(client, "POST", "/runs/stream", json=body) for _ in range(10)]
            streams = [await stack.enter_async_context(item) for item in opened]
            for reading in streams:
                await reading.until("output")
            waiting = asyncio.create_task(client.get(f"/runs/{streams[0].events[0].data['run_id']}/wait"))
            own.signal(signal.SIGTERM)
            first = await streams[0].until_broken()
            ready = await client.get("/readyz")
            refused = await client.post("/runs", json=body)
            heard = [first, *[await reading.until_broken() for reading in streams[1:]]]
            unsettled = await waiting
        assert await asyncio.to_thread(own.wait) == 0
        assert (ready.status_code, ready.json()["code"]) == (503, "not_ready")
        assert (refused.status_code, refused.json()["code"]) == (503, "shutting_down")
        assert unsettled.status_code in (202, 503)
        assert "Traceback" not in own.log()
        assert all(seen[-1].event != "end" for seen in heard)
        replies.quick = True
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            for seen in heard:
                path = f"/runs/{seen[0].data['run_id']}/stream"
                rest = await client.get(path, headers={"Last-Event-ID": str(seen[-1].id)})
                told = [*seen, *read_events(rest.content)]
                check_whole(told)
                assert [item.data["attempt"] for item in told if item.event == "run"] == [1, 2]
                assert told[-1].data["status"] == "success"
                assert (await client.get(path)).content.endswith(b"".join(item.raw for item in told))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_stops_with_tools_that_do_not_listen(own: RunwireServer, number: signal.Signals) -> None:
    turn = calls(("hang", {}), ("block", {"seconds": 60}))
    body = run_body(scripted(turn, says("no")), "hang", "block")
    async with asyncio.timeout(TIMEOUT_S), own.client() as client:
        async with stream(client, "POST", "/runs/stream", json=body) as reading:
            await reading.until("action")
            while (
                len((await client.get(f"/runs/{reading.events[0].data['run_id']}/steps?status=running")).json()["data"])
                < 2
            ):
                pass
            own.signal(number)
            await reading.until_broken()
        assert await asyncio.to_thread(own.wait) == 0


async def test_an_idle_server_stops_at_once_with_connections_open(own: RunwireServer) -> None:
    async with asyncio.timeout(TIMEOUT_S), own.client() as client:
        assert (await client.get("/readyz")).status_code == 200
        assert await asyncio.to_thread(own.kill, signal.SIGTERM) == 0
