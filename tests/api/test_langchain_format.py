"""`?format=langchain` over HTTP: what the server gives, the real `langchain_core.load` reads back."""

import json
import warnings
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from langchain_core.agents import AgentAction, AgentActionMessageLog
from langchain_core.load import load
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from tests.support.bodies import calls, run_body, says, scripted

pytestmark = pytest.mark.anyio

MARKER: dict[str, object] = {"lc": 1, "type": "secret", "id": ["HOME"]}
"""Data of a caller, a model or a tool that looks like LangChain's own form."""


async def loaded(client: httpx.AsyncClient, path: str, **query: str | int) -> Any:
    """The answer's body as LangChain makes it, without any class beyond its core ones."""
    answer = await client.get(path, params={"format": "langchain", **query})
    assert answer.status_code == 200, answer.text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `load` is a beta interface, says the peer
        return load(answer.json(), allowed_objects="core")


async def finished(client: httpx.AsyncClient, body: Mapping[str, object]) -> str:
    run = (await client.post("/runs/wait", json=body)).json()
    assert run["status"] == "success", run
    return run["id"]


async def test_a_round_of_calls_loads_as_actions_that_share_the_message_that_made_them(
    client: httpx.AsyncClient,
) -> None:
    model = scripted(
        {**calls(("echo", {"text": "1"}), ("fail", {"message": "boom"})), "content": "let me"},
        calls(("echo", {"text": "2"})),
        says("fin"),
    )
    run = await finished(client, run_body(model, "echo", "fail"))
    page = await loaded(client, f"/runs/{run}/steps")
    assert (page["has_more"], page["next_cursor"]) == (False, None)
    first, second, third = page["data"]
    assert (first["step"], first["iteration"], first["status"], first["observation"]) == (1, 1, "success", "1")
    assert (second["step"], second["iteration"], second["status"], second["observation"]) == (2, 1, "error", "boom")
    assert (third["step"], third["iteration"]) == (3, 2)
    assert [type(item["action"]) for item in page["data"]] == [AgentActionMessageLog] * 3
    assert (first["action"].tool, first["action"].tool_input) == ("echo", {"text": "1"})
    assert first["action"].log == '\nInvoking: `echo` with `{"text":"1"}`\nresponded: let me\n\n'
    said = AIMessage(
        "let me",
        tool_calls=[
            tool_call(name="echo", args={"text": "1"}, id="call_1"),
            tool_call(name="fail", args={"message": "boom"}, id="call_2"),
        ],
    )
    assert first["action"].message_log == second["action"].message_log == [said]
    assert [message.tool_calls[0]["args"] for message in third["action"].message_log] == [{"text": "2"}]


async def test_pages_and_filters_hold_for_the_langchain_form(client: httpx.AsyncClient) -> None:
    turns = [calls(("echo", {"text": str(number)})) for number in range(4)]
    run = await finished(
        client, run_body(scripted(*turns, calls(("fail", {"message": "no"})), says("x")), "echo", "fail")
    )
    seen: list[str] = []
    cursor = 0
    while True:
        page = await loaded(client, f"/runs/{run}/steps", limit=2, after=cursor, tool="echo")
        seen += [item["observation"] for item in page["data"]]
        assert all(item["action"].message_log[0].tool_calls for item in page["data"])
        if not page["has_more"]:
            break
        cursor = page["next_cursor"]
    assert seen == ["0", "1", "2", "3"]
    failed = await loaded(client, f"/runs/{run}/steps", status="error")
    assert [(item["step"], item["action"].tool) for item in failed["data"]] == [(5, "fail")]


async def test_a_text_agents_action_has_no_message_log(client: httpx.AsyncClient) -> None:
    text = "I look.\nAction: echo\nAction Input: foo"
    body = run_body(scripted(says(text), says("Final Answer: bar")), "echo", agent={"type": "react"})
    run = await finished(client, body)
    (step,) = (await loaded(client, f"/runs/{run}/steps"))["data"]
    assert type(step["action"]) is AgentAction
    assert step["action"] == AgentAction("echo", "foo", text)
    assert step["observation"] == "foo"


async def test_every_role_of_the_messages_loads_and_a_failed_call_has_its_status(client: httpx.AsyncClient) -> None:
    bad = {
        "tool_calls": [{"id": "c1", "name": "echo", "args": {"text": "1"}}, {"id": "c2", "name": "fail", "args": {"message": "boom"}}],
        "invalid_tool_calls": [{"id": "c3", "name": "echo", "args": "{oops"}],
    }  # fmt: skip
    run = await finished(
        client, run_body(scripted(bad, says("fin")), "echo", "fail", agent={"instructions": "sys"}, text="q?")
    )
    found = (await loaded(client, f"/runs/{run}/messages"))["data"]
    assert [type(message) for message in found] == [
        SystemMessage, HumanMessage, AIMessage, ToolMessage, ToolMessage, ToolMessage, AIMessage,
    ]  # fmt: skip
    assert [message.content for message in found[:3]] == ["sys", "q?", ""]
    assert [call["id"] for call in found[2].tool_calls] == ["c1", "c2"]
    assert [(call["id"], call["name"], call["args"]) for call in found[2].invalid_tool_calls] == [
        ("c3", "echo", "{oops")
    ]
    assert [(message.tool_call_id, message.status) for message in found[3:6]] == [
        ("c1", "success"), ("c2", "error"), ("c3", "error"),
    ]  # fmt: skip
    assert (found[4].content, found[6].content) == ("boom", "fin")


async def test_data_that_looks_like_langchains_form_is_given_back_as_data(client: httpx.AsyncClient) -> None:
    """A `secret` that is loaded as one would read the caller's environment."""
    whoami = {**calls(("whoami", {}), ("echo", {"text": "1", "more": MARKER}))}
    body = run_body(scripted(whoami, says("fin")), "whoami", "echo", context={"a": MARKER})
    run = await finished(
        client,
        {**body, "input": {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "a": MARKER}]}]}},
    )
    first, second = (await loaded(client, f"/runs/{run}/steps"))["data"]
    assert first["observation"]["context"] == {"a": MARKER}
    assert second["action"].tool_input == {"text": "1", "more": MARKER}
    assert second["action"].message_log[0].tool_calls[1]["args"] == {"text": "1", "more": MARKER}
    asked = (await loaded(client, f"/runs/{run}/messages"))["data"][0]
    assert asked.content == [{"type": "text", "text": "x", "a": MARKER}]


async def test_steps_of_a_run_that_goes_on_load_without_an_observation(client: httpx.AsyncClient) -> None:
    made = (
        await client.post(
            "/runs", json=run_body(scripted(calls(("echo", {"text": "1"}), ("hang", {}))), "echo", "hang")
        )
    ).json()
    async with client.stream("GET", f"/runs/{made['id']}/stream") as events:
        async for line in events.aiter_lines():
            if line == "event: step":
                break
    first, second = (await loaded(client, f"/runs/{made['id']}/steps"))["data"]
    assert (first["status"], first["observation"]) == ("success", "1")
    assert (second["status"], second["observation"]) == ("running", None)
    assert second["action"].message_log == first["action"].message_log
    await client.post(f"/runs/{made['id']}/cancel", params={"wait": "true"})


@pytest.mark.parametrize("what", ["steps", "messages"])
async def test_an_unknown_format_is_refused(client: httpx.AsyncClient, what: str) -> None:
    run = await finished(client, run_body(scripted(says("x"))))
    answer = await client.get(f"/runs/{run}/{what}", params={"format": "pickle"})
    assert answer.status_code == 422
    assert [item["pointer"] for item in answer.json()["errors"]] == ["/query/format"]


@pytest.mark.parametrize("what", ["steps", "messages"])
async def test_the_form_changes_nothing_about_whose_run_it_is(client: httpx.AsyncClient, what: str) -> None:
    answer = await client.get(f"/runs/0190a0a0-0000-7000-8000-000000000000/{what}", params={"format": "langchain"})
    assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found")


async def test_messages_as_they_are_read_can_be_posted_again(client: httpx.AsyncClient) -> None:
    run = await finished(client, run_body(scripted(calls(("fail", {"message": "boom"})), says("x")), "fail"))
    read = (await client.get(f"/runs/{run}/messages")).json()["data"]
    assert [message.get("status") for message in read] == [None, None, "error", None]
    again = await finished(
        client, {**run_body(scripted(says("y"))), "input": {"messages": [*read, {"role": "user", "content": "go"}]}}
    )
    history = (await client.get(f"/runs/{again}/messages")).json()["data"]
    assert history[:4] == json.loads(json.dumps(read))
