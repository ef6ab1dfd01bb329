"""Streams over bad networks: every event once and in order, one run made, and no connection left open."""

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.client import Client, ConnectionFailed, Event, NotFound, StreamLost
from tests.client.conftest import Connect
from tests.client.network import DROP, SILENCE, answer, canned, event, problem, proxy_to, stream
from tests.support.bodies import calls, says, scripted
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

TIMEOUT_S = 60.0
"""How long a test waits for anything before it is a failure."""


def agent(*turns: dict[str, object], **more: object) -> dict[str, object]:
    return {"model": scripted(*turns), "tools": ["echo", "hang"], **more}


TALKING = agent(calls(("echo", {"text": "a b"})), says("It is “ä”, 日本\u2028 and that is all.", chunk_size=4))
SHORT = agent(says("é"))
HANGING = agent(calls(("hang", {})))


def check_whole(events: Sequence[Event]) -> None:
    assert [item.id for item in events] == list(range(1, len(events) + 1))
    assert [item.event for item in events].count("end") == 1
    assert events[-1].event == "end"
    assert events[-1].data["last_seq"] == events[-1].id


def pairs(events: Sequence[Event]) -> list[tuple[int, str, str]]:
    return [(item.id, item.event, item.raw) for item in events]


async def told(client: Client, run_id: str) -> list[tuple[int, str, str]]:
    return pairs([item async for item in client.runs.follow(run_id)])


async def test_a_run_cut_after_each_of_its_events_is_told_whole(server: RunwireServer, connect: Connect) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        proxy_to(server.url) as proxy,
        connect(proxy.url) as client,
        connect(server.url) as direct,
    ):
        proxy.cut_each_event = True
        posted = client.runs.stream(TALKING, "go")
        events = [item async for item in posted]
        check_whole(events)
        assert len(proxy.requests) == len(events) > 10
        assert proxy.requests[0].startswith(b"POST /runs/stream ")
        assert all(request.startswith(b"GET /runs/") for request in proxy.requests[1:])
        assert posted.run_id is not None
        assert pairs(events) == await told(direct, posted.run_id)
        assert posted.run is not None
        assert posted.run.text == "It is “ä”, 日本\u2028 and that is all."


async def test_a_stream_cut_at_every_byte_is_told_whole(server: RunwireServer, connect: Connect) -> None:
    async def told(client: Client) -> list[tuple[int, str, str]]:
        return pairs([item async for item in client.runs.follow(run.id, events=[])])

    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as direct:
        run = await direct.runs.wait(SHORT, "go")
        whole = await told(direct)
        async with proxy_to(server.url) as measuring, connect(measuring.url) as client:
            await told(client)
            size = measuring.passed
        body = size - sum(len(raw) + 30 for _, _, raw in whole)  # cuts in the head are alike: some of them will do
        every = [*range(1, body, 16), *range(body, size)]
        offsets = iter(every)

        async def worker() -> int:
            done = 0
            async with proxy_to(server.url) as proxy, connect(proxy.url) as client:
                for offset in offsets:
                    proxy.requests.clear()
                    proxy.cut_after, proxy.cut_once = offset, True
                    assert await told(client) == whole, offset
                    await client.close()
                    client = connect(proxy.url)
                    done += 1
                await client.close()
            return done

        assert sum(await asyncio.gather(*(worker() for _ in range(8)))) == len(every) > 500


@pytest.mark.parametrize("offset", [0, 1, 20, 300, 600])
async def test_a_post_whose_answer_is_lost_makes_one_run(server: RunwireServer, connect: Connect, offset: int) -> None:
    async with asyncio.timeout(TIMEOUT_S), proxy_to(server.url) as proxy, connect(proxy.url) as client:
        proxy.cut_after, proxy.cut_once = offset, True
        events = [item async for item in client.runs.stream(SHORT, "go", metadata={"lost": f"stream-{offset}"})]
        check_whole(events)
        assert len(proxy.requests) == 2
        found = await client.runs.list(metadata={"lost": f"stream-{offset}"})
        assert [run.id for run in found.data] == [events[0].data["run_id"]]


async def test_a_server_killed_and_started_again_while_followed(tmp_path: Path, connect: Connect) -> None:
    slow = agent(says("word " * 40, chunk_size=5, chunk_delay_ms=30))
    with RunwireServer.open(tmp_path, env={"RUNWIRE_LEASE_S": "2"}) as server:
        async with (
            asyncio.timeout(TIMEOUT_S),
            proxy_to(server.url) as proxy,
            connect(proxy.url, pause_s=0.1, max_attempts=300) as client,
        ):
            events: list[Event] = []
            async with client.runs.stream(slow, "go") as posted:
                async for item in posted:
                    events.append(item)
                    if item.id == 3:
                        server.kill()
                        await asyncio.to_thread(server.start)
                        proxy.target = server.url
            check_whole(events)
            assert posted.run is not None
            assert posted.run.ok
            assert posted.run.attempt >= 2
            assert len((await client.runs.list()).data) == 1
            assert pairs(events) == await told(client, events[0].data["run_id"])


async def test_a_consumer_that_is_cancelled_closes_its_connection(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), proxy_to(server.url) as proxy, connect(proxy.url) as client:
        begun = asyncio.Event()
        posted = client.runs.stream(HANGING, "go", on_disconnect="cancel")

        async def consume() -> None:
            async for item in posted:
                if item.event == "action":
                    begun.set()

        task = asyncio.create_task(consume())
        await begun.wait()
        assert proxy.open_connections == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await proxy.until_open(0)
        assert posted.run_id is not None
        assert (await client.runs.wait_for(posted.run_id)).status == "cancelled"


async def test_leaving_the_loop_closes_the_connection_with_and_without_a_block(
    server: RunwireServer, connect: Connect
) -> None:
    async with asyncio.timeout(TIMEOUT_S), proxy_to(server.url) as proxy, connect(proxy.url) as client:
        async for item in client.runs.stream(HANGING, "go"):
            assert item.id == 1
            break
        gc.collect()
        await proxy.until_open(0)
        async with client.runs.stream(HANGING, "go") as events:
            async for item in events:
                assert item.id == 1
                break
            async for item in events:  # goes on where it was, on the same connection
                assert item.id == 2
                break
            assert len(proxy.requests) == 2
        await proxy.until_open(0)
        for run in (await client.runs.list(status="running")).data:
            await client.runs.cancel(run.id, wait=True)


@pytest.mark.parametrize("cut_after", [None, 1500])
async def test_fifty_streams_at_once(server: RunwireServer, connect: Connect, cut_after: int | None) -> None:
    async def one(client: Client) -> str:
        events = [item async for item in client.runs.stream(TALKING, "go")]
        check_whole(events)
        return events[0].data["run_id"]

    async with asyncio.timeout(TIMEOUT_S), proxy_to(server.url) as proxy, connect(proxy.url) as client:
        proxy.cut_after = cut_after
        assert len(set(await asyncio.gather(*(one(client) for _ in range(50))))) == 50


async def test_a_selection_skips_events_and_survives_cuts(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), proxy_to(server.url) as proxy, connect(proxy.url) as client:
        proxy.cut_each_event = True
        events = [item async for item in client.runs.stream(TALKING, "go", events=["actions", "step"])]
        assert [item.event for item in events] == ["run", "action", "step", "finish", "end"]
        ids = [item.id for item in events]
        assert ids == sorted(set(ids))
        again = [item async for item in client.runs.follow(events[0].data["run_id"], after=1, events=[])]
        assert [item.event for item in again] == ["finish", "end"]


async def test_the_end_of_a_run_told_in_full_is_silent(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        posted = client.runs.stream(SHORT, "go")
        events = [item async for item in posted]
        assert posted.run_id is not None
        assert [item async for item in client.runs.follow(posted.run_id, after=events[-1].id)] == []
        assert [item async for item in posted] == []
        with pytest.raises(NotFound) as refused:
            await anext(client.runs.follow(posted.run_id, after=events[-1].id + 1))
        assert refused.value.code == "event_not_found"
        assert [item.id async for item in client.runs.follow(posted.run_id, tail=True)] == []


RUN = event(1, "run", run_id="run-1", status="running", attempt=1)
END = event(3, "end", run_id="run-1", status="success", stop_reason="finish", last_seq=3)


async def test_repeated_events_are_shown_once_and_gaps_are_asked_for_again(connect: Connect) -> None:
    gap = stream(RUN, END)
    repeat = stream(RUN, RUN, event(2, "usage"), whole=False)
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(gap, repeat, stream(event(2, "usage"), END)) as said,
        connect(said.url) as client,
    ):
        assert [item.id async for item in client.runs.stream("demo", "hi")] == [1, 2, 3]
        assert [said.header(number, "last-event-id") for number in range(3)] == ["", "1", "2"]


async def test_events_of_a_later_version_are_passed_on(connect: Connect) -> None:
    new = event(2, "thought", new={"field": [1]})
    last = event(3, "end", run_id="run-1", status="success", last_seq=3, more=True)
    async with asyncio.timeout(TIMEOUT_S), canned(stream(RUN, new, last)) as said, connect(said.url) as client:
        posted = client.runs.stream("demo", "hi")
        events = [item async for item in posted]
        assert [item.type for item in events] == ["run", "thought", "end"]
        assert events[1].data == {"new": {"field": [1]}}
        assert posted.ended


async def test_a_parked_run_ends_its_stream(connect: Connect) -> None:
    asks = event(2, "interrupt", interrupts=[{"id": "i-1", "reason": "tool_approval"}])
    parked = event(3, "run", run_id="run-1", status="interrupted", attempt=1)
    for last in (stream(RUN, asks, parked), stream(RUN, asks, parked, whole=False)):
        async with asyncio.timeout(TIMEOUT_S), canned(last, answer(204)) as said, connect(said.url) as client:
            posted = client.runs.stream("demo", "hi")
            assert [item.id async for item in posted] == [1, 2, 3]
            assert posted.run is not None
            assert posted.run.status == "interrupted"
            assert not posted.ended
            assert [(item.id, item.reason) for item in posted.run.interrupts] == [("i-1", "tool_approval")]


async def test_a_clean_close_before_the_end_is_a_cut(connect: Connect) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(stream(RUN), stream(event(2, "usage"), END)) as said,
        connect(said.url) as client,
    ):
        assert [item.id async for item in client.runs.stream("demo", "hi")] == [1, 2, 3]
        assert said.lines() == ["POST /runs/stream", "GET /runs/run-1/stream"]


async def test_a_stream_without_progress_is_given_up_and_says_where_it_was(connect: Connect) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(stream(RUN, whole=False), DROP) as said,
        connect(said.url, max_attempts=4) as client,
    ):
        with pytest.raises(StreamLost) as lost:
            _ = [item async for item in client.runs.stream("demo", "hi")]
        assert (lost.value.run_id, lost.value.last_id) == ("run-1", 1)
        assert len(said.requests) == 4  # the first brought an event, so it begins the count of four


async def test_following_a_server_that_is_down_fails_to_connect(connect: Connect) -> None:
    async with canned(DROP) as said:
        url = said.url
    async with asyncio.timeout(TIMEOUT_S), connect(url, max_attempts=2) as client:
        with pytest.raises(ConnectionFailed, match="cannot be reached"):
            await anext(client.runs.follow("run-1", after=3))


async def test_a_client_is_closed_right_after_its_loop_was_left(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), proxy_to(server.url) as proxy:
        async with connect(proxy.url) as client:
            async for item in client.runs.stream(TALKING, "go"):
                assert item.id == 1
                break
        await proxy.until_open(0)


async def test_progress_starts_the_count_anew(connect: Connect) -> None:
    steps = [stream(event(number, "usage"), whole=False) for number in range(2, 12)]
    last = event(12, "end", run_id="run-1", status="success", last_seq=12)
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(stream(RUN, whole=False), *steps, stream(last)) as said,
        connect(said.url, max_attempts=2) as client,
    ):
        assert [item.id async for item in client.runs.stream("demo", "hi")] == list(range(1, 13))


async def test_connections_that_lasted_are_no_failed_attempts(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.client.stream.HEALTHY_S", 0.0)
    quiet = [stream(whole=False)] * 5
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(stream(RUN, whole=False), *quiet, stream(event(2, "usage"), END)) as said,
        connect(said.url, max_attempts=2) as client,
    ):
        assert [item.id async for item in client.runs.stream("demo", "hi")] == [1, 2, 3]
        assert len(said.requests) == 7


async def test_a_post_is_repeated_under_its_key_until_the_run_is_known(connect: Connect) -> None:
    busy = problem(503, "not_ready", headers={"retry_after": "0"})
    answers = (DROP, busy, answer(502, b"<html>bad gateway</html>", content_type="text/html"), stream(RUN, END))
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(*answers, stream(event(2, "usage"), END)) as said,
        connect(said.url) as client,
    ):
        events = [item async for item in client.runs.stream("demo", "hi")]
        assert [item.id for item in events] == [1, 2, 3]
        assert said.lines() == ["POST /runs/stream"] * 4 + ["GET /runs/run-1/stream"]
        assert len(set(said.keys()[:4])) == 1
        assert len({request.partition(b"\r\n\r\n")[2] for request in said.requests[:4]}) == 1


async def test_the_run_is_known_from_its_first_event_where_a_proxy_takes_the_header_away(connect: Connect) -> None:
    first = stream(RUN, whole=False, run_id=None)
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(first, stream(event(2, "usage"), END)) as said,
        connect(said.url) as client,
    ):
        assert [item.id async for item in client.runs.stream("demo", "hi")] == [1, 2, 3]
        assert said.lines()[1] == "GET /runs/run-1/stream"


async def test_an_id_without_data_moves_the_cursor_of_a_tail(connect: Connect) -> None:
    first = stream(b"id: 41\n\n", whole=False)
    end = event(42, "end", run_id="run-1", status="success", last_seq=42)
    async with asyncio.timeout(TIMEOUT_S), canned(first, stream(end)) as said, connect(said.url) as client:
        assert [item.id async for item in client.runs.follow("run-1", tail=True)] == [42]
        assert said.lines() == ["GET /runs/run-1/stream?tail=true", "GET /runs/run-1/stream"]
        assert said.header(1, "last-event-id") == "41"


async def test_a_silent_server_is_not_waited_for(connect: Connect) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(SILENCE, stream(RUN, event(2, "usage"), END)) as said,
        connect(said.url, timeout_s=0.1, connect_timeout_s=0.1) as client,
    ):
        assert [item.id async for item in client.runs.stream("demo", "hi")] == [1, 2, 3]
        assert said.lines() == ["POST /runs/stream"] * 2


async def test_expired_events_and_deleted_runs_are_errors(connect: Connect) -> None:
    gone = problem(410, "events_expired")
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(gone, problem(404, "run_not_found")) as said,
        connect(said.url) as client,
    ):
        for code in ("events_expired", "run_not_found"):
            with pytest.raises(Exception, match=code):
                await anext(client.runs.follow("run-1"))
        assert len(said.requests) == 2


async def test_the_run_of_a_stream_fails_with_its_error(server: RunwireServer, connect: Connect) -> None:
    broken = agent({"content": "I begin", "error": {"code": "auth"}})
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        posted = client.runs.stream(broken, "go")
        check_whole([item async for item in posted])
        assert posted.run is not None
        assert (posted.run.status, posted.run.ok, posted.run.finished) == ("error", False, True)
        assert posted.run.error is not None
        assert posted.run.error["code"] == "model_auth"
