"""Structured answers over HTTP: by tool, by provider and as text; the cases of `create_agent` by their ids."""

import json
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from langchain_core.load import load

from tests.support import anthropic_messages as anthropic
from tests.support.bodies import calls, openai, run_body, says, scripted, shown
from tests.support.chat_completions import ChatCompletionsServer, Reply, chunk, events
from tests.support.chat_completions import calls as model_calls
from tests.support.chat_completions import says as model_says
from tests.support.server import RunwireServer
from tests.support.streams import check_whole, read_events

pytestmark = pytest.mark.anyio

Body = dict[str, Any]

W: Body = {
    "title": "W",
    "type": "object",
    "properties": {"city": {"type": "string"}, "temp": {"type": "integer"}},
    "required": ["city", "temp"],
    "additionalProperties": False,
}
FITS = {"city": "HZ", "temp": 28}
HOT = {"city": "HZ", "temp": "hot"}
MISFIT = 'at /temp: expected an integer, got the text "hot"'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    folder = tmp_path_factory.mktemp("structured")
    with RunwireServer.open(folder, env={"RUNWIRE_PLUGINS": "tests.agent.case_tools"}) as running:
        yield running


@pytest.fixture
async def client(server: RunwireServer) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client() as opened:
        yield opened


def asked(*turns: Body, schema: Body = W, repeat: bool = False, **settings: object) -> Body:
    """A run of an agent with the tool `a` and a structured answer, on a scripted model."""
    agent = {"output_schema": schema, "output_strategy": "tool", **settings}
    if agent.get("type", "tool_calling") != "tool_calling":
        del agent["output_strategy"]
    return run_body(scripted(*turns, repeat=repeat), "a", agent=agent)


async def ran(client: httpx.AsyncClient, body: Body) -> tuple[Body, list[Body]]:
    """The finished run and its conversation. Every call in it has its one result."""
    answer = await client.post("/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    run = answer.json()
    messages = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    made = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    told = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert sorted(made) == sorted(told)
    return run, messages


def results(messages: list[Body]) -> list[tuple[str, str, str | None]]:
    return [(m["name"], m["content"], m.get("status")) for m in messages if m["role"] == "tool"]


def ended(run: Body) -> tuple[str, str, int]:
    return run["status"], run["stop_reason"], run["usage"]["model_calls"]


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


# --- by the provider's format --------------------------------------------------------------------------------------


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


# --- as text ---------------------------------------------------------------------------------------------------------

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


# --- the agent -------------------------------------------------------------------------------------------------------


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


# --- other models and planners ---------------------------------------------------------------------------------------


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
