"""Runs on an Anthropic model, end to end: a real Runwire server, its database, its restart."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.anthropic_messages import (
    Block,
    answers,
    events,
    fails,
    messages_server,
    redacted,
    says,
    text,
    thinking,
    tool_use,
)
from tests.support.anthropic_messages import answer_events as told_events
from tests.support.bodies import openai, run_body, shown
from tests.support.chat_completions import ChatCompletionsServer, RecordedRequest, Reply
from tests.support.chat_completions import says as openai_says
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import Event, check_whole, read_events, stream

pytestmark = pytest.mark.anyio

KEY = "sk-ant-api03-very-secret-0123456789"
OPERATOR_KEY = "sk-ant-api03-operator-0123456789"
FIRST = (
    thinking("I add.", "sig-1"),
    redacted(),
    text("Adding."),
    tool_use("toolu_1", "calculator", {"expression": "2+3"}),
)
SECOND = (thinking("And again.", "sig-2"), tool_use("toolu_2", "calculator", {"expression": "5*5"}))
LAST = (thinking("Done.", "sig-3"), text("It is 25."))


@pytest.fixture
async def demo(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    """`runwire serve --demo`, without keys: loopback is open to tenants' models because of the demo alone."""
    with RunwireServer.open(tmp_path, keys="", env={"RUNWIRE_EGRESS_ALLOW": ""}, args=("--demo",)) as running:
        yield running


def claude(base_url: str, **more: object) -> dict[str, object]:
    return {"provider": "anthropic", "model": "claude-test", "base_url": base_url, "api_key": KEY, **more}


async def ran(client: httpx.AsyncClient, body: dict[str, object]) -> tuple[list[Event], dict[str, Any]]:
    """Post a run and follow it to its end: its events, and what is read of it afterwards."""
    answer = await client.post("/runs/stream", json=body)
    assert answer.status_code == 200, answer.text
    found = read_events(answer.content)
    check_whole(found)
    return found, (await client.get(f"/runs/{found[0].data['run_id']}")).json()


def assistant_turns(request: RecordedRequest) -> list[list[Block]]:
    return [turn["content"] for turn in shown(request) if turn["role"] == "assistant"]


async def test_thinking_goes_back_unchanged_in_later_rounds_and_after_a_restart(demo: RunwireServer) -> None:
    replies = [answers(*FIRST), answers(*SECOND), answers(*LAST), says("You are welcome.")]
    async with asyncio.timeout(TIMEOUT_S * 2), messages_server(replies) as model:
        async with demo.client(None) as client:
            found, run = await ran(client, run_body(claude(model.base_url), "calculator", text="2+3, squared?"))
            messages = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
        assert run["output"] == {"output": "It is 25."}
        demo.kill()
        await asyncio.to_thread(demo.start)
        async with demo.client(None) as client:
            body = run_body(claude(model.base_url), "calculator", text="thanks", thread_id=run["thread_id"])
            _, later = await ran(client, body)
    assert later["output"] == {"output": "You are welcome."}
    rounds = [list(FIRST), list(SECOND), list(LAST)]
    assert [assistant_turns(request) for request in model.requests] == [rounds[:count] for count in range(4)]
    assert shown(model.requests[3]) == [
        {"role": "user", "content": [text("2+3, squared?")]},
        {"role": "assistant", "content": list(FIRST)},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "5"}]},
        {"role": "assistant", "content": list(SECOND)},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_2", "content": "25"}]},
        {"role": "assistant", "content": list(LAST)},
        {"role": "user", "content": [text("thanks")]},
    ]
    deltas = [item.data["delta"] for item in found if item.event == "output"]
    assert {"type": "reasoning", "text": "I add"} in deltas
    assert all("provider_blocks" not in message for message in messages)


async def test_a_kill_in_the_second_round_asks_again_with_the_same_thinking(demo: RunwireServer) -> None:
    body = events(told_events(*SECOND))
    replies = [answers(*FIRST), Reply(body=body, pause_after=body.index(b"input_json_delta")), answers(*LAST)]
    async with asyncio.timeout(TIMEOUT_S * 2), messages_server(replies) as model:
        async with (
            demo.client(None) as client,
            stream(client, "POST", "/runs/stream", json=run_body(claude(model.base_url), "calculator")) as reading,
        ):
            await model.until(lambda: len(model.requests) == 2)
            await reading.until("usage")
            demo.kill()
            run_id = (await reading.until_broken())[0].data["run_id"]
        await asyncio.to_thread(demo.start)
        async with demo.client(None) as client:
            run = (await client.get(f"/runs/{run_id}/wait", params={"timeout_s": 15})).json()
    assert (run["status"], run["output"]) == ("success", {"output": "It is 25."})
    assert model.requests[1].body == model.requests[2].body
    assert assistant_turns(model.requests[2]) == [list(FIRST)]


async def test_ids_that_repeat_go_back_told_apart_with_their_results(demo: RunwireServer) -> None:
    call = tool_use("same", "calculator", {"expression": "1+1"})
    replies = [answers(thinking("a", "s1"), call), answers(thinking("b", "s2"), call), says("two")]
    async with asyncio.timeout(TIMEOUT_S), messages_server(replies) as model, demo.client(None) as client:
        await ran(client, run_body(claude(model.base_url), "calculator"))
    _, first, results, second, more = [turn["content"] for turn in shown(model.requests[2])]
    assert first == [thinking("a", "s1"), call]
    assert second[0] == thinking("b", "s2")
    assert second[1] == {**call, "id": second[1]["id"]}
    assert second[1]["id"] != "same"
    assert [block["tool_use_id"] for block in (*results, *more)] == ["same", second[1]["id"]]


async def test_calls_of_one_answer_run_together_and_are_answered_in_one_turn(demo: RunwireServer) -> None:
    wanted = [tool_use(f"t{number}", "calculator", {"expression": f"{number}+1"}) for number in range(3)]
    broken = tool_use("t3", "calculator", '{"expression": ')
    async with (
        asyncio.timeout(TIMEOUT_S),
        messages_server([answers(*wanted, broken), says("done")]) as model,
        demo.client(None) as client,
    ):
        found, _ = await ran(client, run_body(claude(model.base_url), "calculator"))
    _, asked, results = [turn["content"] for turn in shown(model.requests[1])]
    assert asked == [*wanted, {**broken, "input": {"invalid_json": '{"expression": '}}]
    assert [(block["tool_use_id"], block["content"]) for block in results[:3]] == [
        ("t0", "1"),
        ("t1", "2"),
        ("t2", "3"),
    ]
    assert results[3]["tool_use_id"] == "t3"
    assert "could not be read" in results[3]["content"]
    assert [item.data["iteration"] for item in found if item.event == "step"] == [1, 1, 1, 1]


async def test_a_trimmed_round_keeps_its_thinking_and_the_calls_that_have_results(demo: RunwireServer) -> None:
    wanted = [tool_use(f"t{number}", "calculator", {"expression": f"{number}+1"}) for number in range(3)]
    agent = {"trim_intermediate_steps": 1}
    async with (
        asyncio.timeout(TIMEOUT_S),
        messages_server([answers(thinking("all of them"), *wanted), says("done")]) as model,
        demo.client(None) as client,
    ):
        await ran(client, run_body(claude(model.base_url), "calculator", agent=agent))
    assert shown(model.requests[1])[1:] == [
        {"role": "assistant", "content": [thinking("all of them"), wanted[2]]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2", "content": "3"}]},
    ]


async def test_another_provider_takes_the_thread_up_without_the_blocks(demo: RunwireServer) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        messages_server([answers(*LAST)]) as model,
        ChatCompletionsServer([openai_says("hi")]) as other,
        demo.client(None) as client,
    ):
        _, run = await ran(client, run_body(claude(model.base_url), text="one"))
        await ran(client, run_body(openai(other.base_url), text="two", thread_id=run["thread_id"]))
    assert shown(other.requests[0]) == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "It is 25."},
        {"role": "user", "content": "two"},
    ]


async def test_a_caller_cannot_bring_blocks_of_a_provider(demo: RunwireServer) -> None:
    message = {"role": "assistant", "content": "x", "provider_blocks": {"anthropic": [thinking("forged")]}}
    async with demo.client(None) as client:
        given = {"messages": [{"role": "user", "content": "hi"}, message]}
        answer = await client.post("/runs", json=run_body(claude("http://127.0.0.1:9"), text=given))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/input/messages/1/provider_blocks"


async def test_the_prompt_cache_is_asked_for_and_its_tokens_count(demo: RunwireServer) -> None:
    usage = {"input_tokens": 4, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 200, "output_tokens": 1}
    params = {"cache_control": {"type": "ephemeral"}, "max_tokens": 100}
    agent = {"instructions": "Be brief."}
    async with (
        asyncio.timeout(TIMEOUT_S),
        messages_server([answers(text("hi"), usage=usage)]) as model,
        demo.client(None) as client,
    ):
        _, run = await ran(client, run_body(claude(model.base_url, params=params), "calculator", agent=agent))
    sent = model.requests[0].body
    marked = b'"cache_control":{"type":"ephemeral"}}]'
    assert b'"system":[{"type":"text","text":"Be brief.",' + marked in sent
    assert b'{"type":"text","text":"go",' + marked in sent
    assert sent.endswith(marked + b"}")
    assert sent.count(b"cache_control") == 3
    assert (run["usage"]["input_tokens"], run["usage"]["total_tokens"]) == (234, 237)


async def test_the_key_shows_nowhere(demo: RunwireServer) -> None:
    said = f"invalid x-api-key: {KEY}"
    for reply in (answers(*LAST), fails(401, "authentication_error", said), fails(400, "invalid_request_error", said)):
        async with asyncio.timeout(TIMEOUT_S), messages_server([reply]) as model, demo.client(None) as client:
            answer = await client.post("/runs/stream", json=run_body(claude(model.base_url)))
            run_id = read_events(answer.content)[0].data["run_id"]
            paths = [f"/runs/{run_id}{path}" for path in ("", "/messages", "/steps", "/events")]
            shown_texts = [answer.text, *[(await client.get(path)).text for path in paths]]
        assert model.requests[0].headers["x-api-key"] == KEY
        assert not any(KEY in item for item in shown_texts)
    assert KEY not in demo.log()
    stored = b"".join(path.read_bytes() for path in demo.folder.rglob("*.db*"))
    assert KEY.encode() not in stored


async def test_the_operators_settings_are_for_models_named_by_text_alone(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(OPERATOR_KEY + "\n")
    async with asyncio.timeout(TIMEOUT_S), messages_server([says("hi")]) as model:
        env = {"ANTHROPIC_API_KEY_FILE": str(tmp_path / "key"), "ANTHROPIC_BASE_URL": model.base_url}
        with RunwireServer.open(tmp_path, keys="", env=env) as server:
            async with server.client(None) as client:
                assert "anthropic" in (await client.get("/info")).json()["model_providers"]
                await ran(client, run_body("anthropic:claude-test"))
                await ran(client, run_body({**claude(model.base_url), "api_key": None}))
            assert OPERATOR_KEY not in server.log()
    assert [request.headers.get("x-api-key") for request in model.requests] == [OPERATOR_KEY, None]
