"""The app with an agent inside: a real app before a real server."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.examples.processes import EXAMPLES, blocks, shell, uvicorn
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import ACME, RunwireServer
from tests.support.streams import check_whole, names, stream

pytestmark = pytest.mark.anyio

FOLDER = EXAMPLES / "fastapi_app"
ASKED = {"question": "What is it?"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with RunwireServer.open(tmp_path_factory.mktemp("server")) as running:
        with httpx.Client(base_url=running.url, headers={"X-API-Key": ACME}, trust_env=False) as client:
            agents: dict[str, dict[str, object]] = {
                "answers": {
                    "model": scripted(calls(("echo", {"text": "x"})), says("It is this.", chunk_size=2)),
                    "tools": ["echo"],
                },
                "hangs": {"model": scripted(calls(("hang", {}))), "tools": ["hang"]},
                "fails": {"model": scripted({"error": {"code": "rate_limited"}})},
            }
            for name, spec in agents.items():
                assert client.post("/agents", json={"name": name, **spec}).status_code == 201
        yield running


@asynccontextmanager
async def app_of(url: str, folder: Path, **env: str) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of the app, as `make run` and its guide start it but for the settings."""
    settings = {"RUNWIRE_URL": url, "RUNWIRE_API_KEY": ACME, **env}
    with uvicorn(FOLDER, settings, folder / "app.log") as port:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client:
            yield client


async def test_the_commands_of_the_guide_work(demo: RunwireServer, tmp_path: Path) -> None:
    async with app_of(demo.url, tmp_path, RUNWIRE_API_KEY="") as app:
        (block,) = blocks(FOLDER / "README.md")
        commands = "\n".join(line for line in block.splitlines() if line.startswith("curl"))
        out = await shell(
            commands.replace("curl ", "curl -sS ").replace("http://127.0.0.1:8001", str(app.base_url)), {}
        )
    assert out.startswith('{"answer":"')
    assert "84" in out.partition("event: finish")[2]


async def test_a_question_gets_its_answer_and_a_conversation_goes_on(server: RunwireServer, tmp_path: Path) -> None:
    async with app_of(server.url, tmp_path, ASK_AGENT="answers") as app:
        first = await app.post("/ask", json=ASKED)
        assert first.status_code == 200
        answer = first.json()
        assert answer["answer"] == "It is this."
        more = (await app.post("/ask", json={**ASKED, "thread_id": answer["thread_id"]})).json()
        assert more["thread_id"] == answer["thread_id"]
        assert more["run_id"] != answer["run_id"]
    async with server.client() as client:
        messages = (await client.get(f"/runs/{more['run_id']}/messages")).json()["data"]
    assert [message["content"] for message in messages if message["role"] == "user"] == ["What is it?"] * 2


async def test_a_repeated_request_gets_the_same_run(server: RunwireServer, tmp_path: Path) -> None:
    key = {"Idempotency-Key": "question-1"}
    async with app_of(server.url, tmp_path, ASK_AGENT="answers") as app:
        first, again = [(await app.post("/ask", json=ASKED, headers=key)).json() for _ in range(2)]
        assert first == again
        async with stream(app, "POST", "/ask/stream", json=ASKED, headers=key) as events:
            await events.rest()
        assert events.events[0].data["run_id"] == first["run_id"]
        other = await app.post("/ask", json={"question": "Another?"}, headers=key)
    assert other.status_code == 422
    assert other.json()["detail"]["code"] == "idempotency_mismatch"


async def test_the_stream_is_relayed_event_by_event(server: RunwireServer, tmp_path: Path) -> None:
    async with (
        app_of(server.url, tmp_path, ASK_AGENT="answers") as app,
        stream(app, "POST", "/ask/stream", json=ASKED) as events,
    ):
        got = await events.rest()
    check_whole(got)
    assert {"output", "action", "step", "finish"} <= set(names(got))
    async with server.client() as client:
        journal = (await client.get(f"/runs/{got[0].data['run_id']}/stream")).content
    assert b"".join(event.raw for event in got) in journal


async def test_leaving_the_relayed_stream_lets_the_run_go_on(server: RunwireServer, tmp_path: Path) -> None:
    async with app_of(server.url, tmp_path, ASK_AGENT="hangs") as app, server.client() as client:
        async with stream(app, "POST", "/ask/stream", json=ASKED) as events:
            await events.until("action")  # it came although the run goes on
        run = (await client.get(f"/runs/{events.events[0].data['run_id']}")).json()
        assert run["status"] == "running"
        assert (await app.get("/docs")).status_code == 200  # the app goes on, too
        await client.post(f"/runs/{run['id']}/cancel", params={"wait": "true"})


async def test_no_answer_in_time_is_a_504_that_names_the_run(server: RunwireServer, tmp_path: Path) -> None:
    async with app_of(server.url, tmp_path, ASK_AGENT="hangs", ASK_TIMEOUT_S="0.2") as app, server.client() as client:
        late = await app.post("/ask", json=ASKED)
        assert late.status_code == 504
        run_id = late.json()["detail"]["run_id"]
        stopped = await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})
        assert stopped.json()["status"] == "cancelled"  # it was still going on


async def test_what_a_caller_can_act_on_is_passed_on(server: RunwireServer, tmp_path: Path) -> None:
    async with app_of(server.url, tmp_path, ASK_AGENT="answers") as app, server.client() as client:
        busy = (await client.post("/runs", json=run_body(scripted(calls(("hang", {}))), "hang"))).json()
        for path in ("/ask", "/ask/stream"):
            refused = await app.post(path, json={**ASKED, "thread_id": busy["thread_id"]})
            assert refused.status_code == 409
            assert refused.json()["detail"]["code"] == "thread_busy"
            unknown = await app.post(path, json={**ASKED, "thread_id": busy["id"]})
            assert unknown.status_code == 404
            assert unknown.json()["detail"]["code"] == "thread_not_found"
            assert (await app.post(path, json={"question": ""})).status_code == 422
        await client.post(f"/runs/{busy['id']}/cancel", params={"wait": "true"})


async def test_a_run_that_fails_is_a_502_with_its_code(server: RunwireServer, tmp_path: Path) -> None:
    async with app_of(server.url, tmp_path, ASK_AGENT="fails") as app:
        failed = await app.post("/ask", json=ASKED)
    assert failed.status_code == 502
    assert failed.json()["detail"]["code"] == "model_rate_limited"


@pytest.mark.parametrize("wrong", [{"ASK_AGENT": "nobody"}, {"RUNWIRE_API_KEY": "wrong-key-0123456789"}])
async def test_our_own_mistakes_are_a_502_without_details(
    server: RunwireServer, tmp_path: Path, wrong: dict[str, str]
) -> None:
    async with app_of(server.url, tmp_path, **wrong) as app:
        for path in ("/ask", "/ask/stream"):
            failed = await app.post(path, json=ASKED)
            assert failed.status_code == 502
            assert failed.json() == {"detail": {"message": "The agent cannot be asked."}}
    log = (tmp_path / "app.log").read_text()
    assert "request " in log
    assert "wrong-key-0123456789" not in log


async def test_a_server_that_is_away_is_a_502(tmp_path: Path) -> None:
    async with app_of("http://127.0.0.1:1", tmp_path) as app:
        for path in ("/ask", "/ask/stream"):
            failed = await app.post(path, json=ASKED)
            assert failed.status_code == 502
            assert failed.json() == {"detail": {"message": "The agent cannot be reached."}}
