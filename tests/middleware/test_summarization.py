"""The middleware `summarization`: what the model is shown of a long conversation, and what stays stored."""

from typing import Any

import httpx
import pytest

from tests.agent_loop.support import Call, seen
from tests.middleware.support import Model, played
from tests.support.bodies import openai, run_body, scripted
from tests.support.chat_completions import fails

pytestmark = pytest.mark.anyio

SUMMARY = "Here is a summary of the conversation to date:\n\n"


def summarizes(model: Model, trigger: dict[str, int], keep: dict[str, int], **more: Any) -> dict[str, object]:
    config = {"model": openai(model.base_url), "trigger": trigger, "keep": keep, **more}
    return {"name": "summarization", "config": config}


async def thread_of(client: httpx.AsyncClient) -> str:
    return (await client.post("/threads", json={})).json()["id"]


async def test_a_long_conversation_is_shown_as_its_summary_and_its_end(client: httpx.AsyncClient) -> None:
    thread = await thread_of(client)
    async with Model("S1", "S2") as writer, Model("a1", "a2", "a3", "a4") as model:
        entry = summarizes(writer, {"messages": 4}, {"messages": 1})
        for text in ("q1", "q2", "q3", "q4"):
            run = await played(client, model, [entry], text=text, thread_id=thread)
        asked = [seen(request)[0][1] for request in writer.requests]
        shown = [seen(request) for request in model.requests]
        said = await run.said()
    assert shown[1] == [("user", "q1"), ("assistant", "a1"), ("user", "q2")]
    assert shown[2] == [("user", f"{SUMMARY}S1"), ("user", "q3")]
    assert shown[3] == [("user", f"{SUMMARY}S2"), ("user", "q4")]
    assert "Human: q1\nAI: a1\nHuman: q2\nAI: a2" in str(asked[0])
    assert "Summary so far: S1\nHuman: q3\nAI: a3" in str(asked[1])
    stored = (await client.get(f"/threads/{thread}/state")).json()["values"]
    assert [message["content"] for message in stored["messages"]] == ["q1", "a1", "q2", "a2", "q3", "a3", "q4", "a4"]
    assert set(stored) == {"messages"}
    assert said == [("user", f"{SUMMARY}S2"), ("user", "q4"), ("assistant", "a4")]
    assert run.run["usage"]["model_calls"] == 2


@pytest.mark.parametrize("keep", [1, 2, 3])
async def test_a_call_and_its_results_stay_together(client: httpx.AsyncClient, keep: int) -> None:
    made: list[Call] = [("c1", "echo", {"x": "1"}), ("c2", "echo", {"x": "2"})]
    async with Model("S1", "S2") as writer, Model(made, "fin") as model:
        await played(client, model, [summarizes(writer, {"messages": 4}, {"messages": keep})])
        last = seen(model.requests[1])
    assert last[0] == ("user", f"{SUMMARY}S1")
    assert [item[0] for item in last[1:]] == ["assistant", "tool", "tool"]
    assert [item[2] for item in last[2:]] == ["c1", "c2"]


async def test_tokens_can_say_when_and_how_much(client: httpx.AsyncClient) -> None:
    thread = await thread_of(client)
    async with Model("S1") as writer, Model("a1", "a2") as model:
        entry = summarizes(writer, {"tokens": 100}, {"tokens": 20})
        await played(client, model, [entry], text="word " * 40, thread_id=thread)
        assert writer.requests == []
        await played(client, model, [entry], text="word " * 60, thread_id=thread)
        assert seen(model.requests[1]) == [("user", f"{SUMMARY}S1"), ("user", "word " * 60)]


async def test_a_summary_that_fails_is_left_out_and_the_run_goes_on(client: httpx.AsyncClient) -> None:
    async with Model(fails(400, "down")) as writer, Model([("c1", "echo", {"x": "1"})], "fin") as model:
        run = await played(client, model, [summarizes(writer, {"messages": 3}, {"messages": 1})])
        assert seen(model.requests[1])[0] == ("user", "hi")
    assert (run.answer, len(writer.requests)) == ("fin", 1)


async def test_a_conversation_that_was_overwritten_is_not_shown_an_old_summary(client: httpx.AsyncClient) -> None:
    thread = await thread_of(client)
    async with Model("S1") as writer, Model("a1", "a2", "a3") as model:
        entry = summarizes(writer, {"messages": 3}, {"messages": 1})
        for text in ("q1", "q2"):
            await played(client, model, [entry], text=text, thread_id=thread)
        assert seen(model.requests[1])[0] == ("user", f"{SUMMARY}S1")
        changed = {"values": {"messages": [{"role": "user", "content": "new"}]}, "overwrite": ["messages"]}
        answer = await client.post(f"/threads/{thread}/state", json=changed)
        assert answer.status_code == 200, answer.text
        await played(client, model, [entry], text="q3", thread_id=thread)
        assert seen(model.requests[2]) == [("user", "new"), ("user", "q3")]


@pytest.mark.parametrize(
    ("config", "pointer"),
    [
        ({}, "/trigger"),
        ({"trigger": {}}, "/trigger"),
        ({"trigger": {"messages": 1, "tokens": 1}}, "/trigger"),
        ({"trigger": {"messages": 0}}, "/trigger/messages"),
        ({"trigger": {"messages": 9}, "summary_prompt": "Be short."}, "/summary_prompt"),
        ({"trigger": {"messages": 9}, "model": "nonsense"}, "/model"),
    ],
)
async def test_a_config_that_cannot_be_used_is_refused_at_its_place(
    client: httpx.AsyncClient, config: dict[str, Any], pointer: str
) -> None:
    entry = {"name": "summarization", "config": config}
    refused = await client.post("/runs", json=run_body(scripted({"content": "x"}), agent={"middleware": [entry]}))
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"].startswith(f"/agent/middleware/0/config{pointer}")
