"""The main job: register a tool, run an agent on a model, watch it live, read it again."""

import asyncio
from itertools import pairwise
from typing import cast

import httpx
import pytest

from tests.support.bodies import openai, run_body, shown, tool_spec
from tests.support.chat_completions import ChatCompletionsServer, Reply, answer_chunks, calls, says
from tests.support.chat_completions import events as wire
from tests.support.server import TIMEOUT_S
from tests.support.streams import check_whole, names, read_events, stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

TRICKY = "one\rtwo\nthree\r\n\nid: 9\ndata: no\u2028four\u0085five\ttab"
"""Text that would end an event early if it were not escaped."""


async def test_a_registered_tool_is_called_and_the_stream_tells_it_in_order(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    spec = tool_spec("add_main", tools.url("/add"), effect="pure", parameters={"properties": {"a": {"type": "number"}}})
    made = await client.post("/tools", json=spec)
    assert made.status_code == 201, made.text
    two = (("call_a", "add_main", '{"a": 2, "b": 3}'), ("call_b", "add_main", '{"a": 20, "b": 30}'))
    async with (
        asyncio.timeout(TIMEOUT_S),
        ChatCompletionsServer([calls(*two), says("It is 5 and 50.")]) as model,
        stream(client, "POST", "/runs/stream", json=run_body(openai(model.base_url), "add_main")) as reading,
    ):
        events = await reading.rest()
        headers = reading.response.headers

    check_whole(events)
    told = [name for name in names(events) if name != "output"]
    assert told == ["run", "usage", "action", "action", "step", "step", "usage", "finish", "end"]
    assert reading.preamble[0].splitlines()[0] == b"retry: 2000"
    assert reading.preamble[0].splitlines()[1].startswith(b":")
    run_id = str(events[0].data["run_id"])
    assert headers["location"] == headers["content-location"] == f"/runs/{run_id}"
    assert headers["cache-control"] == "no-store, no-transform"
    assert headers["x-accel-buffering"] == "no"
    first, second = (item.data for item in events if item.event == "action")
    assert (first["step"], second["step"]) == (1, 2)
    assert (first["provider_call_id"], second["provider_call_id"]) == ("call_a", "call_b")
    finish = next(item.data for item in events if item.event == "finish")
    assert finish["return_values"] == {"output": "It is 5 and 50."}
    deltas = [cast("dict[str, object]", item.data["delta"]) for item in events if item.event == "output"]
    text = "".join(str(delta["text"]) for delta in deltas if delta["type"] == "text")
    assert text == "It is 5 and 50."
    sent = shown(model.requests[1])
    listed = (await client.get(f"/runs/{run_id}/messages")).json()["data"]
    shapes = [(item["role"], item.get("tool_call_id")) for item in sent]
    assert [(item["role"], item.get("tool_call_id")) for item in listed[:-1]] == shapes
    assert listed[-1] == {"role": "assistant", "content": "It is 5 and 50."}


async def test_a_stream_resumes_after_every_single_event_with_the_same_bytes(client: httpx.AsyncClient) -> None:
    turns = [{"tool_calls": [{"id": "c", "name": "echo", "args": {"text": TRICKY}}]}, {"content": TRICKY}]
    body = run_body({"provider": "scripted", "script": turns}, "echo")
    async with asyncio.timeout(TIMEOUT_S):
        async with stream(client, "POST", "/runs", json=body, headers={"Accept": "text/event-stream"}) as reading:
            events = await reading.rest()
        check_whole(events)
        run_id = events[0].data["run_id"]
        path = f"/runs/{run_id}/stream"
        for cut in range(len(events)):
            rest = b"".join(item.raw for item in events[cut:])
            by_header = await client.get(path, headers={"Last-Event-ID": str(cut)})
            by_query = await client.get(path, params={"after": cut}, headers={"Last-Event-ID": "1"})
            assert by_header.content.endswith(rest)
            assert read_events(by_header.content) == events[cut:]
            assert by_query.content == by_header.content
        past = await client.get(path, headers={"Last-Event-ID": str(len(events))})
        assert (past.status_code, past.content) == (204, b"")
        assert (await client.get(path, params={"tail": "true"})).status_code == 204


async def test_text_with_every_line_end_stays_one_event(client: httpx.AsyncClient) -> None:
    body = run_body({"provider": "scripted", "script": [{"content": TRICKY, "chunk_size": 1000}]})
    answer = await client.post("/runs/stream", json=body)
    assert b"\r" not in answer.content
    output = next(item for item in read_events(answer.content) if item.event == "output")
    assert output.data["delta"] == {"type": "text", "text": TRICKY}


async def test_a_selection_skips_ids_and_never_the_facts_of_life(client: httpx.AsyncClient) -> None:
    turns = [{"tool_calls": [{"id": "c", "name": "echo", "args": {"text": "x"}}]}, {"content": "done"}]
    body = run_body({"provider": "scripted", "script": turns}, "echo")
    whole = read_events((await client.post("/runs/stream", json=body)).content)
    path = f"/runs/{whole[0].data['run_id']}/stream"
    chosen = read_events((await client.get(path, params={"stream": "actions,steps"})).content)
    assert names(chosen) == ["run", "action", "step", "finish", "end"]
    assert all(item in whole for item in chosen)
    assert any(later.id > earlier.id + 1 for earlier, later in pairwise(chosen))
    repeated = read_events((await client.get(path, params=[("stream", "usage"), ("stream", "step")])).content)
    assert names(repeated) == ["run", "usage", "step", "usage", "finish", "end"]
    in_body = read_events((await client.post("/runs/stream", json={**body, "stream": ["step"]})).content)
    assert names(in_body) == ["run", "step", "finish", "end"]
    unknown = await client.get(path, params={"stream": "tokens"})
    assert unknown.status_code == 422


@pytest.mark.parametrize(("cursor", "status", "code"), [("abc", 400, "invalid_cursor"), ("-1", 400, "invalid_cursor"),
    ("1.0", 400, "invalid_cursor"), ("9" * 40, 400, "invalid_cursor"), ("1000000000", 404, "event_not_found")])  # fmt: skip
async def test_a_cursor_that_cannot_be_is_refused(
    client: httpx.AsyncClient, cursor: str, status: int, code: str
) -> None:
    body = run_body({"provider": "scripted", "script": [{"content": "x"}]})
    run = (await client.post("/runs/wait", json=body)).json()
    for options, pointer in (
        ({"headers": {"Last-Event-ID": cursor}}, "/header/Last-Event-ID"),
        ({"params": {"after": cursor}}, "/query/after"),
    ):
        answer = await client.get(f"/runs/{run['id']}/stream", **options)  # pyright: ignore[reportArgumentType]
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert status == 404 or answer.json()["errors"][0]["pointer"] == pointer


async def test_tail_shows_only_what_is_new(client: httpx.AsyncClient) -> None:
    release = asyncio.Event()
    async with asyncio.timeout(TIMEOUT_S):
        body = wire(answer_chunks("hello world"))
        paused = Reply(body=body, pause_after=len(body) // 2, resume=release)
        async with (
            ChatCompletionsServer([paused]) as model,
            stream(client, "POST", "/runs/stream", json=run_body(openai(model.base_url))) as first,
        ):
            begun = await first.until("output")
            async with stream(
                client, "GET", f"/runs/{first.events[0].data['run_id']}/stream", params={"tail": "true"}
            ) as tail:
                release.set()
                rest = await tail.rest()
            whole = await first.rest()
    assert rest[0].id > begun.id
    assert rest == whole[rest[0].id - 1 :]


async def test_events_come_as_pages_of_json_too(client: httpx.AsyncClient) -> None:
    body = run_body({"provider": "scripted", "script": [{"content": "a long answer in many pieces", "chunk_size": 2}]})
    whole = read_events((await client.post("/runs/stream", json=body)).content)
    path = f"/runs/{whole[0].data['run_id']}/events"
    found: list[dict[str, object]] = []
    cursor: str | None = None
    while True:
        page = (await client.get(path, params={"limit": 3, **({"after": cursor} if cursor else {})})).json()
        assert len(page["data"]) <= 3
        found += page["data"]
        cursor = page["next_cursor"]
        assert page["has_more"] == (cursor is not None)
        if cursor is None:
            break
    assert found == [{"id": item.id, "event": item.event, "data": item.data} for item in whole]
