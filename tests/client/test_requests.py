"""Requests: what is repeated and under which key, what becomes which error, and what no error ever says."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from app.client import (
    Client,
    ClientError,
    Conflict,
    ConnectionFailed,
    FieldProblem,
    Forbidden,
    Gone,
    InvalidRequest,
    NotFound,
    ProblemError,
    RateLimited,
    ServerError,
    Unauthorized,
    UnexpectedAnswer,
)
from app.client.retries import Attempts, pause_s, retry_after_s
from tests.client.conftest import Connect
from tests.client.network import DROP, SILENCE, answer, canned, problem, proxy_to, run_json
from tests.support.bodies import says, scripted
from tests.support.server import ACME, NOBODY, RunwireServer

pytestmark = pytest.mark.anyio

TIMEOUT_S = 60.0
RUN = answer(201, run_json())
HTML = answer(200, b"<html><body>Welcome</body></html>", content_type="text/html")
BAD_GATEWAY = answer(502, b"<html>bad gateway</html>", content_type="text/html")
CUT = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"


async def test_a_post_is_repeated_with_the_same_key_and_bytes(connect: Connect) -> None:
    answers = (DROP, CUT, BAD_GATEWAY, problem(503, "unavailable"), problem(408, "request_timeout"), RUN)
    async with asyncio.timeout(TIMEOUT_S), canned(*answers) as said, connect(said.url) as client:
        assert (await client.runs.create("demo", {"messages": [], "n": {"deep": (1, 2)}})).id == "run-1"
        assert len(said.requests) == 6
        assert len(set(said.requests)) == 1
        assert len(said.keys()[0]) == 36
        await client.agents.create({"name": "a"}, idempotency_key="my own")
        assert said.keys()[-1] == "my own"


async def test_what_was_refused_is_not_repeated(connect: Connect) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(problem(500, "internal_error"), RUN) as said,
        connect(said.url) as client,
    ):
        with pytest.raises(ServerError):
            await client.runs.create("demo", "hi")
        assert len(said.requests) == 1


async def test_a_delete_that_an_earlier_attempt_did_is_done(connect: Connect) -> None:
    missing = problem(404, "run_not_found")
    async with asyncio.timeout(TIMEOUT_S), canned(DROP, missing) as said, connect(said.url) as client:
        await client.runs.delete("run-1")
        assert said.lines() == ["DELETE /runs/run-1"] * 2
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(problem(429, "too_many_runs"), missing) as said,
        connect(said.url) as client,
    ):
        with pytest.raises(NotFound):
            await client.runs.delete("run-1")


async def test_a_put_and_a_get_are_repeated(connect: Connect) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(DROP, answer(200, {"name": "a"})) as said,
        connect(said.url) as client,
    ):
        assert await client.agents.put("a", {"model": "demo"}) == {"name": "a"}
        assert said.lines() == ["PUT /agents/a"] * 2
    async with asyncio.timeout(TIMEOUT_S), canned(DROP, answer(200, run_json())) as said, connect(said.url) as client:
        assert (await client.runs.get("run-1")).status == "success"


async def test_an_invocation_that_may_have_been_taken_is_not_sent_again(connect: Connect) -> None:
    for lost in (DROP, CUT, BAD_GATEWAY):
        async with (
            asyncio.timeout(TIMEOUT_S),
            canned(lost, answer(200, {"ok": True})) as said,
            connect(said.url) as client,
        ):
            with pytest.raises((ConnectionFailed, ServerError)):
                await client.tools.invoke("echo", {})
            assert len(said.requests) == 1
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(problem(429, "busy"), answer(200, {"ok": True})) as said,
        connect(said.url) as client,
    ):
        assert await client.tools.invoke("echo", {"a": 1}, idempotency_key="k") == {"ok": True}
        assert said.keys() == ["k", "k"]


async def test_retry_after_is_honoured_up_to_a_minute(connect: Connect) -> None:
    limited = problem(429, "too_many_runs", headers={"retry_after": "1"})
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(TIMEOUT_S), canned(limited, RUN) as said, connect(said.url) as client:
        began = loop.time()
        await client.runs.create("demo", "hi")
        assert loop.time() - began >= 1  # never before the server wants it
    later = problem(503, "unavailable", headers={"retry_after": "3600"})
    async with asyncio.timeout(TIMEOUT_S), canned(later, RUN) as said, connect(said.url) as client:
        with pytest.raises(ServerError) as refused:
            await client.runs.create("demo", "hi")
        assert refused.value.retry_after_s == 3600
        assert len(said.requests) == 1


def test_retry_after_is_read_as_seconds_or_as_a_date() -> None:
    assert retry_after_s("7") == 7
    soon = retry_after_s(format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True))
    assert soon is not None
    assert 3500 < soon <= 3600
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    for nonsense in (None, "", "soon", "-1", "1.5", "²", "Wed, 99 Oct 2015 07:28:00 GMT"):
        assert retry_after_s(nonsense) is None


def test_pauses_grow_to_a_bound_and_differ() -> None:
    for failures, whole in ((1, 0.5), (2, 1.0), (5, 8.0), (6, 8.0), (5000, 8.0)):
        found = {pause_s(failures) for _ in range(20)}
        assert len(found) > 1
        assert all(whole / 2 <= pause <= whole for pause in found)
    attempts = Attempts(3, lambda _failures: 1.0)
    assert [attempts.next_pause_s(), attempts.next_pause_s(5), attempts.next_pause_s()] == [1.0, 5, None]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest), (401, Unauthorized), (403, Forbidden), (404, NotFound), (405, ProblemError),
        (409, Conflict), (410, Gone), (413, InvalidRequest), (415, InvalidRequest), (422, InvalidRequest),
        (429, RateLimited), (500, ServerError), (503, ServerError),
    ],
)  # fmt: skip
async def test_a_problem_document_becomes_its_error(connect: Connect, status: int, kind: type[ProblemError]) -> None:
    places = [{"pointer": "/agent", "detail": "unknown agent"}, "odd"]
    said_so = problem(status, "some_code", "There is none.", errors=places, headers={"retry_after": "120"})
    async with asyncio.timeout(TIMEOUT_S), canned(said_so) as said, connect(said.url) as client:
        with pytest.raises(ProblemError) as refused:
            await client.runs.create("demo", "hi")
    error = refused.value
    assert type(error) is kind
    assert str(error) == "There is none. (some_code)"
    assert (error.status, error.code, error.title, error.detail) == (status, "some_code", "Said", "There is none.")
    assert error.errors == (FieldProblem("/agent", "unknown agent"),)
    assert (error.request_id, error.retry_after_s, error.instance) == ("request-1", 120, "/asked")


async def test_a_real_server_refuses_with_errors(server: RunwireServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        with pytest.raises(InvalidRequest) as invalid:
            await client.runs.create("nobody", "hi")
        assert invalid.value.code == "unknown_agent"
        assert invalid.value.errors[0].pointer == "/agent"
        run = await client.runs.wait({"model": scripted(says("x"))}, "hi", idempotency_key="one")
        with pytest.raises(InvalidRequest, match="idempotency_mismatch"):
            await client.runs.create("demo", "hi", idempotency_key="one")
        with pytest.raises(NotFound) as missing:
            await client.runs.get("no/such run?")
        assert missing.value.instance == "/runs/no/such run?"
        await client.runs.delete(run.id)
        with pytest.raises(NotFound):
            await client.runs.delete(run.id)
    async with connect(server.url, api_key=NOBODY) as client:
        with pytest.raises(Forbidden, match="missing_scope"):
            await client.runs.list()
    async with connect(server.url, api_key="not-a-key-of-the-server") as client:
        for ask in (client.runs.list(), anext(client.runs.stream("demo", "hi"))):
            with pytest.raises(Unauthorized) as wrong:
                await ask
            assert "not-a-key" not in repr(wrong.value) + str(wrong.value)


Ask = Callable[[Client], Awaitable[object]]
ASKS: list[Ask] = [
    lambda client: client.runs.create("demo", "hi"),
    lambda client: anext(client.runs.stream("demo", "hi")),
    lambda client: client.runs.get("run-1"),
    lambda client: client.runs.wait_for("run-1"),
    lambda client: client.runs.list(),
    lambda client: client.info(),
    lambda client: client.tools.invoke("echo", {}),
]


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize(
    "odd",
    [
        HTML,
        answer(404, b"<html>nothing here</html>", content_type="text/html"),
        answer(404, {"detail": "Not Found"}),
        answer(302, b"", location="http://elsewhere.example/"),
        answer(200, [1, 2]),
        answer(200, b"{"),
        answer(418, b"I am a teapot"),
    ],
)
async def test_what_is_no_runwire_server_is_said_to_be_none(connect: Connect, ask: Ask, odd: bytes) -> None:
    async with asyncio.timeout(TIMEOUT_S), canned(odd) as said, connect(said.url) as client:
        with pytest.raises(UnexpectedAnswer, match="check the URL"):
            await ask(client)
        assert len(said.requests) == 1


async def test_a_run_without_its_id_is_no_run(connect: Connect) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(answer(201, {"status": "running"})) as said,
        connect(said.url) as client,
    ):
        with pytest.raises(UnexpectedAnswer, match="without `id`"):
            await client.runs.create("demo", "hi")


async def test_a_proxy_without_problem_documents_is_told_by_its_status(connect: Connect) -> None:
    for status, kind in ((401, Unauthorized), (403, Forbidden), (413, InvalidRequest), (502, ServerError)):
        async with (
            asyncio.timeout(TIMEOUT_S),
            canned(answer(status, b"<h1>no</h1>", content_type="text/html")) as said,
            connect(said.url, max_attempts=2) as client,
        ):
            with pytest.raises(kind) as refused:
                await client.runs.get("run-1")
            assert isinstance(refused.value, ProblemError)
            assert refused.value.code is None
            assert "<h1>" not in str(refused.value)


async def test_a_server_that_is_down_or_silent_fails_after_all_attempts(connect: Connect) -> None:
    async with canned(RUN) as said:
        url = said.url
    async with asyncio.timeout(TIMEOUT_S), connect(url, max_attempts=3) as client:
        for ask in ASKS:
            with pytest.raises(ConnectionFailed, match=r"cannot be reached .*, 3 times"):
                await ask(client)
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(SILENCE) as said,
        connect(said.url, max_attempts=3, timeout_s=0.1, connect_timeout_s=0.2) as client,
    ):
        for ask in (ASKS[0], ASKS[1], ASKS[2]):
            said.requests.clear()
            with pytest.raises(ConnectionFailed, match="it took too long, 3 times"):
                await ask(client)
            assert len(said.requests) == 3


async def test_waiting_survives_lost_connections_and_makes_one_run(server: RunwireServer, connect: Connect) -> None:
    agent = {"model": scripted(says("done"))}
    async with asyncio.timeout(TIMEOUT_S), proxy_to(server.url) as proxy, connect(proxy.url) as client:
        for number, on_disconnect in enumerate(("continue", None)):
            proxy.cut_after, proxy.cut_once = 0, True
            labels = {"lost": f"wait-{number}"}
            run = await client.runs.wait(agent, "go", metadata=labels, on_disconnect=on_disconnect)  # pyright: ignore[reportArgumentType]
            assert run.text == "done"
            assert [found.id async for found in client.runs.iterate(metadata=labels)] == [run.id]
            await client.close()
            client._connection._http = connect(proxy.url)._connection._http
        assert (await client.runs.wait(agent, "go", on_disconnect="cancel")).text == "done"


async def test_waiting_longer_than_a_request_may_take(connect: Connect) -> None:
    running, still = answer(201, run_json("running")), answer(202, run_json("running"))
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(SILENCE, running, still, answer(200, run_json())) as said,
        connect(said.url, timeout_s=0.3) as client,
    ):
        assert (await client.runs.wait("demo", "hi")).ok
        assert [line.partition("?")[0] for line in said.lines()] == [
            "POST /runs/wait", "POST /runs", "GET /runs/run-1/wait", "GET /runs/run-1/wait",
        ]  # fmt: skip
        assert len(set(said.keys()[:2])) == 1


async def test_waiting_honours_retry_after(connect: Connect) -> None:
    limited = problem(429, "too_many_runs", headers={"retry_after": "1"})
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(TIMEOUT_S), canned(limited, RUN) as said, connect(said.url) as client:
        began = loop.time()
        assert (await client.runs.wait("demo", "hi")).ok
        assert loop.time() - began >= 1
    later = problem(503, "unavailable", headers={"retry_after": "3600"})
    for refused in (later, problem(422, "unknown_agent")):
        async with asyncio.timeout(TIMEOUT_S), canned(refused, RUN) as said, connect(said.url) as client:
            with pytest.raises(ProblemError):
                await client.runs.wait("demo", "hi")
            assert len(said.requests) == 1


async def test_waiting_for_a_run_ends_in_time(connect: Connect) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(answer(202, run_json("running"))) as said,
        connect(said.url) as client,
    ):
        for timeout_s in (0, 0.05):
            with pytest.raises(TimeoutError, match="run-1 is not finished"):
                await client.runs.wait_for("run-1", timeout_s=timeout_s)
        assert said.lines()[0] == "GET /runs/run-1/wait?timeout_s=0.0"


async def test_the_text_of_a_server_is_cut_and_cleaned(connect: Connect) -> None:
    nasty = "\x1b[31mred\x9b0m\r\nForged: line\u202e " + "x" * 10_000
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(problem(422, "odd\n\x1bcode", nasty, request_id="\x00")) as said,
        connect(said.url) as client,
    ):
        with pytest.raises(InvalidRequest) as refused:
            await client.runs.get("run-1")
    text = str(refused.value)
    assert text.isprintable()
    assert "[31mred0mForged: line " in text
    assert len(text) < 2200


async def test_a_key_is_in_no_error_even_if_the_server_repeats_it(connect: Connect) -> None:
    said_so = problem(422, f"code {ACME}", f"You sent {ACME}.", title=ACME, instance=f"/{ACME}", request_id=ACME)
    async with asyncio.timeout(TIMEOUT_S), canned(said_so) as said, connect(said.url) as client:
        assert ACME not in repr(client) + repr(client._connection.address)
        with pytest.raises(ClientError) as refused:
            await client.runs.get("run-1")
        assert said.header(0, "authorization") == f"Bearer {ACME}"
        assert ACME not in str(refused.value) + repr(vars(refused.value))


async def test_the_key_does_not_follow_a_redirect(connect: Connect) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        canned(RUN) as other,
        canned(answer(307, b"", location=f"{other.url}/runs")) as said,
        connect(said.url) as client,
    ):
        with pytest.raises(UnexpectedAnswer, match="redirects are not followed"):
            await client.runs.create("demo", "hi")
        assert other.requests == []


async def test_a_transport_of_the_programs_own_is_used(connect: Connect) -> None:
    def answers(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"path": request.url.path})

    async with Client("https://runwire.example/api/", transport=httpx.MockTransport(answers)) as client:
        assert await client.info() == {"path": "/api/info"}
