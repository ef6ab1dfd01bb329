"""Small connection pools in place of a large one."""

import asyncio

import httpx
import pytest

from app.models.pool import PooledTransport
from tests.support.chat_completions import ChatCompletionsServer, Reply, says

pytestmark = pytest.mark.anyio


async def test_a_place_is_given_back_however_a_request_ends() -> None:
    made: list[httpx.AsyncBaseTransport] = []

    def make() -> httpx.AsyncBaseTransport:
        made.append(httpx.AsyncHTTPTransport())
        return made[-1]

    replies = [says("x"), Reply(drop=True), Reply(body=b"x" * 100, pause_after=10), Reply(silent=True), says("x")]
    async with (
        asyncio.timeout(20),
        ChatCompletionsServer(replies) as server,
        httpx.AsyncClient(transport=PooledTransport(make, busy_per_pool=1), trust_env=False) as client,
    ):
        await client.post(server.base_url)
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(server.base_url)
        async with client.stream("POST", server.base_url):
            pass  # left before the body's end
        task = asyncio.create_task(client.post(server.base_url))
        await server.until(lambda: len(server.requests) == 4)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.post(server.base_url)
    assert len(made) == 1


async def test_requests_beyond_a_pools_room_get_another_pool() -> None:
    made: list[httpx.AsyncBaseTransport] = []

    def make() -> httpx.AsyncBaseTransport:
        made.append(httpx.AsyncHTTPTransport())
        return made[-1]

    async with (
        asyncio.timeout(20),
        ChatCompletionsServer(lambda _: says("x")) as server,
        httpx.AsyncClient(transport=PooledTransport(make, busy_per_pool=2), trust_env=False) as client,
    ):
        answers = await asyncio.gather(*(client.post(server.base_url) for _ in range(5)))
    assert [answer.status_code for answer in answers] == [200] * 5
    assert len(made) == 3
