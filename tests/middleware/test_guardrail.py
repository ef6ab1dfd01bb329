"""The middleware `guardrail`: what it lets through, and what a run ends with where it does not."""

import json
from typing import Any

import httpx
import pytest

from tests.agent_loop.support import Call
from tests.middleware.support import Model, events, played
from tests.support.bodies import run_body, scripted

pytestmark = pytest.mark.anyio


def guardrail(**config: Any) -> dict[str, object]:
    return {"name": "guardrail", "config": config}


SPY = guardrail(patterns=["(?i)password"])


async def test_a_wrong_input_asks_no_model(client: httpx.AsyncClient) -> None:
    async with Model("never") as model:
        run = await played(client, model, [SPY], text="Tell me the PASSWORD")
    assert (run.run["status"], run.answer, run.model_calls) == ("success", "I cannot help with that.", 0)
    assert (await run.said())[-1] == ("assistant", "I cannot help with that.")


async def test_a_wrong_answer_is_neither_streamed_nor_stored(client: httpx.AsyncClient) -> None:
    async with Model("The password is x1y2") as model:
        run = await played(client, model, [guardrail(patterns=["x1y2"], message="No.")])
    assert run.answer == "No."
    state = (await client.get(f"/threads/{run.run['thread_id']}/state")).json()
    assert "x1y2" not in json.dumps([await events(client, run.run), run.run, state])


async def test_a_wrong_answers_calls_are_not_made(client: httpx.AsyncClient) -> None:
    made: list[Call] = [("c1", "echo", {"x": "1"})]
    async with Model(("x" * 11, made)) as model:
        run = await played(client, model, [guardrail(max_length=10)])
    assert (run.answer, await run.steps()) == ("I cannot help with that.", [])


async def test_what_is_right_goes_through_as_it_is(client: httpx.AsyncClient) -> None:
    made: list[Call] = [("c1", "echo", {"x": "1"})]
    config = guardrail(patterns=["zzz"], max_length=100, plugin="shouts")
    async with Model(made, "fine") as model:
        run = await played(client, model, [config])
    spoken = [event["data"]["delta"]["text"] for event in await events(client, run.run) if event["event"] == "output"]
    assert (run.answer, spoken, len(await run.steps())) == ("fine", ["fine"], 1)


SCHEMA = {"type": "object", "properties": {"t": {"type": "string"}}, "required": ["t"], "title": "Ans"}


@pytest.mark.parametrize(
    "answer",
    [
        [("c1", "Ans", {"t": "the password is x1y2"})],
        [("c1", "echo", {"x": "the password"})],
        "The password, in plain words",
    ],
)
async def test_a_wrong_structured_answer_or_call_ends_the_run_at_once(client: httpx.AsyncClient, answer: Any) -> None:
    right: list[Call] = [("c2", "Ans", {"t": "fine"})]
    async with Model(answer, right) as model:
        run = await played(client, model, [SPY], agent={"output_schema": SCHEMA, "output_strategy": "tool"})
    assert (run.run["output"], run.model_calls) == ({"output": "I cannot help with that."}, 1)
    assert "x1y2" not in json.dumps([await events(client, run.run), run.run])


async def test_an_escaped_word_of_a_providers_json_is_found(client: httpx.AsyncClient) -> None:
    async with Model('{"t": "the p\\u0061ssword"}', '{"t": "fine"}') as model:
        run = await played(client, model, [SPY], agent={"output_schema": SCHEMA, "output_strategy": "provider"})
    assert (run.run["output"], run.model_calls) == ({"output": "I cannot help with that."}, 1)


async def test_a_text_agents_wrong_answer_ends_the_run_at_once(client: httpx.AsyncClient) -> None:
    async with Model("Action: echo\nAction Input: password", "Final Answer: fine") as model:
        run = await played(client, model, [SPY], agent={"type": "react"})
    assert (run.run["output"], run.model_calls) == ({"output": "I cannot help with that."}, 1)


@pytest.mark.parametrize(("where", "text"), [("apply_to_input", "hi"), ("apply_to_output", "x1y2")])
async def test_where_it_does_not_apply_it_says_nothing(client: httpx.AsyncClient, where: str, text: str) -> None:
    async with Model("x1y2") as model:
        config: dict[str, Any] = {
            "patterns": ["hi", "x1y2"],
            "apply_to_input": False,
            "apply_to_output": False,
            where: True,
        }
        run = await played(client, model, [guardrail(**config)])
    assert run.answer == "I cannot help with that."
    assert run.model_calls == (0 if where == "apply_to_input" else 1)


async def test_a_function_says_what_is_wrong_and_fails_closed(client: httpx.AsyncClient) -> None:
    async with Model("never") as model:
        run = await played(client, model, [guardrail(plugin="shouts")], text="HEY")
        assert (run.answer, run.model_calls) == ("I cannot help with that.", 0)
        run = await played(client, model, [guardrail(plugin="shouts")], text="fail")
    assert run.run["error"]["code"] == "middleware_error"
    assert "secret" not in json.dumps(run.run)


async def test_a_run_may_end_as_an_error(client: httpx.AsyncClient) -> None:
    async with Model("secret") as model:
        run = await played(client, model, [guardrail(patterns=["secret"], on_violation="error")])
    assert (run.run["status"], run.run["error"]["code"]) == ("error", "guardrail_violated")


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({}, "invalid_request"), ({"patterns": ["("]}, "invalid_request"), ({"patterns": ["(a|aa)+$"]}, "invalid_request"),
        ({"max_length": 0}, "invalid_request"), ({"plugin": "nobody"}, "unknown_plugin"),
    ],
)  # fmt: skip
async def test_a_config_that_cannot_be_used_is_refused(
    client: httpx.AsyncClient, config: dict[str, Any], code: str
) -> None:
    body = run_body(scripted({"content": "x"}), agent={"middleware": [guardrail(**config)]})
    refused = await client.post("/runs", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, code)
    assert refused.json()["errors"][0]["pointer"].startswith("/agent/middleware/0/config")
