"""Registries of tools and agents, and secrets."""

import asyncio

import pytest

from app.core.errors import Conflict, InvalidRequest, Unavailable
from app.core.idempotency import IdempotencyKey
from app.core.ids import new_id
from app.core.registry import Registry, Versioned
from app.storage.database import Database
from app.storage.open import Stores, build_stores
from tests.contracts.samples import Clock

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["tool", "agent"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def registry(stores: Stores, kind: str) -> Registry:
    return stores.tools if kind == "tool" else stores.agents


def key(body: bytes = b"{}") -> IdempotencyKey:
    return IdempotencyKey.of("acme", "POST /tools", "k", body)


async def test_versions_count_up_and_stay_readable(registry: Registry, clock: Clock) -> None:
    first = await registry.create("acme", "x", {"v": 1, "t": "ä"}, None)
    assert first == (Versioned("acme", "x", 1, {"v": 1, "t": "ä"}, clock.now), None)
    clock.now += 10
    assert await registry.put("acme", "x", {"v": 2}) == (Versioned("acme", "x", 2, {"v": 2}, clock.now), False)
    assert await registry.get("acme", "x") == Versioned("acme", "x", 2, {"v": 2}, clock.now)
    assert await registry.version("acme", "x", 1) == first[0]
    assert await registry.version("acme", "x", 3) is None


async def test_put_creates_a_new_name(registry: Registry) -> None:
    created, new = await registry.put("acme", "x", {})
    assert (created.version, new) == (1, True)


async def test_a_name_is_taken_once_even_at_once(registry: Registry, kind: str) -> None:
    outcomes = await asyncio.gather(
        *(registry.create("acme", "x", {"n": n}, None) for n in range(5)), return_exceptions=True
    )
    assert [getattr(outcome, "code", None) for outcome in outcomes] == [None, *[f"{kind}_exists"] * 4]
    assert all(isinstance(outcome, Conflict) for outcome in outcomes[1:])
    found = await registry.get("acme", "x")
    assert found is not None
    assert found.spec == {"n": 0}


async def test_a_deleted_name_is_free_and_its_old_versions_stay(registry: Registry) -> None:
    first, _ = await registry.create("acme", "x", {"v": 1}, None)
    assert await registry.delete("acme", "x")
    assert not await registry.delete("acme", "x")
    assert await registry.get("acme", "x") is None
    assert list(await registry.page("acme", after=None, limit=10)) == []
    assert await registry.version("acme", "x", 1) == first
    again, replayed = await registry.create("acme", "x", {"v": 2}, None)
    assert (again.version, replayed) == (2, None)
    await registry.delete("acme", "x")
    assert (await registry.put("acme", "x", {}))[1]


async def test_a_replayed_create_gives_the_resource_as_it_is_now(registry: Registry) -> None:
    created, _ = await registry.create("acme", "x", {"v": 1}, key())
    newer, _ = await registry.put("acme", "x", {"v": 2})
    assert await registry.create("acme", "x", {"v": 1}, key()) == (newer, 1)
    await registry.delete("acme", "x")
    again, replayed = await registry.create("acme", "x", {"v": 1}, key())
    assert (again.version, again.spec, replayed) == (3, created.spec, None)
    with pytest.raises(InvalidRequest) as failure:
        await registry.create("acme", "y", {}, key(b"other"))
    assert failure.value.code == "idempotency_mismatch"


async def test_pages_are_in_name_order_and_hold_live_names_only(registry: Registry) -> None:
    for name in ("b", "a", "c", "B"):
        await registry.put("acme", name, {})
    await registry.put("acme", "a", {"v": 2})
    await registry.delete("acme", "c")
    names = [item.name for item in await registry.page("acme", after=None, limit=10)]
    assert names == ["B", "a", "b"]
    first = await registry.page("acme", after=None, limit=1)
    rest = await registry.page("acme", after=first[0].name, limit=10)
    assert [item.name for item in (*first, *rest)] == names


async def test_another_tenants_names_are_absent(registry: Registry) -> None:
    await registry.create("other", "x", {}, None)
    assert await registry.get("acme", "x") is None
    assert await registry.version("acme", "x", 1) is None
    assert list(await registry.page("acme", after=None, limit=10)) == []
    assert not await registry.delete("acme", "x")
    assert (await registry.create("acme", "x", {}, None))[0].version == 1


async def test_names_in_use_are_those_of_every_tenant_that_are_not_deleted(registry: Registry) -> None:
    for tenant, name in (("acme", "x"), ("other", "x"), ("other", "y"), ("acme", "gone")):
        await registry.create(tenant, name, {}, None)
    await registry.put("acme", "x", {"v": 2})
    await registry.delete("acme", "gone")
    assert sorted(await registry.names_in_use()) == ["x", "y"]


async def test_tools_and_agents_do_not_share_names(stores: Stores) -> None:
    await stores.tools.create("acme", "x", {}, None)
    assert await stores.agents.get("acme", "x") is None


async def test_a_secret_is_read_by_its_own_tenant_until_deleted(stores: Stores) -> None:
    ref = await stores.secrets.put("acme", "pässword")
    assert await stores.secrets.get("acme", ref) == "pässword"
    assert await stores.secrets.get("other", ref) is None
    assert await stores.secrets.get("acme", new_id()) is None
    await stores.secrets.delete("other", ref)
    assert await stores.secrets.get("acme", ref) == "pässword"
    await stores.secrets.delete("acme", ref)
    assert await stores.secrets.get("acme", ref) is None


async def test_a_secret_is_unreadable_under_another_key(stores: Stores, database: Database) -> None:
    ref = await stores.secrets.put("acme", "password")
    other = build_stores(database, "another key of many characters")
    with pytest.raises(Unavailable) as failure:
        await other.secrets.get("acme", ref)
    assert failure.value.code == "secret_unreadable"
