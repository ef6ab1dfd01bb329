"""Structured answers by tool, over HTTP; the cases of `create_agent` by their ids."""

import json
from typing import Any

import httpx
import pytest

from tests.agent.structured import FITS, HOT, MISFIT, Body, W, asked, ended, ran, results
from tests.support.bodies import calls, openai, run_body, says, shown
from tests.support.chat_completions import ChatCompletionsServer
from tests.support.chat_completions import calls as model_calls
from tests.support.chat_completions import says as model_says

pytestmark = pytest.mark.anyio


async def test_b_441_the_answers_tool_ends_the_run_and_its_call_has_a_result(client: httpx.AsyncClient) -> None:
    run, messages = await ran(client, asked(calls(("W", FITS))))
    assert ended(run) == ("success", "finish", 1)
    assert run["output"] == {"output": '{"city":"HZ","temp":28}', "structured": FITS}
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert results(messages) == [("W", 'Returning structured response: {"city":"HZ","temp":28}', None)]
    assert run["usage"]["tool_calls"] == 0
    (step,) = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
    assert (step["action"]["tool"], step["status"]) == ("W", "success")


async def test_b_441_a_model_is_offered_the_tool_last_and_must_call_something(client: httpx.AsyncClient) -> None:
    async with ChatCompletionsServer([model_calls(("c1", "W", json.dumps(FITS)))]) as model:
        agent = {"output_schema": {**W, "description": "The weather."}}
        run, _ = await ran(client, run_body(openai(model.base_url), "a", agent=agent))
        (request,) = (seen.json for seen in model.requests)
    assert run["output"]["structured"] == FITS
    assert request["tool_choice"] == "required"
    assert "response_format" not in request
    offered: Any = request["tools"]
    assert [tool["function"]["name"] for tool in offered] == ["a", "W"]
    assert offered[1]["function"]["parameters"] == agent["output_schema"]
    assert offered[1]["function"]["description"].endswith("The weather.")


@pytest.mark.parametrize("choice", ["none", "required", "W", "a", None])
async def test_a_choice_of_the_agents_own_stands_as_far_as_it_can(
    client: httpx.AsyncClient, choice: str | None
) -> None:
    async with ChatCompletionsServer([model_calls(("c1", "W", json.dumps(FITS)))]) as model:
        agent = {"output_schema": W, "tool_choice": choice}
        run, _ = await ran(client, run_body(openai(model.base_url), "a", agent=agent))
        (request,) = (seen.json for seen in model.requests)
    assert run["output"]["structured"] == FITS
    named = "W" if choice == "none" else choice
    forced = {"type": "function", "function": {"name": named}} if named in ("a", "W") else named
    assert request.get("tool_choice") == forced


@pytest.mark.parametrize(
    ("handling", "told"),
    [
        (True, f"Not taken: the arguments of `W` do not fit its schema: {MISFIT}. Call it again with ones that do."),
        pytest.param("fix it", "fix it", id="B-445"),
    ],
)
async def test_b_454_a_misfit_is_an_error_that_the_model_mends(
    client: httpx.AsyncClient, handling: object, told: str
) -> None:
    run, messages = await ran(client, asked(calls(("W", HOT)), calls(("W", FITS)), handle_parsing_errors=handling))
    assert ended(run) == ("success", "finish", 2)
    assert run["output"]["structured"] == FITS
    assert [(text, status) for _, text, status in results(messages)] == [
        (told, "error"),
        ('Returning structured response: {"city":"HZ","temp":28}', None),
    ]


@pytest.mark.parametrize("turn", [calls(("W", HOT)), says("28 degrees"), calls(("W", FITS), ("W", FITS))])
async def test_b_444_without_handling_a_misfit_ends_the_run(client: httpx.AsyncClient, turn: Body) -> None:
    run, _ = await ran(client, asked(turn, handle_parsing_errors=False))
    assert (run["status"], run["error"]["code"]) == ("error", "output_parsing_error")
    assert run["output"] is None


async def test_b_447_plain_text_is_asked_for_again_and_never_silently_the_answer(client: httpx.AsyncClient) -> None:
    run, messages = await ran(client, asked(says("28 degrees"), calls(("W", FITS))))
    assert ended(run) == ("success", "finish", 2)
    assert run["output"]["structured"] == FITS
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant", "tool"]
    assert messages[2]["content"] == "Give your final answer by calling the tool `W`; as text it is not taken."
    assert "tool_call_id" not in messages[2]
    steps = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
    assert [step["action"]["tool"] for step in steps] == ["_Exception", "W"]


async def test_misfits_are_trimmed_like_other_steps(client: httpx.AsyncClient) -> None:
    """Each with what was said to it: no call without its result, no demand without its text."""
    replies = [model_says("28"), model_calls(("c1", "W", json.dumps(HOT))), model_says("degrees")]
    async with ChatCompletionsServer([*replies, model_calls(("c2", "W", json.dumps(FITS)))]) as model:
        agent = {"output_schema": W, "trim_intermediate_steps": 1}
        run, _ = await ran(client, run_body(openai(model.base_url), agent=agent))
        seen = [[message["role"] for message in shown(request)] for request in model.requests]
    assert run["output"]["structured"] == FITS
    said, told = ["assistant", "user"], ["assistant", "tool"]
    assert seen == [["user"], ["user", *said], ["user", *told], ["user", *said]]


async def test_text_that_is_the_answer_is_taken(client: httpx.AsyncClient) -> None:
    run, _ = await ran(client, asked(says(f"```json\n{json.dumps(FITS)}\n```")))
    assert ended(run) == ("success", "finish", 1)
    assert run["output"]["structured"] == FITS


async def test_b_448_beside_an_ordinary_call_both_run_and_the_run_ends(client: httpx.AsyncClient) -> None:
    run, messages = await ran(client, asked(calls(("a", {"text": "1"}), ("W", FITS)), says("after")))
    assert ended(run) == ("success", "finish", 1)
    assert run["output"]["structured"] == FITS
    assert [(name, status) for name, _, status in results(messages)] == [("a", None), ("W", None)]
    assert run["usage"]["tool_calls"] == 1


async def test_b_457_a_misfit_beside_an_ordinary_call_is_told(client: httpx.AsyncClient) -> None:
    run, messages = await ran(client, asked(calls(("a", {"text": "1"}), ("W", HOT)), calls(("W", FITS))))
    assert ended(run) == ("success", "finish", 2)
    assert run["output"]["structured"] == FITS
    assert [status for _, _, status in results(messages)] == [None, "error", None]


async def test_two_answers_at_once_are_both_refused(client: httpx.AsyncClient) -> None:
    run, messages = await ran(client, asked(calls(("W", FITS), ("W", FITS)), calls(("W", {**FITS, "temp": 1}))))
    assert run["output"]["structured"] == {"city": "HZ", "temp": 1}
    told = "Not taken: this answer gives `W` 2 times, and only one is wanted. Call it once."
    assert [text for _, text, status in results(messages) if status == "error"] == [told, told]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": {"type": "integer"}}, [1, 2]),
        ({"type": "string"}, "so"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, 7),
        ({"title": "Tree", "anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]}, [[None], []]),
        pytest.param({"anyOf": [W, {"type": "object", "required": ["name"]}]}, {"name": "n"}, id="B-449"),
    ],
)
@pytest.mark.parametrize("strategy", ["tool", "provider"])
async def test_an_answer_that_is_no_object_is_asked_for_inside_one(
    client: httpx.AsyncClient, schema: Body, value: object, strategy: str
) -> None:
    name = schema.get("title", "structured_output")
    wrong: Body = {"value": {"x": {}}}
    right: Body = {"value": value}
    turns = (
        [calls((name, wrong)), calls((name, right))]
        if strategy == "tool"
        else [says(json.dumps(wrong)), says(json.dumps(right))]
    )
    run, _ = await ran(client, asked(*turns, schema=schema, output_strategy=strategy))
    assert ended(run) == ("success", "finish", 2)
    assert run["output"]["structured"] == value
    assert json.loads(run["output"]["output"]) == value


@pytest.mark.parametrize("method", ["force", "generate"])
async def test_b_456_endless_misfits_end_at_the_agents_limit(client: httpx.AsyncClient, method: str) -> None:
    body = asked(calls(("W", HOT)), repeat=True, max_iterations=3, early_stopping_method=method)
    run, _ = await ran(client, body)
    assert ended(run) == ("success", "max_iterations", 3 if method == "force" else 4)
    assert run["output"] == {"output": "Agent stopped due to max iterations."}
    told = (await client.get(f"/runs/{run['id']}/events?limit=100")).json()["data"]
    counted = [item for item in told if item["event"] == "usage"]
    assert len(counted) == run["usage"]["model_calls"]


@pytest.mark.parametrize("turn", [calls(("W", FITS)), calls(("a", {"text": "x"}), ("W", FITS)), says(json.dumps(FITS))])
async def test_the_last_answer_at_a_limit_is_structured(client: httpx.AsyncClient, turn: Body) -> None:
    body = asked(calls(("a", {"text": "x"})), turn, max_iterations=1, early_stopping_method="generate")
    run, messages = await ran(client, body)
    assert ended(run) == ("success", "max_iterations", 2)
    assert run["output"]["structured"] == FITS
    assert json.loads(messages[-1]["content"]) == FITS
    assert messages[-1]["role"] == "assistant"


async def test_the_last_answer_is_forced_to_the_answers_tool(client: httpx.AsyncClient) -> None:
    replies = [model_calls(("c1", "a", '{"text":"x"}')), model_calls(("c2", "W", json.dumps(FITS)))]
    async with ChatCompletionsServer(replies) as model:
        agent = {"output_schema": W, "max_iterations": 1, "early_stopping_method": "generate"}
        run, _ = await ran(client, run_body(openai(model.base_url), "a", agent=agent))
        last = model.requests[-1].json
    assert run["output"]["structured"] == FITS
    assert last["tool_choice"] == {"type": "function", "function": {"name": "W"}}
    assert "calling `W`" in shown(model.requests[-1])[-1]["content"]


async def test_caps_on_tool_calls_leave_the_answer_alone(client: httpx.AsyncClient) -> None:
    limits = {"max_tool_calls": 1, "max_tool_calls_per_round": 1}
    body = asked(calls(("a", {"text": "x"})), calls(("a", {"text": "y"}), ("W", FITS)), limits=limits)
    run, messages = await ran(client, body)
    assert run["output"]["structured"] == FITS
    assert [status for _, _, status in results(messages)] == [None, "error", None]


@pytest.mark.parametrize("limits", [{"max_repeats": 1}, {"max_total_tokens": 1}])
async def test_other_limits_apply_to_second_tries(client: httpx.AsyncClient, limits: Body) -> None:
    turn = calls(("W", HOT), usage={"input_tokens": 1, "output_tokens": 1})
    run, _ = await ran(client, asked(turn, repeat=True, limits=limits))
    assert run["stop_reason"] in ("max_repeats", "usage_limit")
    assert "structured" not in run["output"]


async def test_an_empty_answer_is_the_models_failure(client: httpx.AsyncClient) -> None:
    run, _ = await ran(client, asked(says("")))
    assert (run["status"], run["error"]["code"]) == ("error", "model_empty_response")
