"""Models that misbehave over the wire: each has a defined end with a stable code, and no key shows anywhere."""

import asyncio
import json
from collections.abc import Sequence

import httpx
import pytest

from tests.support.bodies import openai, run_body, shown
from tests.support.chat_completions import (
    ChatCompletionsServer,
    Replies,
    Reply,
    answer_chunks,
    calls,
    chunk,
    events,
    fails,
    says,
)
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import Event, check_whole, read_events

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-model-key-123456"
ECHOED = f"Incorrect API key provided: {KEY}."

_TALK = events(answer_chunks("a long answer that breaks off"))


async def told(
    client: httpx.AsyncClient, replies: Replies, *tools: object, **agent: object
) -> tuple[list[Event], ChatCompletionsServer]:
    """Run an agent on such a model to its end; the events, checked to be whole."""
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer(replies) as model:
        body = run_body(openai(model.base_url, api_key=KEY), *tools, agent=agent)
        answer = await client.post("/runs/stream", json=body)
    assert KEY not in answer.text
    found = read_events(answer.content)
    check_whole(found)
    run_id = found[0].data["run_id"]
    for path in ("", "/messages", "/steps", "/events"):
        assert KEY not in (await client.get(f"/runs/{run_id}{path}")).text
    return found, model


def of(found: Sequence[Event], kind: str) -> list[dict[str, object]]:
    return [item.data for item in found if item.event == kind]


async def test_a_rate_limit_is_waited_for_and_then_all_is_well(client: httpx.AsyncClient) -> None:
    found, model = await told(client, [fails(429, "slow down", headers={"Retry-After": "0"}), says("ok")])
    assert of(found, "end")[0]["status"] == "success"
    assert len(model.requests) == 2
    assert model.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("reply", "code", "retryable"),
    [
        pytest.param(fails(401, ECHOED, code="invalid_api_key"), "model_auth", False, id="401-with-the-key-in-it"),
        pytest.param(
            fails(400, "This model's maximum context length is 10", code="context_length_exceeded"),
            "context_length_exceeded", False, id="context-length",
        ),
        pytest.param(fails(404, "no such model"), "model_not_found", False, id="404"),
        pytest.param(fails(400, ECHOED), "model_bad_request", False, id="400"),
        pytest.param(
            fails(429, "You exceeded your current quota", code="insufficient_quota"),
            "model_rate_limited", False, id="quota-spent",
        ),
        pytest.param(
            Reply(body=b"<html><body>Welcome!</body></html>", content_type="text/html"),
            "model_invalid_response", False, id="html-page",
        ),
        pytest.param(Reply(status=302, headers={"Location": "/"}), "model_invalid_response", False, id="redirect"),
        pytest.param(Reply(body=_TALK, cut_after=len(_TALK) // 2), "model_stream_broken", True, id="cut"),
        pytest.param(
            Reply(body=_TALK[: len(_TALK) // 2], close=True), "model_stream_broken", True, id="closed-inside-an-event"
        ),
        pytest.param(
            Reply(body=events(answer_chunks("half")[:2], done=False), close=True), "model_stream_broken", True,
            id="closed-between-events",
        ),
        pytest.param(Reply(body=events(answer_chunks(""))), "model_empty_response", True, id="empty-answer"),
        pytest.param(Reply(body=b""), "model_empty_response", True, id="empty-body"),
        pytest.param(
            Reply(body=events([chunk({"content": "a"}), {"error": {"message": ECHOED, "type": "server_error"}}])),
            "model_unavailable", True, id="error-in-the-stream",
        ),
        pytest.param(
            Reply(body=events(answer_chunks("", finish="content_filter"))), "content_filtered", False, id="filtered"
        ),
    ],
)  # fmt: skip
async def test_a_model_that_fails_ends_the_run_with_its_code(
    client: httpx.AsyncClient, reply: Reply, code: str, retryable: bool
) -> None:
    found, _ = await told(client, [reply])
    (error,) = of(found, "error")
    end = of(found, "end")[0]
    assert (error["code"], error["retryable"], end["status"], end["stop_reason"]) == (code, retryable, "error", "error")
    run = (await client.get(f"/runs/{end['run_id']}")).json()
    assert run["error"] == error
    assert error["request_id"]


async def test_arguments_that_are_no_json_are_told_to_the_model_until_they_are(client: httpx.AsyncClient) -> None:
    replies = [
        calls(("c1", "echo", '{"text": ')),
        calls(("c2", "echo", "[1]")),
        calls(("c3", "echo", '{"text": "good"}')),
        says("done"),
    ]
    found, model = await told(client, replies, "echo")
    assert [step["status"] for step in of(found, "step")] == ["error", "error", "success"]
    sent = shown(model.requests[1])
    assert sent[-1]["role"] == "tool"
    assert "not valid JSON" in sent[-1]["content"]
    assert of(found, "end")[0]["status"] == "success"


async def test_of_five_hundred_calls_at_once_the_allowed_ones_are_sent(client: httpx.AsyncClient) -> None:
    many = calls(*((f"c{number}", "echo", json.dumps({"text": str(number)})) for number in range(500)))
    found, model = await told(client, [many, says("done")], "echo")
    steps = sorted(of(found, "step"), key=lambda step: int(str(step["step"])))
    assert [step["status"] for step in steps] == ["success"] * 128 + ["error"] * 372
    assert of(found, "end")[0]["status"] == "success"
    sent = shown(model.requests[1])
    results = [item["tool_call_id"] for item in sent if item["role"] == "tool"]
    assert results == [f"c{number}" for number in range(500)]


@pytest.mark.parametrize(
    ("ids", "kept"), [(("same", "same", "same"), ["same"]), (("", "", ""), []), (("a", "", "a"), ["a"])]
)
async def test_ids_that_repeat_or_are_missing_are_told_apart(
    client: httpx.AsyncClient, ids: tuple[str, ...], kept: list[str]
) -> None:
    wanted = calls(*((given, "echo", json.dumps({"text": str(place)})) for place, given in enumerate(ids)))
    found, model = await told(client, [wanted, says("done")], "echo")
    ours = [action["tool_call_id"] for action in of(found, "action")]
    assert len(set(ours)) == 3
    sent = shown(model.requests[1])
    results = [(item["tool_call_id"], item["content"]) for item in sent if item["role"] == "tool"]
    asked = [call["id"] for item in sent for call in item.get("tool_calls", ())]
    assert [item[0] for item in results] == asked
    assert [item[1] for item in results] == ["0", "1", "2"]
    assert len(set(asked)) == 3
    assert [item for item in asked if item in ids] == kept


async def test_a_call_that_names_no_tool_or_an_unknown_one_is_an_error_result(client: httpx.AsyncClient) -> None:
    found, _ = await told(client, [calls(("c1", "", "{}"), ("c2", "rm_rf", "{}")), says("sorry")], "echo")
    steps = of(found, "step")
    assert [step["status"] for step in steps] == ["error", "error"]
    assert "rm_rf is not a valid tool" in str(steps[1]["observation"])
    assert of(found, "end")[0]["status"] == "success"


async def test_a_refusal_is_the_answer_and_says_that_it_is_one(client: httpx.AsyncClient) -> None:
    refused = Reply(body=events([chunk({"role": "assistant", "refusal": "I will not."}), chunk({}, finish="stop")]))
    found, _ = await told(client, [refused])
    assert of(found, "finish")[0]["return_values"] == {"output": "I will not.", "refusal": True}


async def test_an_answer_cut_at_its_length_says_so(client: httpx.AsyncClient) -> None:
    found, _ = await told(client, [Reply(body=events(answer_chunks("half a sen", finish="length")))])
    assert of(found, "finish")[0]["return_values"] == {"output": "half a sen", "truncated": True}


async def test_no_key_reaches_the_servers_log_or_files_in_clear(
    client: httpx.AsyncClient, server: RunwireServer
) -> None:
    await told(client, [fails(401, ECHOED)])
    assert KEY not in server.log()
    for file in (server.folder / ".runwire").iterdir():
        assert KEY.encode() not in file.read_bytes(), file
