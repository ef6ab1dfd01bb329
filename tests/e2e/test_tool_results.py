"""Results that are too long for the model: what it sees, what is kept, and that it goes with its run."""

import hashlib
import json

import httpx
import pytest

from tests.e2e.test_bad_tools import called, new_name
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.server import OTHER, RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

WHOLE = json.dumps("x" * 3_000_000).encode()


async def run_of(client: httpx.AsyncClient, spec: dict[str, object]) -> str:
    body = run_body(scripted(calls((str(spec["name"]), {})), says("x")), spec)
    return (await client.post("/runs/wait", json=body)).json()["id"]


async def test_the_whole_of_a_long_result_is_kept_until_its_run_is_deleted(
    server: RunwireServer, client: httpx.AsyncClient, tools: ToolServer
) -> None:
    run_id = await run_of(client, tool_spec(new_name(), tools.url("/big"), max_result_bytes=1000))
    path = f"/runs/{run_id}/steps/1/result"
    step = (await client.get(f"/runs/{run_id}/steps/1")).json()
    assert step["observation"].endswith(f"[the whole {len(WHOLE)} bytes: GET {path}]")
    answer = await client.get(path)
    assert (answer.status_code, answer.content) == (200, WHOLE)
    digest = hashlib.sha256(WHOLE).hexdigest()
    assert (answer.headers["runwire-sha256"], answer.headers["runwire-complete"]) == (digest, "true")
    assert digest in step["observation"]
    assert answer.headers["content-type"] == "application/json"
    assert (answer.headers["content-disposition"], answer.headers["x-content-type-options"]) == (
        "attachment",
        "nosniff",
    )
    async with server.client(OTHER) as other:
        assert (await other.get(path)).json()["code"] == "run_not_found"
    assert (await client.delete(f"/runs/{run_id}")).status_code == 204
    assert (await client.get(path)).json()["code"] == "run_not_found"


async def test_more_than_is_kept_is_said_to_be_incomplete(client: httpx.AsyncClient, tools: ToolServer) -> None:
    run_id = await run_of(client, tool_spec(new_name(), tools.url("/gzip-bomb"), max_result_bytes=10, timeout_s=60))
    answer = await client.get(f"/runs/{run_id}/steps/1/result")
    assert (len(answer.content), answer.headers["runwire-complete"]) == (8 * 1024 * 1024, "false")


async def test_a_result_that_was_not_cut_is_its_output_and_a_step_without_one_has_none(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    run_id = await run_of(client, tool_spec(new_name(), tools.url("/json")))
    answer = await client.get(f"/runs/{run_id}/steps/1/result")
    assert (answer.json(), answer.headers["content-type"]) == ({"temperature": 21.5, "unit": "C"}, "application/json")
    run_id = await run_of(client, tool_spec(new_name(), tools.url("/error")))
    assert (await client.get(f"/runs/{run_id}/steps/1/result")).json()["code"] == "result_not_found"
    assert (await client.get(f"/runs/{run_id}/steps/9/result")).json()["code"] == "step_not_found"


async def test_a_long_result_of_a_plugin_is_kept_too(client: httpx.AsyncClient) -> None:
    body = run_body(scripted(calls(("repeat_text", {"text": "é", "times": 1_000_000})), says("x")), "repeat_text")
    run_id = (await client.post("/runs/wait", json=body)).json()["id"]
    answer = await client.get(f"/runs/{run_id}/steps/1/result")
    assert (answer.text, answer.headers["content-type"]) == ("é" * 1_000_000, "text/plain; charset=utf-8")


async def test_a_run_keeps_64_mib_of_long_results(client: httpx.AsyncClient) -> None:
    many = calls(*[("repeat_text", {"text": "x" * 1024, "times": 8 * 1024})] * 10)
    run_id = (await client.post("/runs/wait", json=run_body(scripted(many, says("x")), "repeat_text"))).json()["id"]
    steps = [(await client.get(f"/runs/{run_id}/steps/{step}")).json() for step in range(1, 11)]
    assert {step["status"] for step in steps} == {"success"}
    kept = ["[the whole 8388608 bytes: GET " in step["observation"][-120:] for step in steps]
    assert kept.count(True) == 8
    for step, is_kept in zip(steps, kept, strict=True):
        result = await client.get(f"/runs/{run_id}/steps/{step['step']}/result")
        if is_kept:
            assert len(result.content) == 8 * 1024 * 1024
        else:
            assert "no more of it is kept" in step["observation"][-200:]
            assert result.json() == step["observation"]
    assert (await client.delete(f"/runs/{run_id}")).status_code == 204


async def test_what_breaks_off_beyond_what_is_shown_is_still_a_success(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    step = await called(client, tool_spec(new_name(), tools.url("/half"), max_result_bytes=5))
    assert (step["status"], step["observation"][:5]) == ("success", '{"out')
    assert "[the first " in step["observation"]
