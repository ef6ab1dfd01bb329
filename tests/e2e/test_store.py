"""The store over HTTP: items, search, namespaces, and everything that it refuses."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from app.core.ids import new_id
from tests.api.problems import check_problem
from tests.support.server import ACME, NOBODY, OTHER, READER, RUNNER, RunwireServer

pytestmark = pytest.mark.anyio

ITEMS, SEARCH, NAMESPACES = "/store/items", "/store/search", "/store/namespaces"


@pytest.fixture
def root() -> str:
    """A label that no other test has."""
    return new_id()


def item(root: str, *labels: str, key: str = "k", value: object = None, **more: object) -> dict[str, object]:
    return {"namespace": [root, *labels], "key": key, "value": {} if value is None else value, **more}


async def put(client: httpx.AsyncClient, body: dict[str, object]) -> dict[str, Any]:
    answer = await client.put(ITEMS, json=body)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def found(client: httpx.AsyncClient, **body: object) -> list[str]:
    answer = await client.post(SEARCH, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"data", "has_more", "next_cursor"}
    return [item["key"] for item in answer.json()["data"]]


async def test_an_item_is_put_got_replaced_searched_and_deleted(client: httpx.AsyncClient, root: str) -> None:
    value = {"likes": ["tea"], "text": "ä\u2028😀", "n": 2**53 + 1, "lc": 1, "deep": {"a": {"b": None}}}
    made = await client.put(ITEMS, json=item(root, "a b/c&d", key="k?#/ä", value=value))
    assert made.status_code == 201
    body = made.json()
    assert body.keys() == {"namespace", "key", "value", "version", "created_at", "updated_at", "expires_at"}
    assert (body["namespace"], body["key"], body["value"]) == ([root, "a b/c&d"], "k?#/ä", value)
    assert (body["version"], body["expires_at"], body["updated_at"]) == (1, None, body["created_at"])
    place = {"namespace": f"{root}.a b/c&d", "key": "k?#/ä"}
    for answer in (await client.get(made.headers["location"]), await client.get(ITEMS, params=place)):
        assert (answer.status_code, answer.json()) == (200, body)
    again = await client.put(ITEMS, json=item(root, "a b/c&d", key="k?#/ä", value={"likes": "milk"}))
    assert again.status_code == 200
    assert "location" not in again.headers
    assert (again.json()["version"], again.json()["created_at"]) == (2, body["created_at"])
    searched = await client.post(SEARCH, json={"namespace_prefix": [root], "filter": {"likes": "milk"}})
    assert searched.json() == {"data": [again.json()], "has_more": False, "next_cursor": None}
    assert (await client.delete(ITEMS, params=place)).status_code == 204
    for method in ("GET", "DELETE"):
        check_problem(await client.request(method, ITEMS, params=place), 404, "item_not_found")
    assert await found(client, namespace_prefix=[root]) == []


async def test_lists_are_walked_by_their_cursors(client: httpx.AsyncClient, root: str) -> None:
    for n in range(5):
        await put(client, item(root, f"n{n}", "x", key=str(n), value={"even": n % 2 == 0}))
    keys: list[str] = []
    after: str | None = None
    for more in (True, True, False):
        body = {"namespace_prefix": [root], "limit": 2, "after": after}
        page = (await client.post(SEARCH, json=body)).json()
        keys += [item["key"] for item in page["data"]]
        after = page["next_cursor"]
        assert (page["has_more"], after is not None) == (more, more)
    assert keys == ["4", "3", "2", "1", "0"]
    assert await found(client, namespace_prefix=[root], filter={"even": True}) == ["4", "2", "0"]
    assert await found(client, namespace_prefix=[root, "n1"]) == ["1"]
    assert await found(client, namespace_prefix=[root, "n"]) == []
    first = (await client.get(NAMESPACES, params={"prefix": root, "limit": 3})).json()
    assert first["data"] == [{"namespace": [root, f"n{n}", "x"]} for n in range(3)]
    assert first["has_more"]
    rest = await client.get(NAMESPACES, params={"prefix": root, "after": first["next_cursor"]})
    assert rest.json()["data"] == [{"namespace": [root, f"n{n}", "x"]} for n in (3, 4)]
    assert (rest.json()["has_more"], rest.json()["next_cursor"]) == (False, None)


async def test_one_of_many_who_change_an_item_at_its_version_wins(client: httpx.AsyncClient, root: str) -> None:
    bodies = [item(root, value={"by": n}, if_version=0) for n in range(8)]
    answers = await asyncio.gather(*(client.put(ITEMS, json=body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [201, *[409] * 7]
    for answer in answers:
        if answer.status_code == 409:
            check_problem(answer, 409, "version_mismatch")
    held = (await client.get(ITEMS, params={"namespace": root, "key": "k"})).json()
    assert held["value"] == next(a.json() for a in answers if a.status_code == 201)["value"]
    check_problem(await client.put(ITEMS, json=item(root, if_version=2)), 409, "version_mismatch")
    assert (await put(client, item(root, if_version=1)))["version"] == 2


async def test_another_tenants_items_do_not_exist(server: RunwireServer, client: httpx.AsyncClient, root: str) -> None:
    await put(client, item(root, value={"secret": 1}))
    place = {"namespace": root, "key": "k"}
    async with server.client(OTHER) as other:
        for method in ("GET", "DELETE"):
            check_problem(await other.request(method, ITEMS, params=place), 404, "item_not_found")
        for body in ({"namespace_prefix": [root]}, {"filter": {"secret": 1}}, {"limit": 100}):
            assert "k" not in await found(other, **body)
        assert (await other.get(NAMESPACES, params={"prefix": root})).json()["data"] == []
        assert (await other.put(ITEMS, json=item(root, value={"mine": 1}))).status_code == 201
    assert (await client.get(ITEMS, params=place)).json()["value"] == {"secret": 1}


async def test_each_route_asks_for_its_scope(server: RunwireServer, root: str) -> None:
    place = {"namespace": root, "key": "k"}
    async with server.client(NOBODY) as nobody, server.client(RUNNER) as runner, server.client(READER) as reader:
        for client in (nobody, runner, reader):
            for answer in (await client.put(ITEMS, json=item(root)), await client.delete(ITEMS, params=place)):
                check_problem(answer, 403, "missing_scope")
                assert "threads:write" in answer.json()["detail"]
        for client, status in ((nobody, 403), (runner, 404), (reader, 404)):
            assert (await client.get(ITEMS, params=place)).status_code == status
        for client, status in ((nobody, 403), (runner, 200), (reader, 200)):
            assert (await client.post(SEARCH, json={})).status_code == status
            assert (await client.get(NAMESPACES)).status_code == status
    async with server.client(None) as stranger:
        for method, path in (("PUT", ITEMS), ("GET", ITEMS), ("DELETE", ITEMS), ("POST", SEARCH), ("GET", NAMESPACES)):
            check_problem(await stranger.request(method, path), 401, "unauthenticated")


WIDE = {f"f{n}": n for n in range(129)}
WRONG_ITEMS: dict[str, tuple[object, str]] = {
    "no body fields": ({}, "/namespace"),
    "a list": ([], ""),
    "unknown field": (item("a", ttl=3), "/ttl"),
    "namespace text": (item("a") | {"namespace": "a.b"}, "/namespace"),
    "no label": (item("a") | {"namespace": []}, "/namespace"),
    "nine labels": (item(*"abcdefghi"), "/namespace"),
    "a label with a dot": (item("a", "b.c"), "/namespace/1"),
    "an empty label": (item("a", ""), "/namespace/1"),
    "a label too long": (item("a" * 65), "/namespace/0"),
    "a label that is a number": (item("a") | {"namespace": [1]}, "/namespace/0"),
    "labels too long together": (item(*["語" * 64] * 6), "/namespace"),
    "no key": (item("a", key=""), "/key"),
    "a key of 10 KB": (item("a", key="k" * 10_000), "/key"),
    "a key that is a number": (item("a") | {"key": 3}, "/key"),
    "value text": (item("a", value="text"), "/value"),
    "value list": (item("a", value=[1]), "/value"),
    "value null": (item("a") | {"value": None}, "/value"),
    "a value over 256 KiB": (item("a", value={"x": "x" * 262_144}), "/value"),
    "too many fields": (item("a", value=WIDE), "/value"),
    "ttl zero": (item("a", ttl_s=0), "/ttl_s"),
    "ttl negative": (item("a", ttl_s=-1), "/ttl_s"),
    "ttl of ages": (item("a", ttl_s=1e12), "/ttl_s"),
    "ttl text": (item("a", ttl_s="60"), "/ttl_s"),
    "version negative": (item("a", if_version=-1), "/if_version"),
    "version text": (item("a", if_version="1"), "/if_version"),
}

WRONG_SEARCHES: dict[str, tuple[object, str]] = {
    "prefix text": ({"namespace_prefix": "a"}, "/namespace_prefix"),
    "prefix with a dot": ({"namespace_prefix": ["a.b"]}, "/namespace_prefix/0"),
    "prefix with nothing": ({"namespace_prefix": [""]}, "/namespace_prefix/0"),
    "filter list": ({"filter": [1]}, "/filter"),
    "filters": ({"filter": {str(n): n for n in range(17)}}, "/filter"),
    "limit": ({"limit": 101}, "/limit"),
    "limit zero": ({"limit": 0}, "/limit"),
    "limit text": ({"limit": "1"}, "/limit"),
    "query": ({"query": "tea"}, "/query"),
}


@pytest.mark.parametrize("name", WRONG_ITEMS)
async def test_a_wrong_item_is_refused_by_its_place(client: httpx.AsyncClient, name: str) -> None:
    body, pointer = WRONG_ITEMS[name]
    check_problem(await client.put(ITEMS, json=body), 422, "invalid_request", pointer)


@pytest.mark.parametrize("name", WRONG_SEARCHES)
async def test_a_wrong_search_is_refused_by_its_place(client: httpx.AsyncClient, name: str) -> None:
    body, pointer = WRONG_SEARCHES[name]
    check_problem(await client.post(SEARCH, json=body), 422, "invalid_request", pointer)


@pytest.mark.parametrize("after", ["x", "", "0190a0a0-0000-7000-8000-00000000000g", "a" * 200])
async def test_a_cursor_of_nothing_is_400(client: httpx.AsyncClient, after: str) -> None:
    check_problem(await client.post(SEARCH, json={"after": after}), 400, "invalid_cursor", "/after")
    params = {"after": after + ".."}
    check_problem(await client.get(NAMESPACES, params=params), 400, "invalid_cursor", "/query/after")


@pytest.mark.parametrize(
    ("params", "pointer"),
    [
        ({"key": "k"}, "/query/namespace"), ({"namespace": "a"}, "/query/key"), ({"namespace": "a", "key": ""}, "/query/key"),
        ({"namespace": "", "key": "k"}, "/query/namespace/0"), ({"namespace": "a..b", "key": "k"}, "/query/namespace/1"),
        ({"namespace": "a.", "key": "k"}, "/query/namespace/1"), ({"namespace": ".".join("abcdefghi"), "key": "k"}, "/query/namespace"),
        ({"namespace": "a", "key": "k" * 10_000}, "/query/key"), ({"namespace": "a", "key": "\0"}, "/query"),
        ({"namespace": "a", "key": "k", "version": "1"}, "/query/version"),
    ],
)  # fmt: skip
async def test_a_wrong_address_of_an_item_is_refused(
    client: httpx.AsyncClient, params: dict[str, str], pointer: str
) -> None:
    for method in ("GET", "DELETE"):
        check_problem(await client.request(method, ITEMS, params=params), 422, "invalid_request", pointer)


async def test_unknown_parameters_of_the_other_routes_are_refused(client: httpx.AsyncClient) -> None:
    for method, path in (("PUT", ITEMS), ("POST", SEARCH), ("GET", NAMESPACES)):
        answer = await client.request(method, f"{path}?ttl=1", json={})
        check_problem(answer, 422, "invalid_request", "/query/ttl")
    for params, pointer in (({"prefix": "a..b"}, "/query/prefix/1"), ({"limit": "0"}, "/query/limit")):
        check_problem(await client.get(NAMESPACES, params=params), 422, "invalid_request", pointer)


@pytest.mark.parametrize(
    "raw", ["NaN", "1e400", '"a\\u0000"', '"\\ud800"', "18446744073709551616", "[" * 100 + "]" * 100]
)
async def test_a_value_that_cannot_be_kept_is_422(client: httpx.AsyncClient, root: str, raw: str) -> None:
    headers = {"Content-Type": "application/json"}
    body = json.dumps(item(root, value={"x": "@"})).replace('"@"', raw)
    check_problem(await client.put(ITEMS, content=body, headers=headers), 422)
    search = json.dumps({"filter": {"x": "@"}}).replace('"@"', raw)
    check_problem(await client.post(SEARCH, content=search, headers=headers), 422)
    key = json.dumps(item(root, key="@")).replace('"@"', '"\\u0000"')
    check_problem(await client.put(ITEMS, content=key, headers=headers), 422)


async def test_a_value_of_five_megabytes_is_413_and_one_at_the_limit_is_kept(
    client: httpx.AsyncClient, root: str
) -> None:
    check_problem(await client.put(ITEMS, json=item(root, value={"x": "x" * 5_000_000})), 413, "payload_too_large")
    most = {"x": "x" * (256 * 1024 - len('{"x":""}'))}
    assert (await put(client, item(root, value=most)))["value"] == most
    for n in range(20):
        await put(client, item(root, key=str(n), value=most))
    page = (await client.post(SEARCH, json={"namespace_prefix": [root], "limit": 100})).json()
    assert 0 < len(page["data"]) < 21
    rest = {"namespace_prefix": [root], "limit": 100, "after": page["next_cursor"]}
    assert len(page["data"]) + len(await found(client, **rest)) == 21


async def test_a_marker_of_lang_chain_stays_plain_data(client: httpx.AsyncClient, root: str) -> None:
    marker: dict[str, object] = {"lc": 1, "type": "constructor", "id": ["langchain", "x"], "kwargs": {}}
    await put(client, item(root, value={"m": marker}))
    assert await found(client, namespace_prefix=[root], filter={"m": marker}) == ["k"]


async def test_items_survive_a_kill_and_those_with_a_time_are_gone_when_it_is_over(tmp_path: Any, root: str) -> None:
    with RunwireServer.open(tmp_path) as server:
        async with server.client(ACME) as client:
            stays = await put(client, item(root, key="stays", value={"v": 1}, ttl_s=3600))
            await put(client, item(root, key="goes", value={"v": 1}, ttl_s=0.001))
        server.kill()
        server.start()
        async with server.client(ACME) as client:
            assert stays["expires_at"] > stays["created_at"]
            held = await client.get(ITEMS, params={"namespace": root, "key": "stays"})
            assert held.json() == stays
            check_problem(await client.get(ITEMS, params={"namespace": root, "key": "goes"}), 404, "item_not_found")
            assert await found(client, filter={"v": 1}) == ["stays"]
