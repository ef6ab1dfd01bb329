"""`client.threads` on a real server."""

import asyncio

import pytest

from app.client import Conflict, InvalidRequest, NotFound
from tests.client.conftest import Connect
from tests.support.bodies import calls, says, scripted
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

TIMEOUT_S = 60.0
AGENT: dict[str, object] = {
    "model": scripted(says("done"), repeat=True),
    "state_schema": {"log": {"schema": {"type": "array"}, "reducer": "append", "default": []}},
}


async def test_a_thread_is_made_read_changed_forked_and_deleted(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        thread = await client.threads.create(metadata={"of": "client test"})
        assert (thread.status, thread.listed, thread.metadata) == ("idle", True, {"of": "client test"})
        run = await client.runs.wait(AGENT, "go", thread_id=thread.id, state={"log": ["a"]})
        state = await client.threads.state(thread.id)
        assert (state.values["log"], state.run_id, state.source) == (["a"], run.id, "loop")
        assert [message["role"] for message in state.messages] == ["user", "assistant"]
        changed = await client.threads.update(thread.id, {"log": ["b"]})
        assert changed.values["log"] == ["a", "b"]
        over = await client.threads.update(
            thread.id, {"log": ["c"]}, overwrite=["log"], checkpoint_id=state.checkpoint_id
        )
        assert (over.values["log"], over.parent_checkpoint_id) == (["c"], state.checkpoint_id)
        with pytest.raises(InvalidRequest):
            await client.threads.update(thread.id, {"log": "x"})
        page = await client.threads.history(thread.id, limit=2)
        assert page.data[0].checkpoint_id == over.checkpoint_id
        rest = await client.threads.history(thread.id, after=page.next_cursor)
        assert rest.data[-1].source == "input"
        assert rest.data[-1].messages == 1
        fork = await client.threads.fork(thread.id, state.checkpoint_id, metadata={"of": "fork"})
        assert (await client.threads.state(fork.id)).values == state.values
        assert (await client.threads.label(fork.id, {"more": 1})).metadata == {"of": "fork", "more": 1}
        assert [item.id async for item in client.threads.iterate(metadata={"of": "client test"})] == [thread.id]
        assert [item.id for item in (await client.threads.runs(thread.id)).data] == [run.id]
        await client.threads.delete(thread.id)
        with pytest.raises(NotFound):
            await client.threads.get(thread.id)
        assert (await client.threads.get(fork.id)).status == "idle"


async def test_a_run_takes_the_place_of_another(server: RunwireServer, connect: Connect) -> None:
    hanging = {"model": scripted(calls(("hang", {}))), "tools": ["hang"]}
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        first = await client.runs.create(hanging, "go")
        assert first.thread_id is not None
        with pytest.raises(Conflict):
            await client.threads.delete(first.thread_id)
        second = await client.runs.wait(AGENT, "now", thread_id=first.thread_id, multitask_strategy="rollback")
        assert second.ok
        assert (await client.runs.get(first.id)).status == "cancelled"
        state = await client.threads.state(first.thread_id)
        assert [message["content"] for message in state.messages] == ["now", "done"]
