"""What the peers lose or do twice, case by case, over HTTP: two answers, two messages, a restart, another identity."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.agent_loop.support import Call, Model, posted
from tests.support.bodies import openai, run_body, tool_spec
from tests.support.server import OTHER, TIMEOUT_S, RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

PAY: list[Call] = [("c1", "pay", {"a": 1})]


async def test_of_two_equal_answers_at_once_one_wins_and_the_tool_runs_once_B_541(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    spec = tool_spec("pay", tools.url("/ok?ms=100"), requires_approval=True)
    async with Model(PAY, "done", "done2") as model:
        played = await posted(client, model, spec)
        answers = await asyncio.gather(*(played.resume({"decision": "approve"}) for _ in range(2)))
        await played.again()
    assert sorted(answer.status_code for answer in answers) == [202, 409]
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} <= {
        "interrupt_resolved", "run_not_interrupted",
    }  # fmt: skip
    assert await played.effects(tools) == [("pay", {"a": 1})]
    assert (played.answer, played.model_calls) == ("done", 2)


@pytest.mark.parametrize("strategy", ["reject", "enqueue"])
async def test_of_two_messages_at_once_on_one_thread_none_is_lost_B_542(
    client: httpx.AsyncClient, strategy: str
) -> None:
    async with asyncio.timeout(2 * TIMEOUT_S), Model("start", "re") as model:
        started = await posted(client, model)
        thread_id = started.run["thread_id"]
        bodies = [
            run_body(openai(model.base_url), text=text, thread_id=thread_id, multitask_strategy=strategy)
            for text in ("A", "B")
        ]
        answers = await asyncio.gather(*(client.post("/runs", json=body) for body in bodies))
        taken: list[dict[str, Any]] = [answer.json() for answer in answers if answer.status_code == 201]
        refused = [answer.json()["code"] for answer in answers if answer.status_code != 201]
        for run in taken:
            ended = await client.get(f"/runs/{run['id']}/wait", params={"timeout_s": TIMEOUT_S})
            assert ended.json()["status"] == "success"
    kept = [item["content"] for item in (await started.state())["messages"][2:]]
    assert (len(taken) + len(refused), set(refused) <= {"thread_busy"}) == (2, True)
    assert strategy == "reject" or not refused
    assert len(kept) == 2 * len(taken)
    assert kept[1::2] == ["re"] * len(taken)
    assert len(set(kept[::2])) == len(taken)


async def test_an_answer_after_a_kill_is_taken_up_where_the_run_stood_B_543(tmp_path: Path) -> None:
    with ToolServer.start(tmp_path) as tools, RunwireServer.open(tmp_path) as server:
        spec = tool_spec("pay", tools.url("/ok"), requires_approval=True)
        async with Model(PAY, "after restart") as model:
            async with server.client() as client:
                played = await posted(client, model, spec)
                assert len(played.run["interrupts"]) == 1
            server.kill()
            server.start()
            async with server.client() as client:
                played.client = client
                await played.resumed({"decision": "approve"})
                assert await played.effects(tools) == [("pay", {"a": 1})]
            assert (played.answer, played.model_calls) == ("after restart", 2)


async def test_a_runs_context_and_caller_are_its_own_also_after_an_answer_B_522(
    client: httpx.AsyncClient, server: RunwireServer
) -> None:
    async with Model([("c1", "who", {})], "ok") as model:
        played = await posted(client, model, "who", context={"user": "alice"})
        answer = {"interrupt_id": played.run["interrupts"][0]["id"], "decision": "approve"}
        path = f"/runs/{played.run['id']}/resume"
        other = await client.post(path, json={"responses": [answer], "context": {"user": "mallory"}})
        assert (other.status_code, other.json()["errors"][0]["pointer"]) == (422, "/context")
        async with server.client(OTHER) as stranger:
            assert (await stranger.post(path, json={"responses": [answer]})).status_code == 404
        await played.resumed({"decision": "approve"})
    assert (await played.step())["observation"] == {"user": "alice"}
