"""The middleware `model_fallback` and `dynamic_model`: which model answers."""

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tests.agent_loop.support import Call
from tests.middleware.support import Model, events, played
from tests.support.bodies import openai, run_body, scripted
from tests.support.chat_completions import Reply, answer_chunks, fails
from tests.support.chat_completions import events as sse

pytestmark = pytest.mark.anyio

KEY = "tenant-key-of-the-fallback"


def fallback(*models: object) -> dict[str, object]:
    return {"name": "model_fallback", "config": {"models": list(models)}}


def chooses(*rules: tuple[dict[str, Any], object]) -> dict[str, object]:
    return {"name": "dynamic_model", "config": {"rules": [{"when": when, "model": model} for when, model in rules]}}


def named(text: str) -> dict[str, object]:
    """A model that always says its name."""
    return scripted({"content": text}, repeat=True)


async def test_the_next_model_is_asked_where_one_fails(client: httpx.AsyncClient) -> None:
    async with Model(fails(400, "down")) as first, Model(fails(401, "who?")) as second, Model("third") as third:
        others = [openai(model.base_url, api_key=KEY) for model in (second, third)]
        run = await played(client, first, [fallback(*others)])
        assert (len(second.requests), len(third.requests)) == (1, 1)
        assert third.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert (run.answer, run.run["usage"]["model_calls"]) == ("third", 1)


async def test_the_next_model_is_not_asked_where_one_answers(client: httpx.AsyncClient) -> None:
    async with Model("first") as first, Model("never") as second:
        run = await played(client, first, [fallback(openai(second.base_url))])
        assert second.requests == []
    assert run.answer == "first"


async def test_where_all_fail_the_last_ones_error_ends_the_run_B_262(client: httpx.AsyncClient) -> None:
    async with Model(fails(400, "down")) as first, Model(fails(401, "who?")) as second:
        run = await played(client, first, [fallback(openai(second.base_url, api_key=KEY))])
    assert (run.run["status"], run.run["error"]["code"]) == ("error", "model_auth")


async def test_an_answer_that_breaks_off_is_void_and_the_next_models_stands(client: httpx.AsyncClient) -> None:
    whole = sse(answer_chunks("half of an answer"))
    broken = Reply(body=whole, cut_after=len(whole) // 2)
    async with Model(broken) as first:
        run = await played(client, first, [fallback(named("whole"))])
    by_message: dict[str, str] = {}
    for event in await events(client, run.run):
        if event["event"] == "output":
            message = event["data"]["message_id"]
            by_message[message] = by_message.get(message, "") + event["data"]["delta"]["text"]
    assert list(by_message.values())[-1] == "whole" == run.answer
    assert len(by_message) == 2


async def test_keys_are_shown_to_nobody_and_stay_where_they_are_left_out(client: httpx.AsyncClient) -> None:
    async with Model(fails(400, "down")) as first, Model("second") as second:
        spec = {
            "name": "twin",
            "model": openai(first.base_url),
            "middleware": [fallback(openai(second.base_url, api_key=KEY))],
        }
        made = (await client.post("/agents", json=spec)).json()
        assert KEY not in json.dumps(made)
        assert "secret_ref" not in json.dumps(made)
        (shown,) = made["middleware"]
        put = await client.put("/agents/twin", json={"model": openai(first.base_url), "middleware": [shown]})
        assert put.status_code == 200, put.text
        run = (await client.post("/runs/wait", json={"agent": "twin", "input": "hi"})).json()
        assert second.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert run["output"] == {"output": "second"}


@pytest.mark.parametrize(
    ("when", "context", "answer"),
    [
        ({"min_messages": 1}, {}, "other"),
        ({"min_messages": 2}, {}, "own"),
        ({"max_messages": 1}, {}, "other"),
        ({"min_tokens": 1000}, {}, "own"),
        ({"min_tokens": 2}, {}, "other"),
        ({"max_tokens": 2}, {}, "own"),
        ({"context": {"properties": {"tier": {"const": "gold"}}, "required": ["tier"]}}, {"tier": "gold"}, "other"),
        ({"context": {"properties": {"tier": {"const": "gold"}}, "required": ["tier"]}}, {"tier": "tin"}, "own"),
        ({"tool_effect": "write"}, {}, "own"),
        ({"min_messages": 1, "min_tokens": 1000}, {}, "own"),
        ({}, {}, "other"),
    ],
    ids=str,
)
async def test_the_first_rule_that_fits_names_the_model(
    client: httpx.AsyncClient, when: dict[str, Any], context: dict[str, Any], answer: str
) -> None:
    middleware: Sequence[object] = [chooses((when, named("other")), ({"min_messages": 99}, named("never")))]
    body = run_body(named("own"), text="a question of some words", agent={"middleware": middleware}, context=context)
    assert (await client.post("/runs/wait", json=body)).json()["output"] == {"output": answer}


@pytest.mark.parametrize(("tool", "answer"), [("pay", "careful"), ("echo", "own")])
async def test_the_effect_of_the_last_calls_can_choose(client: httpx.AsyncClient, tool: str, answer: str) -> None:
    made: list[Call] = [("c1", tool, {"x": "1"})]
    async with Model(made, "own") as model:
        run = await played(client, model, [chooses(({"tool_effect": "write"}, named("careful")))], "pay", "echo")
    assert run.answer == answer


@pytest.mark.parametrize(
    ("entry", "pointer"),
    [
        (fallback(), "/models"),
        (fallback("nonsense"), "/models/0"),
        (fallback(named("x"), {"provider": "openai"}), "/models/1"),
        (chooses(), "/rules"),
        (chooses(({"context": {"type": "nonsense"}}, named("x"))), "/rules/0/when/context"),
        (chooses(({"min_words": 1}, named("x"))), "/rules/0/when/min_words"),
        (chooses(({}, "nonsense")), "/rules/0/model"),
    ],
)
async def test_a_model_that_cannot_be_used_is_refused_at_its_place(
    client: httpx.AsyncClient, entry: dict[str, object], pointer: str
) -> None:
    refused = await client.post("/runs", json=run_body(named("x"), agent={"middleware": [entry]}))
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"].startswith(f"/agent/middleware/0/config{pointer}")
