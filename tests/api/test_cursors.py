"""Cursors of lists: every list goes on from its own, and refuses what is none."""

from typing import Any, cast

import httpx
import pytest

from app.main import bare_app
from tests.api.problems import check_problem
from tests.support.bodies import run_body, says, scripted, tool_spec

pytestmark = pytest.mark.anyio

LISTS = sorted(
    path
    for path, operations in cast("dict[str, Any]", bare_app().openapi()["paths"]).items()
    if any(parameter["name"] == "after" for parameter in operations.get("get", {}).get("parameters", ()))
)
HELLO = run_body(scripted(says("hello")))


def test_there_are_lists() -> None:
    assert {"/runs", "/tools", "/agents", "/models", "/threads", "/tool-calls"} <= set(LISTS)


@pytest.mark.parametrize(
    ("path", "after"),
    [
        (path, after)
        for path in LISTS
        for after in ("zzz", "..", "-1", "~", "~no/name", "1" * 30)
        if path != "/store/namespaces" or after == ".."  # a namespace's text is its cursor, and the others are one
    ],
)
async def test_what_is_no_cursor_of_the_list_is_refused(client: httpx.AsyncClient, path: str, after: str) -> None:
    run = (await client.post("/runs/wait", json=HELLO)).json()
    address = path.format(run_id=run["id"], thread_id=run["thread_id"])
    check_problem(await client.get(address, params={"after": after}), 400, "invalid_cursor")


@pytest.mark.parametrize("path", ["/tools", "/agents"])
async def test_a_list_by_name_is_walked_by_its_cursors(client: httpx.AsyncClient, path: str) -> None:
    model: dict[str, object] = {"model": scripted(says("x"))}
    for name in ("walk_a", "walk_b", "walk_c"):
        body = tool_spec(name, "http://127.0.0.1:9/x") if path == "/tools" else {"name": name, **model}
        assert (await client.put(f"{path}/{name}", json=body)).status_code in (200, 201)
    seen: list[str] = []
    page: dict[str, Any] = {"next_cursor": None}
    while True:
        cursor = page["next_cursor"]
        page = (await client.get(path, params={"limit": 2, **({"after": cursor} if cursor else {})})).json()
        seen += [item["name"] for item in page["data"]]
        assert page["has_more"] == (page["next_cursor"] is not None)
        if not page["has_more"]:
            break
    assert seen == sorted(set(seen))
    assert {"walk_a", "walk_b", "walk_c"} <= set(seen)
