"""Where calls may go, over HTTP: refused when a tool or agent is registered, and again when it is called."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.bodies import calls, openai, run_body, says, scripted, tool_spec
from tests.support.receiver import Receiver
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.tools.egress_corpus import NOT_URLS, REFUSED_HOSTS

pytestmark = pytest.mark.anyio

CLOSED = {"RUNWIRE_EGRESS_ALLOW": ""}
REFUSALS = ("egress_refused", "invalid_url", "invalid_request")


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with RunwireServer.open(tmp_path_factory.mktemp("closed"), env=CLOSED) as running:
        yield running


@pytest.fixture
async def at(closed: RunwireServer) -> AsyncIterator[httpx.AsyncClient]:
    async with closed.client() as opened:
        yield opened


async def refusal(client: httpx.AsyncClient, path: str, body: object) -> tuple[int, str, list[str]]:
    answer = await client.post(path, json=body)
    problem = answer.json()
    return answer.status_code, problem.get("code"), [error["pointer"] for error in problem.get("errors", ())]


async def test_no_refused_address_can_be_registered_anywhere_an_address_may_stand(at: httpx.AsyncClient) -> None:
    async with Receiver.open() as canary:
        port = canary.url.split(":")[2].split("/")[0]
        urls = [f"http://{host}:{port}/call" for host in REFUSED_HOSTS] + NOT_URLS
        for url in urls:
            fine = tool_spec("fine", "https://tools.example.com/x")
            places: list[tuple[str, object, str]] = [
                ("/tools", tool_spec("never", url), "/http/url"),
                ("/tools", {**fine, "status_url": url}, "/status_url"),
                ("/agents", {"name": "never", "model": openai(url)}, "/model/base_url"),
                ("/runs", run_body(openai(url)), "/agent/model/base_url"),
                ("/runs", run_body(scripted(), tool_spec("never", url)), "/agent/tools/0/http/url"),
            ]
            for path, body, pointer in places:
                status, code, pointers = await refusal(at, path, body)
                assert (status, code in REFUSALS, pointers) == (422, True, [pointer]), (url, path, code)
        assert canary.connections == 0
    assert (await at.get("/tools", params={"source": "registered"})).json()["data"] == []
    assert (await at.get("/agents")).json()["data"] == []


async def test_what_was_allowed_when_it_was_registered_is_refused_when_it_is_called(tmp_path: Path) -> None:
    """The operator took the entry from the allow-list: the tool, its status_url and the model are still registered."""
    async with Receiver.open() as canary, asyncio.timeout(TIMEOUT_S):
        with RunwireServer.open(tmp_path) as server:
            async with server.client() as client:
                spec = tool_spec("once_allowed", canary.url, status_url=canary.url)
                assert (await client.post("/tools", json=spec)).status_code == 201
                agent = {"name": "once_allowed", "model": openai(canary.url)}
                assert (await client.post("/agents", json=agent)).status_code == 201
            server.kill()
            server.env = {**server.env, **CLOSED}
            server.start()
            async with server.client() as client:
                body = run_body(scripted(calls(("once_allowed", {})), says("done")), "once_allowed")
                run = (await client.post("/runs/wait", json=body)).json()
                [step] = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
                assert (step["status"], step["error"]["code"]) == ("error", "egress_refused")
                assert "127.0.0.1" not in step["observation"]
                failed = (await client.post("/runs/wait", json={"agent": "once_allowed", "input": "go"})).json()
                assert (failed["status"], failed["error"]["code"]) == ("error", "model_bad_request")
        assert canary.connections == 0
