"""AgentExecutor's tool-calling agents, case by case, over HTTP on real model servers; where we differ the reason stands here."""

import ast
import json
import re
import warnings
from typing import Any, cast

import httpx
import pytest
from langchain_core.load import load

from tests.agent.cases import CASES
from tests.support import anthropic_messages as anthropic
from tests.support.bodies import openai, run_body, scripted, shown
from tests.support.chat_completions import ChatCompletionsServer, RecordedRequest, Reply, calls, says
from tests.support.streams import check_whole, read_events

pytestmark = pytest.mark.anyio

TOOLS = ("a", "b", "bad", "add", "found")


def reply_of(message: dict[str, Any]) -> Reply:
    """A recorded model message as a Chat Completions server streams it."""
    whole = [(call["id"], call["name"], json.dumps(call["args"])) for call in message.get("tool_calls", [])]
    broken = [(call["id"], call["name"], call["args"]) for call in message.get("invalid_tool_calls", [])]
    raw = [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("additional_kwargs", {}).get("tool_calls", [])
    ]
    made = [*whole, *broken, *raw]
    return calls(*made, content=message["content"]) if made else says(message["content"])


def as_json(value: Any) -> Any:
    """The peer's texts with JSON where they carry Python's form of a dict."""
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(re.sub(r"with `(\{.*?\})`", _in_json, text))


def _in_json(found: re.Match[str]) -> str:
    compact = json.dumps(ast.literal_eval(found[1]), ensure_ascii=False, separators=(",", ":"))
    return f"with `{json.dumps(compact)[1:-1]}`"


def seen_by_the_model(request: RecordedRequest) -> list[dict[str, Any]]:
    """A request's messages in the cases' words."""
    found: list[dict[str, Any]] = []
    for message in shown(request):
        kind = {"system": "system", "user": "human", "assistant": "ai", "tool": "tool"}[message["role"]]
        item: dict[str, Any] = {"type": kind, "content": message.get("content") or ""}
        if message.get("tool_calls"):
            item["tool_calls"] = [
                {
                    "name": call["function"]["name"],
                    "args": json.loads(call["function"]["arguments"]),
                    "id": call["id"],
                }
                for call in message["tool_calls"]
            ]
        if kind == "tool":
            item |= {"tool_call_id": message["tool_call_id"], "name": None, "status": "success"}
        found.append(item)
    return found


def body_of(model: object, **settings: object) -> dict[str, object]:
    return run_body(model, *TOOLS, text="q?", agent={"instructions": "sys", **settings})


async def ended(client: httpx.AsyncClient, body: object) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The run after its end, and its steps in detail."""
    answer = await client.post("/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    run = cast("dict[str, Any]", answer.json())
    steps = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
    return run, [(await client.get(f"/runs/{run['id']}/steps/{step['step']}")).json() for step in steps]


def action_of(step: dict[str, Any]) -> dict[str, Any]:
    """A step's action as the cases have it; `tool_call_id` is what the model said."""
    named = {name: step["action"][name] for name in ("tool", "tool_input", "log")}
    return {**named, "tool_call_id": step["provider_call_id"]}


# --- a message's calls become actions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case_id", ["A-T01", "A-T02", "A-T03", "A-T04", "A-T07"])
async def test_the_calls_of_an_answer_are_the_peers_actions(client: httpx.AsyncClient, case_id: str) -> None:
    case = CASES[case_id]
    async with ChatCompletionsServer([reply_of(case["given"]["message"]), says("fin")]) as model:
        run, steps = await ended(client, body_of(openai(model.base_url)))
    assert [{"action": action_of(step)} for step in steps] == as_json(case["expect"])
    assert run["output"] == {"output": "fin"}


@pytest.mark.parametrize("case_id", ["A-T06", "A-C06"])
async def test_arguments_that_are_no_json_are_given_back_to_the_model(client: httpx.AsyncClient, case_id: str) -> None:
    """The peer fails (A-T06), or ends with an empty answer (A-C06): the model can do better when it is told."""
    given = CASES[case_id]["given"]
    said = given["message"] if "message" in given else given["model_messages"][0]
    async with ChatCompletionsServer([reply_of(said), says("fin")]) as model:
        run, (step,) = await ended(client, body_of(openai(model.base_url)))
        again = shown(model.requests[1])
    assert (run["status"], run["output"], run["iterations"]) == ("success", {"output": "fin"}, 2)
    assert (step["status"], step["action"]["tool_input"]) == ("error", "{oops")
    assert "could not be read" in step["observation"]
    assert [message["role"] for message in again] == ["system", "user", "assistant", "tool"]
    assert (again[3]["tool_call_id"], again[3]["content"]) == ("c1", step["observation"])
    assert step["attempts"] == []


async def test_arguments_that_are_no_json_end_the_run_where_nothing_handles_it_A_T06(client: httpx.AsyncClient) -> None:
    async with ChatCompletionsServer([reply_of(CASES["A-T06"]["given"]["message"])]) as model:
        run, _ = await ended(client, body_of(openai(model.base_url), handle_parsing_errors=False))
        assert len(model.requests) == 1
    assert (run["status"], run["error"]["code"]) == ("error", "output_parsing_error")


async def test_one_unreadable_call_keeps_the_others_and_is_told_A_T09(client: httpx.AsyncClient) -> None:
    """The peer drops it silently, so the model waits for a result that never comes."""
    case = CASES["A-T09"]
    async with ChatCompletionsServer([reply_of(case["given"]["message"]), says("fin")]) as model:
        run, (good, bad) = await ended(client, body_of(openai(model.base_url)))
        again = shown(model.requests[1])
    assert [{"action": action_of(good)}] == as_json(case["expect"])
    assert (bad["action"]["tool"], bad["status"], bad["provider_call_id"]) == ("b", "error", "c2")
    assert [message["tool_call_id"] for message in again if message["role"] == "tool"] == ["c1", "c2"]
    assert run["output"] == {"output": "fin"}


async def test_text_in_blocks_stands_in_the_log_as_text_A_T11(client: httpx.AsyncClient) -> None:
    """The peer logs the blocks' Python form."""
    replies = [anthropic.answers(anthropic.text("hi"), anthropic.tool_use("c1", "a", {"x": 1})), anthropic.says("fin")]
    async with anthropic.messages_server(replies) as model:
        spec = {"provider": "anthropic", "model": "claude-test", "base_url": model.base_url}
        _, (step,) = await ended(client, body_of(spec))
    assert action_of(step) == {
        "tool": "a", "tool_input": {"x": 1}, "tool_call_id": "c1",
        "log": '\nInvoking: `a` with `{"x":1}`\nresponded: hi\n\n',
    }  # fmt: skip


async def test_a_long_text_beside_the_calls_is_logged_with_the_first_one_only(client: httpx.AsyncClient) -> None:
    for length, logged in ((2000, [True, True]), (2001, [True, False])):
        said = {
            "content": "x" * length,
            "tool_calls": [{"id": name, "name": name, "args": {"text": "1"}} for name in ("a", "b")],
        }
        _, steps = await ended(client, body_of(scripted(said, {"content": "fin"})))
        assert ["responded: " in step["action"]["log"] for step in steps] == logged


# --- whole agents -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case_id", ["A-C01", "A-C03", "A-C05"])
async def test_a_tool_calling_agent_shows_its_model_what_the_peers_does(
    client: httpx.AsyncClient, case_id: str
) -> None:
    """A-C05: the tool that fails has another name here."""
    text = json.dumps(CASES[case_id], ensure_ascii=False)
    if case_id == "A-C05":
        text = text.replace('"a"', '"bad"').replace("`a`", "`bad`")
    case = json.loads(text)
    expected = as_json(case["expect"])
    async with ChatCompletionsServer([reply_of(message) for message in case["given"]["model_messages"]]) as model:
        run, steps = await ended(client, body_of(openai(model.base_url), **case["given"]["settings"]))
        assert [seen_by_the_model(request) for request in model.requests] == expected["model_inputs"]
    assert run["output"] == {"output": expected["result"]["output"]}
    assert [[action_of(step), step["observation"]] for step in steps] == expected["result"]["intermediate_steps"]


async def test_a_failed_calls_message_says_so_A_C05(client: httpx.AsyncClient) -> None:
    """The peer's says `success`. Chat Completions has no place for it; LangChain's form, and ours, have."""
    said = {"tool_calls": [{"id": "c1", "name": "bad", "args": {"text": "1"}}]}
    run, _ = await ended(client, body_of(scripted(said, {"content": "fin"})))
    answer = await client.get(f"/runs/{run['id']}/messages", params={"format": "langchain"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `load` is a beta interface, says the peer
        told = load(answer.json(), allowed_objects="core")["data"][3]
    assert (told.type, told.content, told.status, told.tool_call_id) == ("tool", "boom", "error", "c1")
    assert (await client.get(f"/runs/{run['id']}/messages")).json()["data"][3]["status"] == "error"


async def test_a_rounds_actions_are_streamed_before_its_steps_A_C04(client: httpx.AsyncClient) -> None:
    """The peer's chunks repeat the whole message with each action; here `message_id` and `/messages` hold it once."""
    case = CASES["A-C04"]
    *rounds, last = case["expect"]["chunks"]
    async with ChatCompletionsServer([reply_of(message) for message in case["given"]["model_messages"]]) as model:
        answer = await client.post("/runs/stream", json=body_of(openai(model.base_url)))
        assert [seen_by_the_model(request) for request in model.requests] == case["expect"]["model_inputs"]
    events = read_events(answer.content)
    check_whole(events)
    told = [event for event in events if event.event in ("action", "step", "finish")]
    assert [event.event for event in told] == ["action", "action", "step", "step", "finish"]
    assert [
        {
            "tool": event.data["tool"],
            "tool_input": event.data["tool_input"],
            "log": event.data["log"],
            "tool_call_id": event.data["provider_call_id"],
        }
        for event in told[:2]
    ] == [action for chunk in rounds for action in chunk.get("actions", [])]
    assert len({event.data["message_id"] for event in told[:2]}) == 1
    steps = {str(cast("Any", event.data["action"])["tool"]): event.data["observation"] for event in told[2:4]}
    assert steps == {step["tool"]: step["observation"] for chunk in rounds for step in chunk.get("steps", [])}
    assert told[4].data["return_values"] == {"output": last["output"]}


async def test_an_answer_that_repeats_the_one_before_loses_no_history_A_C08(client: httpx.AsyncClient) -> None:
    """The peer's model sees its second call nowhere; here the repeated id becomes one of ours."""
    case = CASES["A-C08"]
    async with ChatCompletionsServer([reply_of(message) for message in case["given"]["model_messages"]]) as model:
        run, steps = await ended(client, body_of(openai(model.base_url)))
        third = seen_by_the_model(model.requests[2])
    assert [message["type"] for message in third] == ["system", "human", "ai", "tool", "ai", "tool"]
    asked = [call["id"] for message in third for call in message.get("tool_calls", [])]
    assert asked == [message["tool_call_id"] for message in third if message["type"] == "tool"]
    assert asked[0] == "c1"
    assert len(set(asked)) == 2
    assert [step["observation"] for step in steps] == ["a:1", "a:1"]
    assert run["output"] == {"output": "fin"}


async def test_a_shared_message_is_shown_once_then_a_result_for_each_call_A_M05(client: httpx.AsyncClient) -> None:
    """An object is shown as compact JSON without ASCII escapes."""
    made = calls(("c1", "a", '{"text": "1"}'), ("c2", "found", '{"text": "2"}'))
    async with ChatCompletionsServer([made, says("fin")]) as model:
        await ended(client, body_of(openai(model.base_url)))
        said, *results = seen_by_the_model(model.requests[1])[2:]
    assert (said["type"], [call["id"] for call in said["tool_calls"]]) == ("ai", ["c1", "c2"])
    _, *wanted = CASES["A-M05"]["expect"]["messages"]
    assert results == [{**wanted[0], "content": "a:1"}, {**wanted[1], "content": '{"k":"值"}'}]


# --- arguments and schemas --------------------------------------------------------------------------------------------


async def one_call(client: httpx.AsyncClient, tool_input: object, **settings: object) -> dict[str, Any]:
    """The one step of a run whose model calls `add` (text: as AgentExecutor's text agents do)."""
    if isinstance(tool_input, str):
        model = scripted({"content": f"Action: add\nAction Input: {tool_input}"}, {"content": "Final Answer: ok"})
        run, (step,) = await ended(client, body_of(model, type="react", **settings))
    else:
        said = {"tool_calls": [{"id": "c1", "name": "add", "args": tool_input}]}
        run, (step,) = await ended(client, body_of(scripted(said, {"content": "ok"}), **settings))
    assert run["output"] == {"output": "ok"}
    return step


@pytest.mark.parametrize("case_id", ["A-V02", "A-V04"])
async def test_a_missing_argument_is_told_to_the_model(client: httpx.AsyncClient, case_id: str) -> None:
    """A-V02: the peer's run fails. A-V04: its fixed text hides from the model what is missing."""
    tool_input = CASES[case_id]["given"]["planner"][0]["action"]["tool_input"]
    step = await one_call(client, tool_input)
    assert (step["status"], step["attempts"]) == ("error", [])
    assert "add was not called, its arguments do not fit its schema" in step["observation"]
    assert '"b"' in step["observation"]


@pytest.mark.parametrize("handling", [False, CASES["A-V04"]["given"]["tool"]["handle_validation_error"]])
async def test_what_does_not_fit_is_told_however_tool_errors_are_handled_A_V04(
    client: httpx.AsyncClient, handling: object
) -> None:
    """The peer's `handle_validation_error` is a tool's. Here nothing was called, so nothing of the tool has failed."""
    step = await one_call(client, {"a": 1}, handle_tool_errors=handling)
    assert "add was not called, its arguments do not fit its schema" in step["observation"]
    assert '"b"' in step["observation"]


async def test_an_extra_argument_is_refused_where_the_schema_says_so_A_V05(client: httpx.AsyncClient) -> None:
    """The peer drops it silently: the model never learns that what it asked for was not done."""
    case = CASES["A-V05"]
    step = await one_call(client, case["given"]["planner"][0]["action"]["tool_input"])
    assert (step["status"], step["attempts"]) == ("error", [])
    assert '"c"' in step["observation"]


async def test_arguments_in_a_text_are_read_as_arguments_A_V06(client: httpx.AsyncClient) -> None:
    """The peer takes any text for the first argument, and fails."""
    step = await one_call(client, CASES["A-V06"]["given"]["planner"][0]["action"]["tool_input"])
    assert (step["status"], step["observation"], step["action"]["tool_input"]) == ("success", 3, {"a": 1, "b": 2})


@pytest.mark.parametrize("case_id", ["A-088", "A-089"])
async def test_a_tool_of_one_text_takes_it_by_its_name_only(client: httpx.AsyncClient, case_id: str) -> None:
    """A-088: the peer's run fails. A-089: it takes any name, so a misread tool goes unnoticed."""
    said = {"id": "c1", "name": "a", "args": CASES[case_id]["given"]["planner"][0]["action"]["tool_input"]}
    run, (step,) = await ended(client, body_of(scripted({"tool_calls": [said]}, {"content": "ok"})))
    assert (step["status"], step["attempts"]) == ("error", [])
    assert "a was not called, its arguments do not fit its schema" in step["observation"]
    assert run["output"] == {"output": "ok"}
