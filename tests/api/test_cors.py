"""Web pages of other origins: what a browser is told, and what a server without keys lets them do."""

from collections.abc import Iterator

import httpx
import pytest

from app.api.cors import parse_origins
from tests.api.problems import check_problem
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import RunwireServer
from tests.support.streams import stream

pytestmark = pytest.mark.anyio

PAGE = "https://app.example"
LOCAL = "http://localhost:5173"
HELLO = run_body(scripted(says("hello")))
ORIGIN = "access-control-allow-origin"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    env = {"RUNWIRE_CORS_ORIGINS": f"{PAGE}, {LOCAL}"}
    with RunwireServer.open(tmp_path_factory.mktemp("cors"), env=env) as running:
        yield running


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with RunwireServer.open(tmp_path_factory.mktemp("keyless"), keys="", env={"RUNWIRE_CORS_ORIGINS": PAGE}) as running:
        yield running


async def preflight(
    client: httpx.AsyncClient, origin: str, *, method: str = "POST", headers: str = ""
) -> httpx.Response:
    asked = {"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
    return await client.options("/runs", headers=asked)


async def test_a_preflight_needs_no_key_and_allows_what_callers_send(server: RunwireServer) -> None:
    wanted = "authorization, x-api-key, content-type, idempotency-key, last-event-id, x-request-id, traceparent"
    async with server.client(None) as client:
        for method in ("GET", "POST", "PUT", "DELETE"):
            answer = await preflight(client, PAGE, method=method, headers=wanted)
            assert answer.status_code == 200
            assert answer.headers[ORIGIN] == PAGE
            assert method in answer.headers["access-control-allow-methods"]
            assert "access-control-allow-credentials" not in answer.headers
            assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://app.example",
        "https://app.example:8443",
        "https://app.example.evil.example",
        "null",
    ],
)
async def test_another_origin_is_told_nothing_that_a_browser_would_take(server: RunwireServer, origin: str) -> None:
    async with server.client() as client:
        refused = await preflight(client, origin)
        assert refused.status_code == 400
        assert ORIGIN not in refused.headers
        answer = await client.get("/runs", headers={"Origin": origin})
        assert ORIGIN not in answer.headers
        assert "Origin" in answer.headers["vary"]


async def test_answers_and_refusals_can_both_be_read_by_the_page(server: RunwireServer) -> None:
    exposed = {"location", "content-location", "x-request-id", "idempotency-replayed", "retry-after"}
    async with server.client() as client, server.client(None) as nobody:
        client.headers["Origin"] = nobody.headers["Origin"] = LOCAL
        made = await client.post("/runs", json=HELLO)
        assert made.status_code == 201
        unauthenticated, missing = await nobody.get("/runs"), await client.get("/nowhere")
        check_problem(unauthenticated, 401, "unauthenticated")
        check_problem(missing, 404, "route_not_found")
        for answer in (made, unauthenticated, missing, await client.get("/runs/x"), await client.get("/livez")):
            assert answer.headers[ORIGIN] == LOCAL
            assert "Origin" in answer.headers["vary"]
            assert {
                name.strip().lower() for name in answer.headers["access-control-expose-headers"].split(",")
            } == exposed


async def test_a_page_reads_a_stream_event_by_event(server: RunwireServer) -> None:
    body = run_body(scripted(calls(("hang", {}))), "hang")
    async with server.client() as client:
        client.headers["Origin"] = PAGE
        async with stream(client, "POST", "/runs/stream", json=body) as events:
            assert events.response.headers[ORIGIN] == PAGE
            await events.until("action")  # although the run goes on: nothing holds the events back
            run_id = str(events.events[0].data["run_id"])
        assert (await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})).status_code == 200


async def test_without_the_setting_no_page_is_told_anything(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RunwireServer.open(tmp_path_factory.mktemp("none")) as server:
        async with server.client() as client:
            answer = await client.get("/runs", headers={"Origin": PAGE})
            assert answer.status_code == 200
            assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_star_takes_every_page_without_cookies(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RunwireServer.open(tmp_path_factory.mktemp("star"), env={"RUNWIRE_CORS_ORIGINS": "*"}) as server:
        async with server.client() as client:
            for answer in (
                await client.get("/runs", headers={"Origin": "https://any.example"}),
                await preflight(client, PAGE),
            ):
                assert answer.headers[ORIGIN] == "*"
                assert "access-control-allow-credentials" not in answer.headers


async def test_a_server_without_keys_lets_allowed_pages_and_its_own_in(keyless: RunwireServer) -> None:
    async with keyless.client(None) as client:
        assert (await client.post("/runs/wait", json=HELLO, headers={"Origin": PAGE})).headers[ORIGIN] == PAGE
        own = await client.post("/runs/wait", json=HELLO, headers={"Origin": keyless.url})
        assert own.status_code == 200
        assert (await client.post("/runs/wait", json=HELLO)).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1", ""])
async def test_a_server_without_keys_refuses_every_other_page(keyless: RunwireServer, origin: str) -> None:
    async with keyless.client(None) as client:
        for method, path in (("GET", "/livez"), ("POST", "/runs"), ("POST", "/runs/x/cancel")):
            answer = await client.request(method, path, headers={"Origin": origin}, json=HELLO)
            check_problem(answer, 403, "origin_refused")
            assert ORIGIN not in answer.headers


async def test_an_allowed_page_opens_no_other_name(keyless: RunwireServer) -> None:
    async with keyless.client(None) as client:
        answer = await client.get("/runs", headers={"Origin": PAGE, "Host": "evil.example"})
        check_problem(answer, 403, "host_refused")


@pytest.mark.parametrize(
    ("given", "origins"),
    [
        ("", set[str]()),
        (" https://App.Example ,http://localhost:3000", {"https://app.example", "http://localhost:3000"}),
        ("https://app.example:443,http://app.example:80", {"https://app.example", "http://app.example"}),
        ("http://[::1]:8080", {"http://[::1]:8080"}),
        ("*", {"*"}),
    ],
)
def test_origins_are_kept_as_browsers_write_them(given: str, origins: set[str]) -> None:
    assert parse_origins(given) == origins


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("app.example", "scheme://"), ("https://*.app.example", "wildcard"), ("https://app.example/", "write only https://app.example"),
        ("https://app.example/path", "write only https://app.example"), ("https://app.example?x=1", "write only"),
        ("ftp://app.example", "scheme://"), ("https://", "scheme://"), ("https://app.example:x", "scheme://"),
        ("null", "scheme://"), ("https://user:planted-password@app.example", "write only https://app.example"),
        ("https://app.example\nx", "scheme://"), ("https://app example", "scheme://"), ("https://app.example#", "write only"),
    ],
)  # fmt: skip
def test_what_is_no_origin_is_refused_with_what_to_write(given: str, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_origins(f"https://fine.example,{given}")
    assert says in str(caught.value)
    assert "planted-password" not in str(caught.value)


def test_a_server_does_not_start_with_what_is_no_origin(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("refused")
    broken = RunwireServer(folder, {"RUNWIRE_CORS_ORIGINS": "https://app.example/path"})
    broken.process = broken.spawn()
    assert broken.wait() == 2
    assert "RUNWIRE_CORS_ORIGINS cannot be used" in broken.log()
    assert "write only https://app.example" in broken.log()
