"""Structured answers beside the rest of an agent: names, streams, threads, other models and planners."""

import json
import warnings
from typing import Any

import httpx
import pytest
from langchain_core.load import load

from tests.agent.structured import FITS, HOT, MISFIT, Body, W, asked, ran, results
from tests.support import anthropic_messages as anthropic
from tests.support.bodies import calls, openai, run_body, says, scripted, shown
from tests.support.chat_completions import ChatCompletionsServer
from tests.support.chat_completions import says as model_says
from tests.support.streams import check_whole, read_events

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"output_schema": {"$ref": "https://example.com/x.json"}}, "/agent/output_schema/$ref"),
        (
            {"output_schema": {"type": "object", "properties": {"x": {"pattern": "(a+)+"}}}},
            "/agent/output_schema/properties/x/pattern",
        ),
        ({"output_schema": {"type": "strange"}}, "/agent/output_schema/type"),
        ({"output_schema": "W"}, "/agent/output_schema"),
        ({"output_schema": W, "output_strategy": "magic"}, "/agent/output_strategy"),
        ({"output_schema": W, "output_strategy": "tool", "type": "react"}, "/agent/output_strategy"),
        ({"tool_choice": "W"}, "/agent/tool_choice"),
    ],
)
async def test_what_cannot_be_asked_for_is_refused(client: httpx.AsyncClient, settings: Body, pointer: str) -> None:
    answer = await client.post("/runs", json=run_body("demo", "a", agent=settings))
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_the_answers_name_is_another_than_the_tools(client: httpx.AsyncClient) -> None:
    run, messages = await ran(client, asked(calls(("a_2", FITS)), schema={**W, "title": "a"}))
    assert run["output"]["structured"] == FITS
    assert results(messages)[0][0] == "a_2"


async def test_a_registered_agent_shows_its_schema_and_answers_by_it(client: httpx.AsyncClient) -> None:
    spec = {"name": "weather", "model": scripted(calls(("W", FITS))), "output_schema": W}
    created = await client.post("/agents", json=spec)
    assert created.status_code == 201, created.text
    assert (created.json()["output_schema"], created.json()["output_strategy"]) == (W, "auto")
    run, _ = await ran(client, {"agent": "weather", "input": "go"})
    assert run["output"]["structured"] == FITS


async def test_the_stream_tells_the_call_and_the_answer(client: httpx.AsyncClient) -> None:
    answer = await client.post("/runs/stream", json=asked(calls(("W", FITS))))
    told = read_events(answer.content)
    check_whole(told)
    data: list[tuple[str, Body]] = [(item.event, item.data) for item in told]
    (delta,) = (item["delta"] for event, item in data if event == "output")
    assert (delta["type"], delta["name"], json.loads(delta["args"])) == ("tool_call", "W", FITS)
    (finish,) = (item for event, item in data if event == "finish")
    assert finish["return_values"]["structured"] == FITS
    assert finish["stop_reason"] == "finish"


async def test_a_threads_next_run_goes_on_from_a_structured_answer(client: httpx.AsyncClient) -> None:
    run, _ = await ran(client, asked(says("hm"), calls(("W", FITS))))
    async with ChatCompletionsServer([model_says("ok")]) as model:
        body = {**run_body(openai(model.base_url)), "thread_id": run["thread_id"]}
        second, _ = await ran(client, body)
        roles = [message["role"] for message in shown(model.requests[0])]
    assert second["output"] == {"output": "ok"}
    assert roles == ["user", "assistant", "user", "assistant", "tool", "user"]


async def test_steps_of_a_structured_run_load_in_langchain(client: httpx.AsyncClient) -> None:
    run, _ = await ran(client, asked(says("hm"), calls(("W", HOT)), calls(("W", FITS))))
    page = (await client.get(f"/runs/{run['id']}/steps?format=langchain")).json()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `load` is marked as beta
        loaded: Any = load(page, allowed_objects="core")
    assert [step["action"].tool for step in loaded["data"]] == ["_Exception", "W", "W"]


@pytest.mark.parametrize("thinks", [False, True])
async def test_an_anthropic_model_is_asked_by_tool(client: httpx.AsyncClient, thinks: bool) -> None:
    said = [anthropic.thinking("I see.", "sig")] if thinks else []
    replies = [
        anthropic.answers(*said, anthropic.text("28 degrees")),
        anthropic.answers(*said, anthropic.tool_use("toolu_1", "W", HOT)),
        anthropic.answers(*said, anthropic.tool_use("toolu_2", "W", FITS)),
    ]
    params = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if thinks else {}
    async with anthropic.messages_server(replies) as model:
        spec = {**claude(model.base_url), "params": params}
        run, _ = await ran(client, run_body(spec, "a", agent={"output_schema": W}))
        choices: list[Any] = [request.json["tool_choice"] for request in model.requests]
        last = shown(model.requests[2])
    assert (run["output"]["structured"], run["iterations"]) == (FITS, 3)
    assert [choice["type"] for choice in choices] == ["auto" if thinks else "any"] * 3
    assert [turn["role"] for turn in last] == ["user", "assistant", "user", "assistant", "user"]
    (result,) = last[4]["content"]
    assert (result["tool_use_id"], result["is_error"]) == ("toolu_1", True)
    assert MISFIT in result["content"]


async def test_an_anthropic_model_is_asked_by_format(client: httpx.AsyncClient) -> None:
    replies = [anthropic.says(json.dumps(HOT)), anthropic.says(json.dumps(FITS))]
    async with anthropic.messages_server(replies) as model:
        agent = {"output_schema": W, "output_strategy": "provider"}
        run, _ = await ran(client, run_body(claude(model.base_url), "a", agent=agent))
        bodies = [request.json for request in model.requests]
    assert (run["output"]["structured"], run["iterations"]) == (FITS, 2)
    assert [body["output_config"] for body in bodies] == [{"format": {"type": "json_schema", "schema": W}}] * 2


def claude(base_url: str) -> Body:
    return {"provider": "anthropic", "model": "claude-test", "base_url": base_url, "api_key": "sk-ant-0123456789"}


@pytest.mark.parametrize("strategy", ["tool", "provider"])
async def test_the_demo_model_gives_an_example(client: httpx.AsyncClient, strategy: str) -> None:
    agent = {"output_schema": W, "output_strategy": strategy}
    run, _ = await ran(client, run_body({"provider": "demo", "params": {"delay_ms": 0}}, agent=agent))
    assert run["output"]["structured"] == {"city": "[demo model]", "temp": 0}


async def test_a_planner_in_python_answers_in_json(client: httpx.AsyncClient) -> None:
    """It is asked again like any other: here its finish is what its model says."""
    turns = [says(json.dumps(HOT)), says(json.dumps(FITS))]
    body = run_body(scripted(*turns), agent={"type": "says_what_its_model_says", "output_schema": W})
    run, messages = await ran(client, body)
    assert (run["output"], run["iterations"]) == ({"output": json.dumps(FITS), "structured": FITS}, 2)
    assert MISFIT in messages[2]["content"]


async def test_an_approval_beside_an_answer_is_waited_for(client: httpx.AsyncClient) -> None:
    """The run parks with its answer given, and ends with it when the person has answered."""
    turn = calls(("a", {"text": "x"}), ("W", FITS))
    answer = await client.post("/runs/wait", json=asked(turn, interrupt_on={"a": True}))
    run = answer.json()
    assert run["status"] == "interrupted"
    (interrupt,) = run["interrupts"]
    responses = {"responses": [{"interrupt_id": interrupt["id"], "decision": "approve"}]}
    assert (await client.post(f"/runs/{run['id']}/resume", json=responses)).status_code == 202
    done = (await client.get(f"/runs/{run['id']}/wait", params={"timeout_s": 10})).json()
    assert (done["status"], done["output"]["structured"], done["usage"]["model_calls"]) == ("success", FITS, 1)
