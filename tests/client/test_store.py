"""`client.store` on a real server."""

import asyncio
from datetime import timedelta

import pytest

from app.client import Conflict, InvalidRequest, NotFound, StoreItem
from tests.client.conftest import Connect
from tests.support.server import OTHER, RunwireServer

pytestmark = pytest.mark.anyio

TIMEOUT_S = 60.0
PLACE = ("client test", "ä/b")


async def test_items_are_kept_changed_found_and_deleted(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        made = await client.store.put(PLACE, "a&b", {"kind": "taste", "n": [1]}, ttl_s=3600, if_version=0)
        assert (made.namespace, made.key, made.value, made.version) == (PLACE, "a&b", {"kind": "taste", "n": [1]}, 1)
        assert made.expires_at is not None
        assert made.updated_at is not None
        assert made.expires_at - made.updated_at == timedelta(hours=1)
        assert await client.store.get(PLACE, "a&b") == made
        with pytest.raises(Conflict, match="version_mismatch"):
            await client.store.put(PLACE, "a&b", {}, if_version=0)
        changed = await client.store.put(list(PLACE), "a&b", {"kind": "taste"}, if_version=made.version)
        assert (changed.version, changed.created_at, changed.expires_at) == (2, made.created_at, None)
        await client.store.put([*PLACE, "c"], "k", {"kind": "fact"})
        assert (await client.store.search(PLACE, filter={"kind": "taste"})).data == [changed]
        first = await client.store.search(PLACE, limit=1)
        assert [item.key for item in first.data] == ["k"]
        assert (await client.store.search(PLACE, after=first.next_cursor)).data == [changed]
        assert [item.key async for item in client.store.iterate(PLACE[:1])] == ["k", "a&b"]
        page = await client.store.namespaces(PLACE[:1], limit=1)
        assert (page.data, page.has_more) == ([PLACE], True)
        assert (await client.store.namespaces(PLACE[:1], after=page.next_cursor)).data == [(*PLACE, "c")]
        async with connect(server.url, api_key=OTHER) as other:
            assert [item async for item in other.store.iterate(PLACE)] == []
        await client.store.delete(PLACE, "a&b")
        for refused in (client.store.get(PLACE, "a&b"), client.store.delete(PLACE, "a&b")):
            with pytest.raises(NotFound, match="item_not_found"):
                await refused


async def test_what_names_another_namespace_or_none_is_refused(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        for wrong in (client.store.get(["a.b"], "k"), client.store.search("users"), client.store.put(["."], "k", {})):
            with pytest.raises(ValueError, match="list of labels"):
                await wrong
        with pytest.raises(InvalidRequest):
            await client.store.put([], "k", {})


@pytest.mark.parametrize(
    "answer",
    [[], {}, {"key": "k", "value": {}}, {"namespace": [1], "key": "k", "value": {}}, {"namespace": ["a"], "key": "k"}],
)
def test_json_of_another_kind_is_no_item(answer: object) -> None:
    with pytest.raises(ValueError, match=r"namespace|key|value|object"):
        StoreItem.of(answer)
