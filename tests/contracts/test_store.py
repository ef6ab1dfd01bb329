"""Items of the store: what is found, what is gone, and whose it is. On both databases."""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from app.core.errors import Conflict
from app.core.ids import new_id
from app.core.store import MAX_FIELDS, Namespace, StoredItem, comparable, text_of
from app.storage import retention
from app.storage.database import Database
from app.storage.open import Stores
from app.storage.statement import Statement
from app.storage.store import MAX_PAGE_BYTES
from app.storage.tables import store_fields, store_items
from app.threads.store import NewItem
from tests.contracts.samples import Clock

pytestmark = pytest.mark.anyio

A: Namespace = ("users", "a")


def new(
    namespace: Namespace,
    key: str,
    value: Mapping[str, object] | None = None,
    *,
    ttl_ms: int | None = None,
    expected: int | None = None,
) -> NewItem:
    held = value or {}
    return NewItem(
        new_id(), namespace, key, text_of(held, ""), comparable(held, "", MAX_FIELDS), ttl_ms=ttl_ms, expected=expected
    )


async def keys(
    stores: Stores, prefix: Namespace = (), where: Mapping[str, object] | None = None, tenant: str = "acme"
) -> list[str]:
    """The keys of all pages of a search, walked in pages of two."""
    found: list[str] = []
    after: str | None = None
    while True:
        page = await stores.items.search(tenant, prefix, comparable(where or {}, "", 16), after=after, limit=2)
        assert len(page.data) <= 2
        found += [item.key for item in page.data]
        after = page.next_cursor
        if after is None:
            return found


async def namespaces(stores: Stores, prefix: Namespace = ()) -> list[Namespace]:
    found: list[Namespace] = []
    after: Namespace | None = None
    while True:
        page = await stores.items.namespaces("acme", prefix, after=after, limit=2)
        found += page.data
        if page.next_cursor is None:
            return found
        after = page.data[-1]
        assert page.next_cursor == ".".join(after)


async def rows(database: Database) -> tuple[int, int]:
    """How many rows there are of items and of their fields, dead or alive."""
    counts: list[int] = []
    for table in (store_items, store_fields):
        query = Statement(select(func.count()).select_from(table))
        row = await database.read(lambda tx, query=query: tx.one(query, {}))
        assert row is not None
        counts.append(int(row[0]))
    return counts[0], counts[1]


async def test_an_item_is_kept_read_replaced_as_a_whole_and_deleted(
    stores: Stores, database: Database, clock: Clock
) -> None:
    made, created = await stores.items.put("acme", new(A, "k", {"likes": "tea", "n": [1, {"ä": None}]}))
    assert created
    assert (made.version, made.created_at, made.expires_at) == (1, clock.now, None)
    assert await stores.items.get("acme", A, "k") == made
    assert made.value == {"likes": "tea", "n": [1, {"ä": None}]}
    first = clock.now
    clock.now += 5
    changed, created = await stores.items.put("acme", new(A, "k", {"hates": "milk"}))
    assert not created
    assert (changed.id, changed.version, changed.created_at, changed.updated_at) == (made.id, 2, first, clock.now)
    assert await stores.items.get("acme", A, "k") == changed
    assert changed.value == {"hates": "milk"}
    assert await keys(stores, where={"likes": "tea"}) == []
    assert await keys(stores, where={"hates": "milk"}) == ["k"]
    assert await stores.items.delete("acme", A, "k")
    assert not await stores.items.delete("acme", A, "k")
    assert await stores.items.get("acme", A, "k") is None
    assert await rows(database) == (0, 0)


async def test_the_same_place_of_another_tenant_is_another_place(stores: Stores) -> None:
    await stores.items.put("acme", new(A, "k", {"of": "acme"}))
    await stores.items.put("other", new(A, "k", {"of": "other"}))
    assert not await stores.items.delete("third", A, "k")
    for tenant in ("acme", "other"):
        found = await stores.items.get(tenant, A, "k")
        assert found is not None
        assert found.value == {"of": tenant}
        assert await keys(stores, tenant=tenant) == ["k"]
        assert await keys(stores, where={"of": "acme"}, tenant=tenant) == (["k"] if tenant == "acme" else [])
    assert await keys(stores, tenant="third") == []
    assert (await stores.items.namespaces("third", (), after=None, limit=9)).data == []


async def test_a_version_that_is_not_there_changes_nothing(stores: Stores, clock: Clock) -> None:
    await stores.items.put("acme", new(A, "k", expected=0, ttl_ms=100))
    for wrong in (0, 2):
        with pytest.raises(Conflict) as refused:
            await stores.items.put("acme", new(A, "k", {"no": 1}, expected=wrong))
        assert refused.value.code == "version_mismatch"
    assert await keys(stores, where={"no": 1}) == []
    found, _ = await stores.items.put("acme", new(A, "k", {"yes": 1}, expected=1, ttl_ms=100))
    assert found.version == 2
    clock.now += 100
    with pytest.raises(Conflict):
        await stores.items.put("acme", new(A, "k", expected=2))
    anew, created = await stores.items.put("acme", new(A, "k", expected=0))
    assert (created, anew.version, anew.id == found.id) == (True, 1, False)


async def test_a_prefix_is_made_of_whole_labels_and_covers_its_own_namespace(stores: Stores) -> None:
    places: list[Namespace] = [
        ("a",), ("a", "b"), ("a", "b", "c"), ("a-", "b"), ("ab",), ("a/",), ("A",), ("a b",), ("a%", "b"), ("ä",), ("a_",),
    ]  # fmt: skip
    for place in places:
        await stores.items.put("acme", new(place, "/".join(place)))
    assert await keys(stores) == ["/".join(place) for place in reversed(places)]
    assert await keys(stores, ("a",)) == ["a/b/c", "a/b", "a"]
    assert await keys(stores, ("a", "b")) == ["a/b/c", "a/b"]
    assert await keys(stores, ("a%",)) == ["a%/b"]
    assert await keys(stores, ("b",)) == []
    by_bytes = sorted(places, key=lambda place: "".join(f"{label}." for label in place).encode())
    assert await namespaces(stores) == by_bytes
    assert await namespaces(stores, ("a",)) == [("a",), ("a", "b"), ("a", "b", "c")]
    assert await namespaces(stores, ("ä",)) == [("ä",)]
    page = await stores.items.namespaces("acme", ("a",), after=("A",), limit=1)
    assert page == await stores.items.namespaces("acme", ("a",), after=None, limit=1)


async def test_a_filter_is_equality_of_json(stores: Stores) -> None:
    long = "x" * 5000
    values: dict[str, Mapping[str, object]] = {
        "int": {"v": 1}, "float": {"v": 1.0}, "text": {"v": "1"}, "true": {"v": True}, "null": {"v": None}, "none": {},
        "object": {"v": {"a": 1, "b": [2]}}, "list": {"v": [1, 2]}, "long": {"v": long}, "other": {"v": long + "y"},
        "big": {"v": 2**63 - 1}, "empty": {"v": ""}, "wide": {"n" * 5000: 1, "v": 2},
    }  # fmt: skip
    for key, value in values.items():
        await stores.items.put("acme", new(A, key, value))

    async def having(value: object) -> set[str]:
        return set(await keys(stores, where={"v": value}))

    assert await having(1) == await having(1.0) == {"int", "float"}
    assert await having("1") == {"text"}
    assert await having(True) == {"true"}
    assert await having(None) == {"null"}
    assert await having({"b": [2.0], "a": 1}) == {"object"}
    assert await having([2, 1]) == set()
    assert await having(long) == {"long"}
    assert await having(2**63 - 1) == {"big"}
    assert await having("") == {"empty"}
    assert await keys(stores, where={"n" * 5000: 1}) == ["wide"]
    assert await keys(stores, where={"n" * 5000: 1, "v": 2}) == ["wide"]
    assert await keys(stores, where={"n" * 5000: 1, "v": 1}) == []
    assert await keys(stores, ("users", "b"), {"v": 1}) == []


async def test_from_its_time_on_an_item_is_gone_for_every_reader_and_its_place_is_free(
    stores: Stores, clock: Clock
) -> None:
    await stores.items.put("acme", new(("old",), "k", {"v": 1}, ttl_ms=1000))
    await stores.items.put("acme", new(("new",), "k", {"v": 1}, ttl_ms=2000))
    clock.now += 999
    assert await keys(stores, where={"v": 1}) == ["k", "k"]
    clock.now += 1
    assert await stores.items.get("acme", ("old",), "k") is None
    assert await keys(stores) == await keys(stores, where={"v": 1}) == ["k"]
    assert await keys(stores, ("old",)) == []
    assert await namespaces(stores) == [("new",)]
    assert not await stores.items.delete("acme", ("old",), "k")
    kept, created = await stores.items.put("acme", new(("new",), "k", {"v": 2}))
    assert (created, kept.expires_at) == (False, None)
    clock.now += 10**12
    assert await stores.items.get("acme", ("new",), "k") == kept


async def test_the_sweep_deletes_what_is_over_in_short_transactions_and_nothing_else(
    stores: Stores, database: Database, clock: Clock
) -> None:
    wide = {f"f{n}": n for n in range(MAX_FIELDS)}
    for n in range(5):
        await stores.items.put("acme", new(A, f"wide{n}", wide, ttl_ms=10))
    for n in range(retention.MAX_ITEMS + 1):
        await stores.items.put("other", new(A, f"k{n}", {"n": n}, ttl_ms=10))
    await stores.items.put("acme", new(A, "later", {"n": 0}, ttl_ms=11))
    await stores.items.put("acme", new(A, "kept", {"n": 0}))
    assert (await stores.retention.delete_items()).count == 0
    clock.now += 10
    first = await stores.retention.delete_items()
    assert first.more
    assert first.count * (MAX_FIELDS + 1) <= retention.MAX_ROWS
    count, more = first.count, True
    while more:
        swept = await stores.retention.delete_items()
        count, more = count + swept.count, swept.more
    assert count == 5 + retention.MAX_ITEMS + 1
    assert await rows(database) == (2, 2)
    assert await keys(stores) == ["kept", "later"]


async def test_an_item_that_was_renewed_is_not_swept(stores: Stores, clock: Clock) -> None:
    await stores.items.put("acme", new(A, "k", ttl_ms=10))
    clock.now += 10
    await stores.items.put("acme", new(A, "k", ttl_ms=10))
    assert (await stores.retention.delete_items()).count == 0
    assert await keys(stores) == ["k"]


async def test_a_page_ends_before_its_values_are_too_much_to_hold(stores: Stores) -> None:
    long = {"text": "ä" * 100_000}  # 200 KB in UTF-8
    for n in range(30):
        await stores.items.put("acme", new(A, str(n), long))
    page = await stores.items.search("acme", A, {}, after=None, limit=100)
    assert 0 < sum(len(item.text.encode()) for item in page.data) <= MAX_PAGE_BYTES
    assert page.next_cursor is not None
    rest = await stores.items.search("acme", A, {}, after=page.next_cursor, limit=100)
    assert [item.key for item in (*page.data, *rest.data)] == [str(n) for n in reversed(range(30))]
    assert rest.next_cursor is None


async def test_a_place_at_its_limits_is_kept(stores: Stores) -> None:
    place = tuple("語" * 41 for _ in range(8))
    await stores.items.put("acme", new(place, "😀" * 255, {"語" * 255: "😀" * 255}))
    assert await keys(stores, place[:3], {"語" * 255: "😀" * 255}) == ["😀" * 255]
    assert await namespaces(stores) == [place]


PLACES = st.lists(st.sampled_from(["a", "b", "a-", "A", "ä"]), min_size=1, max_size=3).map(tuple)
VALUES = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from([1, 1.0, "1", None, [1], True]))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    put=st.lists(st.tuples(PLACES, st.sampled_from(["k", "l"]), VALUES), max_size=12),
    prefix=st.one_of(st.just(()), PLACES),
    where=VALUES,
)
async def test_a_search_finds_what_a_look_at_each_item_finds(
    stores: Stores, put: list[tuple[Namespace, str, dict[str, object]]], prefix: Namespace, where: dict[str, object]
) -> None:
    tenant = new_id()
    kept: dict[tuple[Namespace, str], StoredItem] = {}
    for place, key, value in put:
        kept[place, key], _ = await stores.items.put(tenant, new(place, key, value))

    def fits(item: StoredItem) -> bool:
        return item.namespace[: len(prefix)] == prefix and all(
            name in item.value and _same(item.value[name], wanted) for name, wanted in where.items()
        )

    page = await stores.items.search(tenant, prefix, comparable(where, "", 16), after=None, limit=100)
    assert list(page.data) == sorted((item for item in kept.values() if fits(item)), key=lambda i: i.id, reverse=True)


def _same(one: object, other: object) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other
