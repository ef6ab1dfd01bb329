"""What a model writes and what a tool answers, where either tries to be something else."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.bodies import calls, openai, run_body, says, scripted, tool_spec
from tests.support.chat_completions import ChatCompletionsServer
from tests.support.chat_completions import calls as model_calls
from tests.support.chat_completions import says as model_says
from tests.support.receiver import Received, Receiver
from tests.support.server import TIMEOUT_S

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tool() -> AsyncIterator[Receiver]:
    async with Receiver.open() as opened:
        yield opened


DEEP = 10_000


@pytest.mark.parametrize(
    "arguments",
    [
        '{"__proto__": {"admin": true}}',
        '{"order": [{"deep": {"__proto__": 1}}]}',
        '{"\\u005f_proto__": 1}',
        '{"text": "a\\u0000b"}',
        '{"a\\u0000b": 1}',
        '{"a": ' + "[" * DEEP + "]" * DEEP + "}",
        '{"a":' * DEEP + "1" + "}" * DEEP,
        '{"n": 18446744073709551616}',
        '{"text": "\\ud800"}',
    ],
    ids=["proto", "deep proto", "escaped proto", "nul", "nul in a key", "arrays", "objects", "2^64", "surrogate"],
)
async def test_arguments_that_would_do_harm_are_an_observation_and_nothing_is_sent(
    client: httpx.AsyncClient, tool: Receiver, arguments: str
) -> None:
    async with ChatCompletionsServer([model_calls(("call_1", "free", arguments)), model_says("fine")]) as model:
        body = run_body(openai(model.base_url), tool_spec("free", tool.url))
        run = (await client.post("/runs/wait", json=body)).json()
    assert (run["status"], run["output"]) == ("success", {"output": "fine"})
    steps = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
    assert [step["status"] for step in steps] == ["error"]
    assert tool.connections == 0


async def test_an_answer_with_another_calls_id_changes_nothing_but_its_own_call(
    client: httpx.AsyncClient, tool: Receiver
) -> None:
    """Answers are matched by the connection they come on, not by what they say."""
    names = ("one", "two")

    def swapped(request: Received) -> tuple[int, object]:
        other = next(item.data["tool_call_id"] for item in tool.requests if item is not request)
        return 200, {"output": request.data["tool"], "tool_call_id": other}

    tool.hold = asyncio.Event()
    tool.answer = swapped
    specs = [tool_spec(name, tool.url) for name in names]
    body = run_body(scripted(calls(("one", {}), ("two", {})), says("done")), *specs)
    async with asyncio.timeout(TIMEOUT_S):
        waiting = asyncio.create_task(client.post("/runs/wait", json=body))
        await tool.until(2)
        tool.hold.set()
        run = (await waiting).json()
    assert run["status"] == "success"
    steps = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
    assert [step["action"]["tool"] for step in steps] == ["one", "two"]
    for step in steps:
        assert step["status"] == "success"
        assert step["observation"]["output"] == step["action"]["tool"]
        assert step["observation"]["tool_call_id"] != step["tool_call_id"]
