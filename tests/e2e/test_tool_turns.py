"""Calls that take turns, over real HTTP: one after another in call order, and honest about it when they are stopped."""

import asyncio
from uuid import uuid4

import httpx
import pytest

from tests.e2e.ledger import until_effects
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.server import TIMEOUT_S
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio


def new_name() -> str:
    return "t_" + uuid4().hex[:12]


PARAMETERS = {"properties": {"order": {"type": "string"}, "n": {"type": "integer"}}}


async def test_calls_of_one_key_run_one_after_another_in_call_order_across_tools(
    client: httpx.AsyncClient, own_tools: ToolServer
) -> None:
    pay, ship = new_name(), new_name()
    url = own_tools.url("/slow?ms=5")
    specs = [tool_spec(name, url, parameters=PARAMETERS, concurrency_key="order {order}") for name in (pay, ship)]
    wanted = [((pay, ship)[n % 2], {"order": "A", "n": n}) for n in range(10)]
    async with asyncio.timeout(TIMEOUT_S):
        run = (await client.post("/runs/wait", json=run_body(scripted(calls(*wanted), says("x")), *specs))).json()
    assert run["output"] == {"output": "x"}
    assert [item["arguments"]["n"] for item in own_tools.effects()] == list(range(10))  # pyright: ignore[reportIndexIssue, reportCallIssue, reportArgumentType]
    assert own_tools.stats()["most_at_once"] == 1


async def test_another_key_does_not_wait_and_a_waiting_call_is_not_sent(
    client: httpx.AsyncClient, own_tools: ToolServer
) -> None:
    name = new_name()
    spec = tool_spec(name, own_tools.url("/hold"), parameters=PARAMETERS, concurrency_key="order {order}")
    body = run_body(
        scripted(calls((name, {"order": "A"}), (name, {"order": "A"}), (name, {"order": "B"})), says("x")), spec
    )
    async with asyncio.timeout(TIMEOUT_S):
        run_id = (await client.post("/runs", json=body)).json()["id"]
        await until_effects(own_tools, name, count=2)
        steps = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
        running = (await client.get(f"/runs/{run_id}/steps/1")).json()["attempts"]
        waiting = (await client.get(f"/runs/{run_id}/steps/2")).json()["attempts"]
        own_tools.release()
        run = (await client.get(f"/runs/{run_id}/wait")).json()
    assert [step["status"] for step in steps] == ["running", "waiting", "running"]
    assert [(item["attempt"], item["outcome"], item["at"] is not None) for item in running] == [(1, "running", True)]
    assert waiting == []
    assert run["status"] == "success"
    assert sorted(str(item["arguments"]) for item in own_tools.effects()) == [
        "{'order': 'A'}", "{'order': 'A'}", "{'order': 'B'}",
    ]  # fmt: skip


async def test_no_more_calls_of_a_tool_run_at_once_than_it_takes_over_all_runs(
    client: httpx.AsyncClient, own_tools: ToolServer
) -> None:
    name = new_name()
    spec = tool_spec(name, own_tools.url("/slow?ms=20"), max_concurrency=3)
    body = run_body(scripted(calls(*[(name, dict[str, object]())] * 5), says("x")), spec)
    async with asyncio.timeout(TIMEOUT_S):
        answers = await asyncio.gather(*(client.post("/runs/wait", json=body) for _ in range(4)))
    assert {answer.json()["status"] for answer in answers} == {"success"}
    assert len(own_tools.effects()) == 20
    assert own_tools.stats()["most_at_once"] == 3


@pytest.mark.parametrize("how", ["cancel", "max_execution_time"])
async def test_a_call_stopped_while_it_waits_was_not_sent_and_the_line_goes_on(
    client: httpx.AsyncClient, own_tools: ToolServer, how: str
) -> None:
    name = new_name()
    spec = tool_spec(name, own_tools.url("/hold"), concurrency_key=f"all of {name}", timeout_s=60)
    turns = scripted(calls((name, {})), says("x"))
    limited = {"max_execution_time": 0.5} if how == "max_execution_time" else {}
    async with asyncio.timeout(TIMEOUT_S):
        first = (await client.post("/runs", json=run_body(turns, spec))).json()["id"]
        await until_effects(own_tools, name, count=1)
        second = (await client.post("/runs", json=run_body(turns, spec, agent=limited))).json()["id"]
        third = (await client.post("/runs", json=run_body(turns, spec))).json()["id"]
        if how == "cancel":
            await client.post(f"/runs/{second}/cancel", params={"wait": "true"})
        else:
            await client.get(f"/runs/{second}/wait")
        step = (await client.get(f"/runs/{second}/steps/1")).json()
        own_tools.release()
        ended = [(await client.get(f"/runs/{run_id}/wait")).json()["status"] for run_id in (first, third)]
    assert (step["status"], step["attempts"], step["started_at"]) == ("cancelled", [], None)
    assert "before it was sent" in step["observation"]
    assert ended == ["success", "success"]
    assert len(own_tools.effects()) == 2


async def test_waiting_for_a_turn_counts_against_neither_timeout_nor_deadline(
    client: httpx.AsyncClient, own_tools: ToolServer
) -> None:
    name = new_name()
    spec = tool_spec(name, own_tools.url("/slow?ms=150"), concurrency_key=name, timeout_s=0.6, deadline_s=0.7)
    body = run_body(scripted(calls(*[(name, dict[str, object]())] * 6), says("x")), spec)
    async with asyncio.timeout(TIMEOUT_S):
        run = (await client.post("/runs/wait", json=body)).json()
        steps = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
    assert [step["status"] for step in steps] == ["success"] * 6
