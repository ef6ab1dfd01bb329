"""Bodies that cannot be taken: each is a problem document that names the place, never a 500, and the server goes on."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import cast

import httpx
import pytest

from tests.api.problems import check_problem
from tests.support.bodies import run_body, says, scripted, tool_spec
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
HELLO = run_body(scripted(says("hello")))
TOOL = tool_spec("a_tool", "https://tools.example.com/x")
JSON = {"Content-Type": "application/json"}


def agent(**more: object) -> dict[str, object]:
    return {**HELLO, "agent": {**cast("Mapping[str, object]", HELLO["agent"]), **more}}


BAD_RUNS: dict[str, tuple[object, str, str]] = {
    "unknown agent": ({"agent": "nobody", "input": "x"}, "unknown_agent", "/agent"),
    "unknown provider": (run_body("nothing:x"), "unknown_model", "/agent/model"),
    "no such model": (run_body({"provider": "gone", "model": "x"}), "unknown_model", "/agent/model/provider"),
    "not configured": (run_body("openai:gpt"), "model_not_configured", "/agent/model"),
    "unknown tool": (run_body(scripted(), "nothing"), "unknown_tool", "/agent/tools/0"),
    "unknown field": ({**HELLO, "wait": True}, "invalid_request", "/wait"),
    "unknown agent field": (agent(max_iteration=3), "invalid_request", "/agent/max_iteration"),
    "unknown model field": (run_body({**scripted(), "x": 1}), "invalid_request", "/agent/model/x"),
    "no input": ({"agent": HELLO["agent"]}, "invalid_request", "/input"),
    "no agent": ({"input": "x"}, "invalid_request", "/agent"),
    "no model": ({"agent": {}, "input": "x"}, "invalid_request", "/agent/model"),
    "both forms": ({**HELLO, "input": {"messages": [], "input": "x"}}, "invalid_request", "/input/input"),
    "empty messages": ({**HELLO, "input": {"messages": []}}, "invalid_request", "/input/messages"),
    "missing input key": ({**HELLO, "input": {"question": "x"}}, "missing_input", "/input/input"),
    "messages no list": ({**HELLO, "input": {"messages": "hi"}}, "invalid_request", "/input/messages"),
    "unknown role": (
        {**HELLO, "input": {"messages": [{"role": "god", "content": "x"}]}}, "invalid_request", "/input/messages/0/role",
    ),
    "result without call": (
        {**HELLO, "input": {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}},
        "invalid_request", "/input/messages/0/tool_call_id",
    ),
    "call without result": (
        {**HELLO, "input": {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "name": "t", "args": {}}]}]}},
        "invalid_request", "/input/messages/0/tool_calls/0",
    ),
    "two tools of one name": (run_body(scripted(), "echo", "echo"), "duplicate_tool", "/agent/tools/1"),
    "inline tool without url": (run_body(scripted(), {"name": "t", "http": {}}), "invalid_request", "/agent/tools/0/http/url"),
    "negative iterations": (agent(max_iterations=-1), "invalid_request", "/agent/max_iterations"),
    "text for a number": (agent(max_iterations="3"), "invalid_request", "/agent/max_iterations"),
    "negative time": ({**HELLO, "config": {"max_execution_time": -1}}, "invalid_request", "/config/max_execution_time"),
    "wrong choice": ({**HELLO, "on_disconnect": "maybe"}, "invalid_request", "/on_disconnect"),
    "wrong event type": ({**HELLO, "stream": ["tokens"]}, "invalid_request", "/stream/0"),
    "thread no text": ({**HELLO, "thread_id": 3}, "invalid_request", "/thread_id"),
    "metadata no object": ({**HELLO, "metadata": ["x"]}, "invalid_request", "/metadata"),
    "unknown type": (agent(type="wizard"), "unknown_agent_type", "/agent/type"),
    "a prompt for no text agent": (agent(prompt="Say {input}"), "invalid_request", "/agent/prompt"),
    "unknown plugin": (agent(handle_parsing_errors={"plugin": "x"}), "unknown_plugin", "/agent/handle_parsing_errors/plugin"),
    "approval of no tool": (agent(interrupt_on={"nothing": True}), "unknown_tool", "/agent/interrupt_on/nothing"),
    "null": (None, "invalid_request", ""),
    "array": ([HELLO], "invalid_request", ""),
    "text": ("run", "invalid_request", ""),
}  # fmt: skip

NOT_BUILT = ("/webhook",)
"""Fields of the contract, by their places in a run."""


@pytest.mark.parametrize("name", BAD_RUNS)
@pytest.mark.parametrize("path", ["/runs", "/runs/stream"])
async def test_a_wrong_run_is_refused_by_the_place_that_is_wrong(
    client: httpx.AsyncClient, name: str, path: str
) -> None:
    body, code, pointer = BAD_RUNS[name]
    check_problem(await client.post(path, content=json.dumps(body), headers=JSON), 422, code, pointer)


def with_field(pointer: str, value: object) -> dict[str, object]:
    name = pointer.rpartition("/")[2]
    return agent(**{name: value}) if pointer.startswith("/agent/") else {**HELLO, name: value}


@pytest.mark.parametrize(
    "value", [{}, {"a": 1}, [[]], ["pii"], [{"name": "pii"}], "", "x", 0, 1, False, True], ids=repr
)
@pytest.mark.parametrize("pointer", NOT_BUILT)
async def test_what_is_not_built_is_refused_whatever_it_holds(
    client: httpx.AsyncClient, pointer: str, value: object
) -> None:
    check_problem(await client.post("/runs", json=with_field(pointer, value)), 422, "not_supported", pointer)


@pytest.mark.parametrize("pointer", NOT_BUILT)
async def test_the_default_of_what_is_not_built_is_taken(client: httpx.AsyncClient, pointer: str) -> None:
    """A body with every field of the document, left as they are, is one that works."""
    answer = await client.post("/runs", json=with_field(pointer, None))
    assert answer.status_code == 201, answer.text


def test_the_documents_say_what_is_not_built() -> None:
    page = (ROOT / "docs" / "agents.md").read_text("utf-8").rpartition("## Not supported")[2]
    assert {pointer.rpartition("/")[2] for pointer in NOT_BUILT} <= set(re.findall(r"`(\w+)`", page))


def inside(value: str) -> bytes:
    """A run body with `value` as it is, unescaped, in its metadata."""
    return (
        json.dumps({**HELLO, "metadata": {"x": "@"}}).encode().replace(b'"@"', value.encode("utf-8", "surrogatepass"))
    )


UNREADABLE: dict[str, bytes] = {
    "empty": b"",
    "blank": b"  ",
    "cut": json.dumps(HELLO).encode()[:-1],
    "two values": b"{} {}",
    "NaN": inside("NaN"),
    "Infinity": inside("-Infinity"),
    "lone surrogate escape": inside('"\\ud800"'),
    "lone surrogate bytes": inside('"\ud800"'),
    "latin-1": inside('"@"').replace(b'"@"', b'"\xe9"'),
    "utf-16": json.dumps(HELLO).encode("utf-16"),
    "U+0000": inside('"a\\u0000b"'),
    "U+0000 in a key": inside('{"a\\u0000b": 1}'),
    "2^63": inside(str(2**63)),
    "2^64": inside(str(2**64)),
    "-2^63-1": inside(str(-(2**63) - 1)),
    "1e400": inside("1e400"),
    "depth 100": inside("[" * 100 + "]" * 100),
    "depth 900": inside("[" * 900 + "]" * 900),
    "depth 10000": inside("[" * 10_000 + "]" * 10_000),
    "depth 10000 of objects": inside('{"a":' * 10_000 + "1" + "}" * 10_000),
    "not closed": b"[" * 200_000,
}


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("path", ["/runs", "/agents", "/tools", "/tools/echo/invoke"])
async def test_a_body_that_cannot_be_kept_is_422(client: httpx.AsyncClient, name: str, path: str) -> None:
    check_problem(await client.post(path, content=UNREADABLE[name], headers=JSON), 422)


async def test_numbers_and_texts_at_the_border_are_kept_as_they_are(client: httpx.AsyncClient) -> None:
    metadata: dict[str, object] = {
        "max": 2**63 - 1,
        "min": -(2**63),
        "text": "\u2028\u0001 😀",
        "deep": [[[[]]]],
        "float": 0.1,
        "none": None,
    }
    answer = await client.post("/runs", json={**HELLO, "metadata": metadata})
    assert answer.status_code == 201, answer.text
    assert (await client.get(answer.headers["location"])).json()["metadata"] == metadata


async def five_megabytes() -> AsyncIterator[bytes]:
    for _ in range(80):
        yield b" " * 65536


async def test_a_body_over_the_limit_is_413_however_it_is_sent(client: httpx.AsyncClient) -> None:
    big = b'{"input":"' + b"x" * 5_000_000 + b'"}'
    for path in ("/runs", "/runs/stream", "/agents", "/tools"):
        check_problem(await client.post(path, content=big, headers=JSON), 413, "payload_too_large")
    check_problem(await client.post("/runs", content=five_megabytes(), headers=JSON), 413, "payload_too_large")
    just = json.dumps({**HELLO, "input": "x" * 1_000_000})
    assert (await client.post("/runs", content=just, headers=JSON)).status_code == 201


@pytest.mark.parametrize(
    "media_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""]
)
async def test_only_json_is_taken(client: httpx.AsyncClient, media_type: str | None) -> None:
    headers = {} if media_type is None else {"Content-Type": media_type}
    for path in ("/runs", "/agents", "/tools"):
        answer = await client.post(path, content=json.dumps(HELLO), headers=headers)
        check_problem(answer, 415, "unsupported_media_type")
    parameters = {"Content-Type": 'Application/JSON; charset="utf-8"'}
    assert (await client.post("/runs", content=json.dumps(HELLO), headers=parameters)).status_code == 201


async def test_a_lang_chain_marker_stays_plain_data(client: httpx.AsyncClient) -> None:
    marker: dict[str, object] = {"lc": 1, "type": "constructor", "id": ["langchain", "x"], "kwargs": {}}
    run = (await client.post("/runs", json={**HELLO, "metadata": {"m": marker}})).json()
    assert run["metadata"] == {"m": marker}


async def test_after_all_that_the_server_works_and_its_log_has_no_trace(
    client: httpx.AsyncClient, server: RunwireServer
) -> None:
    assert (await client.post("/runs/wait", json=HELLO)).json()["status"] == "success"
    assert "Traceback" not in server.log()
