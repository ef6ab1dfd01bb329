"""Query parameters: what a route does not have is refused on every route, and what it has is documented."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from app.api.parameters import OPEN
from app.main import bare_app
from tests.api.problems import check_problem
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import Stream, read_events

pytestmark = pytest.mark.anyio

UNKNOWN = "0190a0a0-0000-7000-8000-000000000000"
HELLO = run_body(scripted(says("hello")))


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, found in bare_app().openapi()["paths"].items():
        for method, operation in found.items():
            yield method.upper(), path, cast("dict[str, Any]", operation)


def address(path: str) -> str:
    return re.sub(r"\{\w+\}", "1", path)


ROUTES = [pytest.param(method, path, id=f"{method} {path}") for method, path, _ in operations()]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_an_unknown_parameter_is_refused_on_every_route(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    answer = await client.request(method, f"{address(path)}?no_such_thing=1")
    check_problem(answer, 422, "invalid_request", "/query/no_such_thing")


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_what_a_route_takes_is_told_only_to_who_has_a_key(server: RunwireServer, method: str, path: str) -> None:
    async with server.client(None) as nobody:
        answer = await nobody.request(method, f"{address(path)}?no_such_thing=1")
    check_problem(answer, 422 if path in OPEN else 401)


async def test_the_refusal_says_what_there_is_and_what_was_meant(client: httpx.AsyncClient) -> None:
    answer = await client.get("/runs?statsu=error&metadata.a=1&limit=3&x/~y=1")
    check_problem(answer, 422, "invalid_request", "/query/statsu")
    body = answer.json()
    assert body["detail"] == (
        "This address has no such parameter; it takes after, agent, limit, metadata.<key>, status, thread_id."
    )
    assert body["errors"] == [
        {"pointer": "/query/statsu", "detail": "unknown parameter; did you mean status?"},
        {"pointer": "/query/x~1~0y", "detail": "unknown parameter"},
    ]
    none = await client.get(f"/runs/{UNKNOWN}?limit=3")
    assert none.json()["detail"] == "This address has no such parameter; it takes none."


async def test_a_long_list_of_unknown_parameters_is_cut(client: httpx.AsyncClient) -> None:
    query = "&".join(f"{'x' * 200}{number}=1" for number in range(100))
    answer = await client.get(f"/tools?{query}")
    check_problem(answer, 422, "invalid_request")
    assert len(answer.json()["errors"]) == 20
    assert len(answer.content) < 4000


@pytest.mark.parametrize("name", ["after", "tail", "hold", "stream"])
async def test_a_stream_refuses_a_mistyped_parameter_before_it_begins(client: httpx.AsyncClient, name: str) -> None:
    run = (await client.post("/runs/wait", json=HELLO)).json()
    answer = await client.get(f"/runs/{run['id']}/stream?{name}s=1")
    check_problem(answer, 422, "invalid_request", f"/query/{name}s")
    assert f"did you mean {name}?" in answer.text


@pytest.mark.parametrize("path", ["/runs", "/runs/stream", "/runs/wait"])
async def test_a_run_is_not_made_by_a_post_with_a_parameter_that_does_nothing(
    client: httpx.AsyncClient, path: str
) -> None:
    marked = {**HELLO, "metadata": {"test": path.replace("/", "_")}}
    check_problem(await client.post(f"{path}?streams=steps", json=marked), 422, "invalid_request", "/query/streams")
    made = await client.get("/runs", params={"metadata.test": path.replace("/", "_")})
    assert made.json()["data"] == []


async def test_a_method_that_a_route_does_not_have_is_told_first(client: httpx.AsyncClient) -> None:
    check_problem(await client.put("/runs?nothing=1"), 405, "method_not_allowed")
    check_problem(await client.get("/runs/stream/x/y?nothing=1"), 404, "route_not_found")


async def test_the_stream_of_a_new_run_takes_what_its_document_says(client: httpx.AsyncClient) -> None:
    for path, headers in (("/runs/stream", {}), ("/runs", {"Accept": "text/event-stream"})):
        answer = await client.post(f"{path}?stream=usage&hold=false", json=HELLO, headers=headers)
        assert answer.status_code == 200
        assert [event.event for event in read_events(answer.content)] == ["run", "usage", "finish", "end"]
        check_problem(
            await client.post(f"{path}?hold=perhaps", json=HELLO, headers=headers),
            422,
            "invalid_request",
            "/query/hold",
        )


async def test_the_stream_of_a_new_run_is_held_while_the_run_waits(client: httpx.AsyncClient) -> None:
    asks = {"name": "asks", "description": "Is run by the caller."}
    body = run_body(scripted(calls(("asks", {})), says("done")), asks)
    async with asyncio.timeout(TIMEOUT_S), client.stream("POST", "/runs/stream?hold=true", json=body) as response:
        stream = Stream(response)
        interrupt = await stream.until("interrupt")
        [asked] = cast("list[dict[str, Any]]", interrupt.data["interrupts"])
        assert (await stream.until("run")).data["status"] == "interrupted"
        answer = {"interrupt_id": asked["id"], "decision": "respond", "output": 1}
        resumed = await client.post(f"{response.headers['location']}/resume", json={"responses": [answer]})
        assert resumed.status_code == 202
        await stream.until("end")
