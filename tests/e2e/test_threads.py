"""Threads: a conversation goes on over runs, one run at a time."""

import asyncio

import httpx
import pytest

from tests.support.bodies import calls, openai, run_body, says, scripted, shown
from tests.support.chat_completions import ChatCompletionsServer, Reply
from tests.support.chat_completions import says as model_says
from tests.support.server import TIMEOUT_S

pytestmark = pytest.mark.anyio


async def test_a_thread_goes_on_with_what_was_said_before(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer([model_says("one"), model_says("two")]) as model:
        body = run_body(openai(model.base_url), text="first", agent={"instructions": "Be short."})
        first = (await client.post("/runs/wait", json=body)).json()
        body = run_body(openai(model.base_url), text="second", thread_id=first["thread_id"])
        second = (await client.post("/runs/wait", json=body)).json()
    assert second["thread_id"] == first["thread_id"]
    assert second["output"] == {"output": "two"}
    seen = [shown(request) for request in model.requests]
    assert [(item["role"], item["content"]) for item in seen[0]] == [("system", "Be short."), ("user", "first")]
    assert [(item["role"], item["content"]) for item in seen[1]] == [
        ("user", "first"),
        ("assistant", "one"),
        ("user", "second"),
    ]
    told = (await client.get(f"/runs/{second['id']}/messages")).json()["data"]
    assert [item["content"] for item in told] == ["first", "one", "second", "two"]
    assert (await client.delete(f"/runs/{first['id']}")).status_code == 204
    again = run_body(scripted(says("three")), text="third", thread_id=first["thread_id"])
    third = (await client.post("/runs/wait", json=again)).json()
    told = (await client.get(f"/runs/{third['id']}/messages")).json()["data"]
    assert [item["content"] for item in told] == ["first", "one", "second", "two", "third", "three"]


async def test_an_unknown_thread_is_404(client: httpx.AsyncClient) -> None:
    body = run_body(scripted(says("x")), thread_id="0190a0a0-0000-7000-8000-000000000000")
    answer = await client.post("/runs", json=body)
    assert (answer.status_code, answer.json()["code"]) == (404, "thread_not_found")


async def test_a_busy_thread_is_409_until_its_run_is_over(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer([Reply(silent=True)]) as model:
        run = (await client.post("/runs", json=run_body(openai(model.base_url)))).json()
        next_body = run_body(scripted(says("next")), thread_id=run["thread_id"])
        busy = await client.post("/runs", json=next_body)
        assert (busy.status_code, busy.json()["code"]) == (409, "thread_busy")
        await client.post(f"/runs/{run['id']}/cancel", params={"wait": "true"})
        after = await client.post("/runs/wait", json=next_body)
    assert after.json()["output"] == {"output": "next"}


async def test_of_two_posts_to_one_thread_exactly_one_wins(client: httpx.AsyncClient) -> None:
    for _ in range(5):
        first = (await client.post("/runs/wait", json=run_body(scripted(says("x"))))).json()
        body = run_body(scripted(calls(("hang", {})), says("no")), "hang", thread_id=first["thread_id"])
        answers = await asyncio.gather(*(client.post("/runs", json=body) for _ in range(4)))
        assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
        won = next(answer.json() for answer in answers if answer.status_code == 201)
        stopped = await client.post(f"/runs/{won['id']}/cancel", params={"wait": "true"})
        assert stopped.json()["status"] == "cancelled"


async def test_a_cancelled_run_leaves_a_thread_that_a_model_accepts(client: httpx.AsyncClient) -> None:
    hanging = run_body(scripted(calls(("hang", {}), ("echo", {"text": "x"})), says("no")), "hang", "echo")
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer([model_says("ok")]) as model:
        run = (await client.post("/runs", json=hanging)).json()
        await client.post(f"/runs/{run['id']}/cancel", params={"wait": "true"})
        body = run_body(openai(model.base_url), text="and now?", thread_id=run["thread_id"])
        assert (await client.post("/runs/wait", json=body)).json()["status"] == "success"
    messages = shown(model.requests[0])
    asked = [call["id"] for item in messages for call in item.get("tool_calls", ())]
    assert [item["tool_call_id"] for item in messages if item["role"] == "tool"] == asked
    assert messages[-1]["content"] == "and now?"
