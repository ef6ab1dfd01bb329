"""Runs as they are read: created, waited for, listed, deleted, step by step."""

import asyncio

import httpx
import pytest

from tests.support.bodies import calls, openai, run_body, says, scripted, tool_spec
from tests.support.chat_completions import ChatCompletionsServer, Reply
from tests.support.server import TIMEOUT_S
from tests.support.streams import stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

HELLO = run_body(scripted(says("hello")))


async def test_a_posted_run_is_201_with_its_address_and_goes_on_alone(client: httpx.AsyncClient) -> None:
    made = await client.post("/runs", json={**HELLO, "metadata": {"ticket": "T-1"}})
    assert made.status_code == 201
    run = made.json()
    assert made.headers["location"] == f"/runs/{run['id']}"
    assert run["status"] in ("pending", "running", "success")
    done = await client.get(f"/runs/{run['id']}/wait", params={"timeout_s": 10})
    assert done.status_code == 200
    body = done.json()
    assert body["output"] == {"output": "hello"}
    assert (body["status"], body["stop_reason"], body["attempt"], body["iterations"]) == ("success", "finish", 1, 1)
    assert (body["error"], body["interrupts"], body["agent"], body["input"]) == (None, [], None, "go")
    assert body["metadata"] == {"ticket": "T-1"}
    assert body["usage"]["model_calls"] == 1
    assert body["created_at"] <= body["started_at"] <= body["finished_at"]
    assert (await client.get(made.headers["location"])).json() == body


async def test_post_and_wait_answers_with_the_finished_run(client: httpx.AsyncClient) -> None:
    answer = await client.post("/runs/wait", json=HELLO)
    assert answer.status_code == 200
    assert answer.json()["status"] == "success"
    assert answer.headers["content-location"] == f"/runs/{answer.json()['id']}"


async def test_waiting_longer_than_the_timeout_is_202(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer([Reply(silent=True)]) as model:
        run = (await client.post("/runs", json=run_body(openai(model.base_url)))).json()
        answer = await client.get(f"/runs/{run['id']}/wait", params={"timeout_s": 0.05})
        assert (answer.status_code, answer.json()["status"]) == (202, "running")
        assert (await client.delete(f"/runs/{run['id']}")).json()["code"] == "run_active"
        cancelled = await client.post(f"/runs/{run['id']}/cancel", params={"wait": "true"})
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        assert (await client.delete(f"/runs/{run['id']}")).status_code == 204
        assert (await client.get(f"/runs/{run['id']}")).status_code == 404
        assert (await client.delete(f"/runs/{run['id']}")).status_code == 404


async def test_pages_of_runs_hold_each_run_once_and_newest_first(client: httpx.AsyncClient) -> None:
    label = {"batch": "pages"}
    made = [(await client.post("/runs/wait", json={**HELLO, "metadata": label})).json()["id"] for _ in range(7)]
    for size in (1, 3, 7, 100):
        found: list[str] = []
        cursor: str | None = None
        while True:
            query = {"limit": size, "metadata.batch": "pages", **({"after": cursor} if cursor else {})}
            page = (await client.get("/runs", params=query)).json()
            found += [run["id"] for run in page["data"]]
            cursor = page["next_cursor"]
            assert page["has_more"] == (cursor is not None)
            if cursor is None:
                break
        assert found == made[::-1]


async def test_runs_are_filtered_by_status_agent_thread_and_metadata(client: httpx.AsyncClient) -> None:
    named = {"name": "filtered", "model": scripted(says("x"))}
    assert (await client.post("/agents", json=named)).status_code == 201
    good = {"agent": "filtered", "input": "go", "metadata": {"n": 3, "flag": True, "who": "me"}}
    run = (await client.post("/runs/wait", json=good)).json()
    bad = (await client.post("/runs/wait", json=run_body(scripted(), metadata={"n": 3, "who": "you"}))).json()
    assert (bad["status"], bad["error"]["code"]) == ("error", "script_exhausted")
    for query, expected in (
        ({"agent": "filtered"}, [run["id"]]),
        ({"thread_id": run["thread_id"]}, [run["id"]]),
        ({"metadata.n": "3", "metadata.who": "me"}, [run["id"]]),
        ({"metadata.flag": "true"}, [run["id"]]),
        ({"metadata.n": "3", "status": "error"}, [bad["id"]]),
        ({"metadata.n": "3"}, [bad["id"], run["id"]]),
        ({"agent": "filtered", "status": "running"}, []),
    ):
        page = (await client.get("/runs", params=query)).json()
        assert [item["id"] for item in page["data"]] == expected, query
    assert (await client.get("/runs", params={"status": "done"})).status_code == 422
    assert (await client.get("/runs", params={"limit": 0})).status_code == 422
    assert (await client.get("/runs", params={"limit": 101})).status_code == 422
    assert (await client.get("/runs", params={"metadata.a'b": "1"})).status_code == 422


async def test_steps_are_listed_while_their_tools_run(client: httpx.AsyncClient, own_tools: ToolServer) -> None:
    hold = tool_spec("hold_live", own_tools.url("/hold"), effect="read", timeout_s=15)
    turn = calls(("hold_live", {}), ("echo", {"text": "x"}), ("hold_live", {}))
    body = run_body(scripted(turn, says("done")), hold, "echo", agent={"max_parallel_tools": 2})
    async with (
        asyncio.timeout(TIMEOUT_S),
        stream(client, "POST", "/runs/stream", json=body) as reading,
    ):
        path = f"/runs/{(await reading.until('run')).data['run_id']}/steps"
        done = await reading.until("step")
        assert done.data["step"] == 2
        live = (await client.get(path)).json()["data"]
        assert [item["step"] for item in live] == [1, 2, 3]
        assert [item["status"] for item in live][:2] == ["running", "success"]
        assert live[2]["status"] in ("waiting", "running")
        assert [item["step"] for item in (await client.get(path, params={"status": "success"})).json()["data"]] == [2]
        running = (await client.get(path, params={"status": "running"})).json()["data"]
        assert [item["step"] for item in running][:1] == [1]
        own_tools.release()
        await reading.rest()
        listed = (await client.get(path)).json()["data"]
    assert [item["status"] for item in listed] == ["success"] * 3
    assert [item["action"]["tool"] for item in listed] == ["hold_live", "echo", "hold_live"]
    assert [item["step"] for item in (await client.get(path, params={"tool": "echo"})).json()["data"]] == [2]
    first = (await client.get(path, params={"limit": 2})).json()
    assert ([item["step"] for item in first["data"]], first["has_more"]) == ([1, 2], True)
    last = (await client.get(path, params={"limit": 2, "after": first["next_cursor"]})).json()
    assert ([item["step"] for item in last["data"]], last["has_more"]) == ([3], False)


async def test_one_step_tells_its_whole_chain_and_every_attempt(client: httpx.AsyncClient, tools: ToolServer) -> None:
    flaky = tool_spec("flaky_chain", tools.url("/503-then-ok"), effect="read")
    run = (
        await client.post("/runs/wait", json=run_body(scripted(calls(("flaky_chain", {})), says("ok")), flaky))
    ).json()
    step = (await client.get(f"/runs/{run['id']}/steps/1")).json()
    assert step["status"] == "success"
    assert [item["stage"] for item in step["chain"]] == [
        "intent", "validation", "authorization", "execution", "state_update",
    ]  # fmt: skip
    assert [(item["attempt"], item["http_status"]) for item in step["attempts"]] == [(1, 503), (2, 200)]
    assert step["envelope"]["ok"] is True
    effect = next(item for item in tools.effects() if item["tool"] == "flaky_chain")
    assert effect["idempotency_key"] == step["idempotency_key"]
    assert effect["tool_call_id"] == step["tool_call_id"]
    assert (await client.get(f"/runs/{run['id']}/steps/2")).json()["code"] == "step_not_found"
    assert (await client.get(f"/runs/{run['id']}/steps/x")).status_code == 422


async def test_intermediate_steps_come_with_the_run_when_the_agent_asks(client: httpx.AsyncClient) -> None:
    model = scripted(calls(("echo", {"text": "one"})), says("done"))
    with_steps = run_body(model, "echo", agent={"return_intermediate_steps": True})
    run = (await client.post("/runs/wait", json=with_steps)).json()
    assert [item["observation"] for item in run["intermediate_steps"]] == ["one"]
    assert "intermediate_steps" not in (await client.post("/runs/wait", json=run_body(model, "echo"))).json()


async def test_results_of_parallel_tools_reach_the_model_in_call_order(client: httpx.AsyncClient) -> None:
    turn = calls(("wait_for", {"ms": 300}), ("wait_for", {"ms": 150}), ("wait_for", {"ms": 1}))
    body = run_body(scripted(turn, says("done")), "wait_for")
    async with asyncio.timeout(TIMEOUT_S), stream(client, "POST", "/runs/stream", json=body) as reading:
        events = await reading.rest()
    assert [item.data["step"] for item in events if item.event == "step"] == [3, 2, 1]
    run_id = events[0].data["run_id"]
    told = (await client.get(f"/runs/{run_id}/messages")).json()["data"]
    results = [(item["tool_call_id"], item["content"]) for item in told if item["role"] == "tool"]
    assert results == [("call_1", "waited 300"), ("call_2", "waited 150"), ("call_3", "waited 1")]
    steps = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
    assert [item["observation"] for item in steps] == ["waited 300", "waited 150", "waited 1"]


async def test_the_messages_of_a_run_can_be_posted_again(client: httpx.AsyncClient) -> None:
    broken = {"tool_calls": [], "invalid_tool_calls": [{"id": "c", "name": "echo", "args": "{no", "error": "no JSON"}]}
    script = scripted(calls(("fail", {"message": "no"})), broken, says("done"))
    run = (await client.post("/runs/wait", json=run_body(script, "echo", "fail"))).json()
    shown = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    refused = {"role": "assistant", "content": None, "refusal": "I will not."}
    more = [*shown, {"role": "user", "content": "harm"}, refused, {"role": "user", "content": "and now?"}]
    assert {message.get("status") for message in shown if message["role"] == "tool"} == {"error"}
    assert "{no" in [call["args"] for message in shown for call in message.get("tool_calls", ())]
    again = (await client.post("/runs/wait", json=run_body(scripted(says("hi")), text={"messages": more}))).json()
    assert again["status"] == "success", again
    told = (await client.get(f"/runs/{again['id']}/messages")).json()["data"]
    assert told[:-1] == more


async def test_a_refusal_is_an_assistants(client: httpx.AsyncClient) -> None:
    text = {"messages": [{"role": "user", "content": "go", "refusal": "no"}]}
    answer = await client.post("/runs", json=run_body(scripted(says("hi")), text=text))
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/input/messages/0")
