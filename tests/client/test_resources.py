"""Everything that a client reads and registers, on a real server."""

import asyncio

import pytest

from app.client import Conflict, InvalidRequest, NotFound
from tests.client.conftest import Connect
from tests.support.bodies import calls, says, scripted, tool_spec
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

TIMEOUT_S = 60.0
TWO_STEPS = {
    "model": scripted(calls(("echo", {"text": "a"})), calls(("fail", {"message": "no"})), says("done")),
    "tools": ["echo", "fail"],
}


async def test_a_run_is_read_in_every_way(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        posted = await client.runs.create(
            TWO_STEPS, {"input": "go", "chat_history": []}, context={"locale": "de"}, metadata={"read": "all"},
            config={"return_intermediate_steps": True}, on_disconnect="continue",
        )  # fmt: skip
        run = await client.runs.wait_for(posted.id, timeout_s=30)
        assert run == await client.runs.get(posted.id)
        assert (run.text, run.ok, run.stop_reason, run.iterations) == ("done", True, "finish", 3)
        assert run.created_at is not None
        assert run.finished_at is not None
        assert run.created_at <= run.finished_at
        assert run.intermediate_steps is not None
        assert [step.tool for step in run.intermediate_steps] == ["echo", "fail"]

        first = await client.runs.events(run.id, limit=2)
        rest = await client.runs.events(run.id, after=2, limit=100)
        assert first.has_more
        assert first.next_cursor == "2"
        assert not rest.has_more
        assert [*first.data, *rest.data] == [item async for item in client.runs.follow(run.id)]

        steps = await client.runs.steps(run.id, limit=1)
        assert [step.step for step in steps.data] == [1]
        assert [step.step for step in (await client.runs.steps(run.id, after=steps.next_cursor)).data] == [2]
        assert [step.tool for step in (await client.runs.steps(run.id, status="error")).data] == ["fail"]
        assert [step.step for step in (await client.runs.steps(run.id, tool="echo")).data] == [1]
        step = await client.runs.step(run.id, 1)
        assert (step.observation, step.status) == ("a", "success")
        assert [link["stage"] for link in step.chain][:2] == ["intent", "validation"]
        assert step.envelope is not None
        assert step.envelope["ok"]
        assert [message["role"] for message in await client.runs.messages(run.id)] == [
            "user", "assistant", "tool", "assistant", "tool", "assistant",
        ]  # fmt: skip

        follow_up = await client.runs.wait({"model": scripted(says("again"))}, "more", thread_id=run.thread_id)
        listed = await client.runs.list(thread_id=run.thread_id, limit=1)
        assert [found.id for found in listed.data] == [follow_up.id]
        older = await client.runs.list(thread_id=run.thread_id, after=listed.next_cursor)
        assert [found.id for found in older.data] == [run.id]
        assert [found.id async for found in client.runs.iterate(metadata={"read": "all"})] == [run.id]
        assert [found.id async for found in client.runs.iterate(metadata={"read": "none"})] == []


async def test_a_run_is_cancelled_and_deleted(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        run = await client.runs.create({"model": scripted(calls(("hang", {}))), "tools": ["hang"]}, "go")
        with pytest.raises(Conflict, match="run_active"):
            await client.runs.delete(run.id)
        cancelled = await client.runs.cancel(run.id, wait=True)
        assert (cancelled.status, cancelled.finished, cancelled.ok) == ("cancelled", True, False)
        assert (await client.runs.cancel(run.id)).status == "cancelled"
        await client.runs.delete(run.id)
        with pytest.raises(NotFound, match="run_not_found"):
            await client.runs.get(run.id)


async def test_all_runs_are_walked_through_page_by_page(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        agent = {"model": scripted(says("x"))}
        posted = [await client.runs.create(agent, "go", metadata={"walk": "1"}) for _ in range(103)]
        walked = [run.id async for run in client.runs.iterate(metadata={"walk": "1"})]
        assert walked == [run.id for run in reversed(posted)]


async def test_agents_are_registered_read_replaced_and_deleted(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        agent = {"name": "client_agent", "model": scripted(says("one"))}
        made = await client.agents.create(agent, idempotency_key="agent-1")
        assert made["version"] == 1
        assert await client.agents.create(agent, idempotency_key="agent-1") == made
        with pytest.raises(Conflict, match="agent_exists"):
            await client.agents.create(agent)
        replaced = await client.agents.put("client_agent", {"model": scripted(says("two"))})
        assert replaced["version"] == 2
        assert await client.agents.get("client_agent") == replaced
        assert "client_agent" in [item["name"] async for item in client.agents.iterate()]
        run = await client.runs.wait("client_agent", "go")
        assert (run.agent, run.text) == ("client_agent", "two")
        assert [found.id for found in (await client.runs.list(agent="client_agent", status="success")).data] == [run.id]
        await client.agents.delete("client_agent")
        with pytest.raises(NotFound, match="agent_not_found"):
            await client.agents.get("client_agent")


async def test_tools_are_registered_invoked_and_deleted(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        spec = tool_spec("client_tool", "http://127.0.0.1:9/")
        assert (await client.tools.create(spec))["name"] == "client_tool"
        assert (await client.tools.put("client_tool", {**spec, "description": "Other."}))["version"] == 2
        registered = await client.tools.list(source="registered", limit=100)
        assert "client_tool" in [item["name"] for item in registered.data]
        assert "echo" not in [item["name"] for item in registered.data]
        names = [item["name"] async for item in client.tools.iterate()]
        assert {"client_tool", "echo"} <= set(names)
        assert (await client.tools.get("echo"))["source"] == "plugin"
        envelope = await client.tools.invoke("echo", {"text": "hi"})
        assert (envelope["ok"], envelope["data"]) == (True, "hi")
        assert not (await client.tools.invoke("client_tool", {}))["ok"]
        with pytest.raises(InvalidRequest):
            await client.tools.create({"name": "client_tool_2", "later": 1})
        await client.tools.delete("client_tool")
        with pytest.raises(NotFound, match="tool_not_found"):
            await client.tools.delete("client_tool")


async def test_models_and_the_server_say_what_they_are(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        page = await client.models.list(limit=100)
        assert [item["name"] for item in page.data] == [item["name"] async for item in client.models.iterate()]
        with pytest.raises(NotFound, match="model_not_found"):
            await client.models.get("no-such-model")
        assert (await client.info())["name"] == "runwire"
