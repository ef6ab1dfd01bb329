"""Structured answers by the provider's format and as text, over HTTP; the cases of `create_agent` by their ids."""

import json
from typing import Any

import httpx
import pytest

from tests.agent.structured import FITS, HOT, MISFIT, Body, W, asked, ended, ran
from tests.support.bodies import openai, run_body, says, shown
from tests.support.chat_completions import ChatCompletionsServer, Reply, chunk, events
from tests.support.chat_completions import calls as model_calls
from tests.support.chat_completions import says as model_says

pytestmark = pytest.mark.anyio


async def test_b_450_a_provider_is_given_the_schema_and_its_text_is_parsed(client: httpx.AsyncClient) -> None:
    async with ChatCompletionsServer([model_says(json.dumps(FITS))]) as model:
        agent = {"output_schema": W, "output_strategy": "provider"}
        run, messages = await ran(client, run_body(openai(model.base_url), "a", agent=agent))
        (request,) = (seen.json for seen in model.requests)
    assert run["output"] == {"output": json.dumps(FITS), "structured": FITS}
    assert request["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "W", "schema": W, "strict": True},
    }
    assert request["tool_choice"] == "auto"
    offered: Any = request["tools"]
    assert [tool["function"]["name"] for tool in offered] == ["a"]
    assert messages[-1] == {"role": "assistant", "content": json.dumps(FITS)}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("not json", "it is not JSON", id="B-451"),
        pytest.param('{"city":"HZ"}', 'at the top: the property "temp" is missing', id="B-452"),
    ],
)
async def test_a_providers_misfit_is_told_and_mended(client: httpx.AsyncClient, text: str, fault: str) -> None:
    async with ChatCompletionsServer([model_says(text), model_says(json.dumps(FITS))]) as model:
        agent = {"output_schema": W, "output_strategy": "provider"}
        run, _ = await ran(client, run_body(openai(model.base_url), agent=agent))
        second = shown(model.requests[1])
    assert run["output"]["structured"] == FITS
    assert run["iterations"] == 2
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert second[1]["content"] == text
    assert fault in second[2]["content"]
    assert second[2].keys() == {"role", "content"}


async def test_a_provider_works_beside_ordinary_calls_and_at_a_limit(client: httpx.AsyncClient) -> None:
    replies = [model_calls(("c1", "a", '{"text":"x"}')), model_says(json.dumps(FITS))]
    for extra in ({}, {"max_iterations": 1, "early_stopping_method": "generate"}):
        async with ChatCompletionsServer(replies) as model:
            agent = {"output_schema": W, "output_strategy": "provider", **extra}
            run, _ = await ran(client, run_body(openai(model.base_url), "a", agent=agent))
            assert run["output"]["structured"] == FITS
            assert all("response_format" in request.json for request in model.requests)


@pytest.mark.parametrize(
    ("model_name", "by_format"), [("gpt-4o-mini", True), ("gpt-4o-2024-05-13", False), ("llama-3", False)]
)
async def test_auto_is_the_providers_way_where_the_model_is_known_for_it(
    client: httpx.AsyncClient, model_name: str, by_format: bool
) -> None:
    reply = model_says(json.dumps(FITS)) if by_format else model_calls(("c1", "W", json.dumps(FITS)))
    async with ChatCompletionsServer([reply]) as model:
        spec = openai(model.base_url, model=model_name)
        run, _ = await ran(client, run_body(spec, agent={"output_schema": W}))
        assert ("response_format" in model.requests[0].json) is by_format
    assert run["output"]["structured"] == FITS


async def test_a_refusal_ends_the_run_and_says_so(client: httpx.AsyncClient) -> None:
    refused = [chunk({"role": "assistant", "refusal": "I won't."}), chunk({}, finish="stop")]
    async with ChatCompletionsServer([Reply(body=events(refused))]) as model:
        agent = {"output_schema": W, "output_strategy": "provider"}
        run, _ = await ran(client, run_body(openai(model.base_url), agent=agent))
    assert run["output"] == {"output": "I won't.", "refusal": True}
    assert run["iterations"] == 1


FINAL = {
    "react": "Final Answer: {}",
    "react_json": "Final Answer: {}",
    "structured_chat": '{{"action": "Final Answer", "action_input": {}}}',
    "xml": "<final_answer>{}</final_answer>",
    "self_ask": "So the final answer is: {}",
}


@pytest.mark.parametrize("kind", sorted(FINAL))
@pytest.mark.parametrize("fence", ["", "```json\n"])
async def test_a_text_agents_answer_must_fit(client: httpx.AsyncClient, kind: str, fence: str) -> None:
    def final(value: object) -> Body:
        text = json.dumps(value)
        if fence and kind not in ("structured_chat", "self_ask"):  # one is JSON itself, one reads a line
            text = f"{fence}{text}\n```"
        return says(FINAL[kind].format(text))

    run, _ = await ran(client, asked(final(HOT), final(FITS), type=kind))
    assert ended(run) == ("success", "finish", 2)
    assert run["output"]["structured"] == FITS
    steps = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
    assert [step["action"]["tool"] for step in steps] == ["_Exception"]
    assert MISFIT in steps[0]["observation"]


async def test_a_text_agent_is_told_the_schema_and_its_misfit(client: httpx.AsyncClient) -> None:
    async with ChatCompletionsServer(
        [model_says("Final Answer: no"), model_says(f"Final Answer: {json.dumps(FITS)}")]
    ) as model:
        agent = {"type": "react", "output_schema": W, "instructions": "Be kind."}
        run, _ = await ran(client, run_body(openai(model.base_url), "a", agent=agent))
        first, second = shown(model.requests[0]), shown(model.requests[1])
    assert run["output"]["structured"] == FITS
    assert first[0]["role"] == "system"
    assert first[0]["content"].startswith("Be kind.\n\nThe final answer must be JSON that fits")
    assert json.dumps(W, separators=(",", ":")) in first[0]["content"]
    assert "it is not JSON" in second[-1]["content"]


async def test_a_text_that_is_asked_for_needs_no_quotes(client: httpx.AsyncClient) -> None:
    run, _ = await ran(client, asked(says("Final Answer: plain"), schema={"type": "string"}, type="react"))
    assert run["output"] == {"output": "plain", "structured": "plain"}
