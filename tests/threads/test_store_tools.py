"""Tools that use the store: across threads and runs, from coroutines and threads, for their own tenant alone."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import OTHER, RunwireServer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def store_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    plugins = {"RUNWIRE_PLUGINS": "tests.threads.plugin_store"}
    with RunwireServer.open(tmp_path_factory.mktemp("store"), env=plugins) as running:
        yield running


@pytest.fixture
async def client(store_server: RunwireServer) -> AsyncIterator[httpx.AsyncClient]:
    async with store_server.client() as opened:
        yield opened


async def called(client: httpx.AsyncClient, tool: str, **arguments: object) -> Any:
    """What the tool gave, called by a run in a thread of its own."""
    body = run_body(scripted(calls((tool, arguments)), says("done")), tool)
    run = (await client.post("/runs/wait", json=body)).json()
    step = (await client.get(f"/runs/{run['id']}/steps/1")).json()
    assert step["status"] == "success", step
    return step["observation"]


async def test_what_one_thread_remembers_another_recalls_and_http_reads(
    store_server: RunwireServer, client: httpx.AsyncClient
) -> None:
    assert await called(client, "remember", key="drink", value={"kind": "taste", "likes": "tea"}) == 1
    assert await called(client, "remember", key="drink", value={"kind": "taste", "likes": "milk"}) == 2
    assert await called(client, "remember", key="name", value={"kind": "fact"}) == 1
    kept = [{"key": "drink", "kind": "taste", "likes": "milk"}]
    assert await called(client, "recall", filter={"kind": "taste"}) == kept
    shown = await client.get("/store/items", params={"namespace": "memories", "key": "drink"})
    assert shown.json()["value"] == {"kind": "taste", "likes": "milk"}
    async with store_server.client(OTHER) as other:
        assert await called(other, "recall", filter={}) == []
        assert await called(other, "remember", key="drink", value={"kind": "taste"}) == 1
    assert await called(client, "recall", filter={"kind": "taste"}) == kept


async def test_a_tool_called_outside_a_run_has_the_store_too(client: httpx.AsyncClient) -> None:
    body = {"arguments": {"key": "outside", "value": {"kind": "outside"}}}
    envelope = (await client.post("/tools/remember/invoke", json=body)).json()
    assert (envelope["status"], envelope["data"]) == ("success", 1)
    assert await called(client, "recall", filter={"kind": "outside"}) == [{"key": "outside", "kind": "outside"}]


async def test_a_function_in_a_thread_has_all_of_the_store(client: httpx.AsyncClient) -> None:
    assert await called(client, "everything_from_a_thread") == {
        "version": 2,
        "value": {"n": 3},
        "namespaces": [["thread", "a"]],
        "found": ["k"],
        "deleted": [True, False],
    }


async def test_waiting_on_the_event_loop_is_refused_and_not_a_deadlock(client: httpx.AsyncClient) -> None:
    assert "would stop the event loop" in await called(client, "block_the_loop")


async def test_what_the_store_does_not_take_is_a_value_error_that_says_where(client: httpx.AsyncClient) -> None:
    assert await called(client, "misuse") == [
        "/namespace", "/namespace", "/namespace/0", "/namespace/0", "/namespace/0", "/key", "/value", "/value", "/value",
        "/value", "/value", "/value", "/ttl_s", "/limit", "/ttl_s", "/namespace_prefix/0", "/after", "/after", "/key",
    ]  # fmt: skip
