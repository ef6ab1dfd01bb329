"""Settings of a run: limits that stop it, errors that end it, overrides that change it."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.support.bodies import calls, openai, run_body, says, scripted, tool_spec
from tests.support.chat_completions import ChatCompletionsServer, Reply
from tests.support.server import TIMEOUT_S
from tests.support.streams import check_whole, read_events
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

LOOP = scripted(calls(("echo", {"text": "again"}), usage={"input_tokens": 10, "output_tokens": 5}), repeat=True)


async def finished(client: httpx.AsyncClient, body: Mapping[str, object]) -> dict[str, Any]:
    async with asyncio.timeout(TIMEOUT_S):
        return (await client.post("/runs/wait", json=body)).json()


async def test_max_iterations_stops_with_success_and_says_so(client: httpx.AsyncClient) -> None:
    run = await finished(client, run_body(LOOP, "echo", agent={"max_iterations": 2}))
    assert (run["status"], run["stop_reason"], run["iterations"]) == ("success", "max_iterations", 2)
    assert run["output"] == {"output": "Agent stopped due to max iterations."}
    assert len((await client.get(f"/runs/{run['id']}/steps")).json()["data"]) == 2
    none = await finished(client, run_body(LOOP, "echo", agent={"max_iterations": 0}))
    assert (none["stop_reason"], none["iterations"]) == ("max_iterations", 0)


async def test_no_model_call_follows_the_time_limit(client: httpx.AsyncClient) -> None:
    """Timers may fire up to a millisecond early: the clock then still says that there is time."""
    turn = calls(("echo", {"text": "kept"}), ("hang", {}))
    bodies = [
        run_body(scripted(turn), "echo", "hang", agent={"max_execution_time": 0.001 + ms / 3000}) for ms in range(60)
    ]
    runs = [await finished(client, body) for body in bodies]
    assert {(run["stop_reason"], run["error"] and run["error"]["code"]) for run in runs} == {
        ("max_execution_time", None)
    }


async def test_max_execution_time_keeps_the_steps_that_finished_before(client: httpx.AsyncClient) -> None:
    turn = calls(("echo", {"text": "kept"}), ("hang", {}))
    run = await finished(client, run_body(scripted(turn), "echo", "hang", agent={"max_execution_time": 0.4}))
    assert (run["status"], run["stop_reason"]) == ("success", "max_execution_time")
    steps = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
    assert [(step["status"], step["error"] and step["error"]["code"]) for step in steps] == [
        ("success", None),
        ("timeout", "time_limit"),
    ]
    assert steps[0]["observation"] == "kept"


async def test_max_execution_time_ends_a_model_that_does_not(client: httpx.AsyncClient) -> None:
    async with ChatCompletionsServer([Reply(silent=True)]) as model:
        run = await finished(client, run_body(openai(model.base_url), agent={"max_execution_time": 0.2}))
    assert (run["status"], run["stop_reason"]) == ("success", "max_execution_time")


async def test_a_tools_own_timeout_is_not_the_runs(client: httpx.AsyncClient, tools: ToolServer) -> None:
    slow = tool_spec("own_timeout", tools.url("/never"), effect="read", timeout_s=0.1, retry={"max_attempts": 1})
    body = run_body(scripted(calls(("own_timeout", {})), says("went on")), slow, agent={"max_execution_time": 15})
    run = await finished(client, body)
    assert (run["stop_reason"], run["output"]) == ("finish", {"output": "went on"})
    step = (await client.get(f"/runs/{run['id']}/steps/1")).json()
    assert (step["status"], step["error"]["code"]) == ("timeout", "tool_timeout")


async def test_usage_limits_stop_the_run(client: httpx.AsyncClient) -> None:
    tokens = await finished(client, run_body(LOOP, "echo", agent={"limits": {"max_total_tokens": 40}}))
    assert (tokens["stop_reason"], tokens["iterations"]) == ("usage_limit", 3)
    call_cap = await finished(client, run_body(LOOP, "echo", agent={"limits": {"max_tool_calls": 2}}))
    assert (call_cap["status"], call_cap["stop_reason"]) == ("success", "usage_limit")
    steps = (await client.get(f"/runs/{call_cap['id']}/steps")).json()["data"]
    assert [step["status"] for step in steps] == ["success", "success", "error"]


async def test_return_direct_makes_the_observation_the_answer(client: httpx.AsyncClient) -> None:
    run = await finished(client, run_body(scripted(calls(("direct", {"text": "as it is"}))), "direct"))
    assert (run["status"], run["stop_reason"], run["output"]) == ("success", "return_direct", {"output": "as it is"})


async def test_tool_errors_are_observations_texts_or_the_end(client: httpx.AsyncClient) -> None:
    model = scripted(calls(("fail", {"message": "No such order."})), says("sorry"))

    async def with_handling(choice: object) -> tuple[dict[str, Any], str]:
        run = await finished(client, run_body(model, "fail", agent={"handle_tool_errors": choice}))
        return run, (await client.get(f"/runs/{run['id']}/steps/1")).json()["observation"]

    assert (await with_handling(True))[1] == "No such order."
    run, observation = await with_handling("Try something else.")
    assert (run["status"], observation) == ("success", "Try something else.")
    failed, _ = await with_handling(False)
    assert failed["status"] == "error"
    assert failed["error"]["code"] == "tool_error"
    check_whole(read_events((await client.get(f"/runs/{failed['id']}/stream")).content))


async def test_an_accident_in_a_tool_shows_no_internals(client: httpx.AsyncClient) -> None:
    body = run_body(scripted(calls(("crash", {"secret": "s3cr3t-word"})), says("ok")), "crash")
    run = await finished(client, body)
    step = (await client.get(f"/runs/{run['id']}/steps/1")).json()
    assert (step["status"], run["status"]) == ("error", "success")
    assert "internal detail" not in str(step["observation"]) + str(step["envelope"])
    assert step["error"]["request_id"]


async def test_config_overrides_the_agent_for_one_run(client: httpx.AsyncClient) -> None:
    agent = {
        "name": "overridden",
        "model": LOOP,
        "tools": ["echo"],
        "max_iterations": 5,
        "limits": {"max_tool_calls": 9},
    }
    assert (await client.put("/agents/overridden", json=agent)).status_code in (200, 201)
    body = {"agent": "overridden", "input": "go", "config": {"max_iterations": 1, "return_intermediate_steps": True}}
    run = await finished(client, body)
    assert (run["agent"], run["iterations"], len(run["intermediate_steps"])) == ("overridden", 1, 1)
    lowered = await finished(client, {**body, "config": {"limits": {"max_tool_calls": 1}}})
    assert lowered["stop_reason"] == "usage_limit"
    for limits in ({"max_tool_calls": 10}, {"max_tool_calls": None}, {"max_tool_calls_per_round": 129}):
        raised = await client.post("/runs", json={**body, "config": {"limits": limits}})
        assert raised.status_code == 422
        assert raised.json()["errors"][0]["pointer"].startswith("/config/limits/max_tool_calls")
    unknown = await client.post("/runs", json={**body, "config": {"max_iteration": 1}})
    assert unknown.json()["errors"] == [{"pointer": "/config/max_iteration", "detail": "unknown field"}]


async def test_a_run_keeps_the_agent_it_began_with(client: httpx.AsyncClient) -> None:
    turn = calls(("wait_for", {"ms": 200}))
    await client.put("/agents/versioned", json={"model": scripted(turn, says("old")), "tools": ["wait_for"]})
    run = (await client.post("/runs", json={"agent": "versioned", "input": "go"})).json()
    replaced = await client.put("/agents/versioned", json={"model": scripted(says("new")), "tools": []})
    assert replaced.json()["version"] == 2
    assert (await client.get(f"/runs/{run['id']}/wait")).json()["output"] == {"output": "old"}
    assert (await finished(client, {"agent": "versioned", "input": "go"}))["output"] == {"output": "new"}
    assert (await client.delete("/agents/versioned")).status_code == 204
    assert (await client.get("/agents/versioned")).status_code == 404
    gone = await client.post("/runs", json={"agent": "versioned", "input": "go"})
    assert (gone.status_code, gone.json()["code"]) == (422, "unknown_agent")


async def test_a_run_without_stream_output_tells_no_pieces(client: httpx.AsyncClient) -> None:
    body = run_body(scripted(says("quiet")), agent={"stream_output": False})
    events = read_events((await client.post("/runs/stream", json=body)).content)
    assert [item.event for item in events] == ["run", "usage", "finish", "end"]
