"""Text agents on threads: what they see of earlier runs, and that a conversation stays valid for every provider."""

import json
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from tests.e2e.text_runs import CASE_PROMPT, agent, ended, on, text_server
from tests.support import anthropic_messages
from tests.support.bodies import openai, shown
from tests.support.chat_completions import ChatCompletionsServer, RecordedRequest, calls
from tests.support.chat_completions import says as model_says
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

ACTION = "I look\nAction: search\nAction Input: foo"
FINISH = "I know\nFinal Answer: bar"
SAID = [("user", "q?"), ("assistant", ACTION), ("user", "search:foo"), ("assistant", FINISH)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with text_server(tmp_path_factory.mktemp("threads")) as running:
        yield running


def said(request: RecordedRequest) -> list[tuple[str, object]]:
    return [(message["role"], message["content"]) for message in shown(request)]


async def test_a_run_sees_the_runs_before_it_as_the_conversation(client: httpx.AsyncClient) -> None:
    texts = [ACTION, FINISH, "Final Answer: baz"]
    async with ChatCompletionsServer([model_says(text) for text in texts]) as model:
        first = await ended(client, on(model, "react", "search", prompt=CASE_PROMPT))
        body = on(model, "react", "search", text="and then?", prompt=CASE_PROMPT, instructions="Be brief.")
        second = await ended(client, {**body, "thread_id": first["thread_id"]})
        prompt = "TOOLS<search(x) - search> NAMES<search>\nQuestion: and then?\nThought:"
        assert said(model.requests[2]) == [("system", "Be brief."), *SAID, ("user", prompt)]
        assert all(message.keys() == {"role", "content"} for message in shown(model.requests[2]))
    assert second["output"] == {"output": "baz"}
    told = (await client.get(f"/runs/{second['id']}/messages")).json()["data"]
    assert [message["content"] for message in told][-2:] == [prompt, "Final Answer: baz"]
    assert len(told) == 7


async def test_a_template_may_hold_the_conversation(client: httpx.AsyncClient) -> None:
    template = f"So far:\n{{chat_history}}\n{CASE_PROMPT}"
    async with ChatCompletionsServer([model_says("Final Answer: {one}"), model_says("Final Answer: two")]) as model:
        body = on(model, "react", "search", text="first {x}", prompt=template)
        first = await ended(client, body)
        await ended(client, {**body, "input": "second", "thread_id": first["thread_id"]})
        ((_, empty),) = said(model.requests[0])
        ((_, prompt),) = said(model.requests[1])
    assert str(empty).startswith("So far:\n\nTOOLS<")
    assert str(prompt).startswith("So far:\nHuman: first {x}\nAI: Final Answer: {one}\nTOOLS<")


async def test_a_history_may_come_with_the_input(client: httpx.AsyncClient) -> None:
    history = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "indeed"}]
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    async with ChatCompletionsServer([model_says("Final Answer: x")]) as model:
        body = on(model, "react", "search", prompt=CASE_PROMPT)
        await ended(client, {**body, "input": {"input": "q?", "chat_history": history}})
        await ended(client, {**body, "input": {"messages": [*history, {"role": "user", "content": parts}]}})
        assert said(model.requests[0])[:2] == [("user", "before"), ("assistant", "indeed")]
        (text, image) = cast("list[dict[str, Any]]", said(model.requests[1])[2][1])
    assert "Question: look\n" in text["text"]
    assert image == parts[1]


def check_openai(request: RecordedRequest) -> None:
    """Every result follows its call, and nothing else carries a call's id."""
    open_calls: list[str] = []
    for message in shown(request):
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls
        assert "tool_call_id" not in message
        open_calls = [call["id"] for call in message.get("tool_calls", ())]
    assert not open_calls


def check_anthropic(request: RecordedRequest) -> None:
    """Roles alternate, every use of a tool is answered in the next message and its tool is named."""
    body = cast("dict[str, Any]", request.json)
    messages = body["messages"]
    assert [message["role"] for message in messages] == [("user", "assistant")[n % 2] for n in range(len(messages))]
    named = {tool["name"] for tool in body.get("tools", ())}
    uses: list[str] = []
    for message in messages:
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert results == uses
        used = [block for block in message["content"] if block["type"] == "tool_use"]
        uses = [block["id"] for block in used]
        assert {block["name"] for block in used} <= named
    assert not uses


async def test_a_thread_may_change_between_tool_calls_and_text(client: httpx.AsyncClient) -> None:
    replies = [
        calls(("call_1", "search", '{"x": "one"}')), model_says("first"),
        model_says(ACTION), model_says("hm"), model_says(FINISH),
        calls(("call_1", "search", '{"x": "two"}')), model_says("third"),
    ]  # fmt: skip
    async with ChatCompletionsServer(replies) as model:
        thread: dict[str, object] = {}
        for kind in ("tool_calling", "react", "tool_calling"):
            run = await ended(client, {**on(model, kind, "search"), **thread})
            assert run["status"] == "success", run
            thread = {"thread_id": run["thread_id"]}
        for request in model.requests:
            check_openai(request)
        assert len(model.requests) == 7
        assert "tools" not in model.requests[2].json
        ids = [call["id"] for message in shown(model.requests[6]) for call in message.get("tool_calls", ())]
    assert len(set(ids)) == 2


async def test_a_thread_of_anthropics_may_change_too(client: httpx.AsyncClient) -> None:
    use = anthropic_messages.tool_use
    replies = [
        anthropic_messages.answers(use("toolu_1", "search", {"x": "one"})), anthropic_messages.says("first"),
        anthropic_messages.says(ACTION), anthropic_messages.says("hm"), anthropic_messages.says(FINISH),
        anthropic_messages.answers(use("toolu_1", "search", {"x": "two"})), anthropic_messages.says("third"),
    ]  # fmt: skip
    async with anthropic_messages.messages_server(replies) as model:
        spec = {"provider": "anthropic", "model": "claude-test", "base_url": model.base_url}
        thread: dict[str, object] = {}
        for kind in ("tool_calling", "react", "tool_calling"):
            run = await ended(client, {"agent": agent(kind, spec, "search"), "input": "q?", **thread})
            assert run["status"] == "success", run
            thread = {"thread_id": run["thread_id"]}
        for request in model.requests:
            check_anthropic(request)
        assert len(model.requests) == 7


async def test_a_conversation_can_be_posted_back(client: httpx.AsyncClient) -> None:
    """What `/messages` gives of any agent is an input."""
    async with ChatCompletionsServer([model_says(ACTION), model_says(FINISH), model_says("so")]) as model:
        first = await ended(client, on(model, "react", "search"))
        plain = {"agent": agent("tool_calling", openai(model.base_url)), "input": "again"}
        second = await ended(client, {**plain, "thread_id": first["thread_id"]})
        for run in (first, second):
            messages = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
            answer = await client.post("/runs/wait", json={**plain, "input": {"messages": messages}})
            assert answer.status_code == 200, json.dumps(messages) + answer.text
