"""The log of a real server: whole JSON lines with the ids that find them, and nothing that was planted."""

import json
from pathlib import Path
from typing import cast

import pytest

from tests.support.bodies import calls, openai, run_body, says, scripted, tool_spec
from tests.support.scrape import scrape
from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

API_KEY = "planted-api-key-0123456789"
SECRETS = {
    "RUNWIRE_API_KEYS": f"{API_KEY}:acme",
    "RUNWIRE_SECRET_KEY": "planted secret key 0123456789",
    "OPENAI_API_KEY": "planted-openai-key-0123456789",
    "ANTHROPIC_API_KEY": "planted-anthropic-key-0123456789",
    "THEIR_OWN_TOKEN": "planted-plugin-token-0123456789",
    "OTEL_EXPORTER_OTLP_HEADERS": "x-team=planted-otlp-header-0123456789",
    "ALIAS_SECRET_HERE": "planted-alias-key-0123456789",
}
ALIASES = {"fast": {"provider": "openai", "model": "m", "api_key_env": "ALIAS_SECRET_HERE"}}
FORGED = '\n{"event":"forged","level":"error"}\n\x1b[31m\u2028'


def lines_of(server: RunwireServer) -> list[dict[str, object]]:
    return [cast("dict[str, object]", json.loads(line)) for line in server.log().splitlines()]


async def test_no_secret_of_environment_headers_or_bodies_is_in_the_log_or_the_metrics(tmp_path: Path) -> None:
    env = {
        **SECRETS,
        "RUNWIRE_MODELS": json.dumps(ALIASES),
        "RUNWIRE_PLUGINS": "tests.observability.leaky_plugin",
        "RUNWIRE_LOG_LEVEL": "debug",
        "OTEL_SDK_DISABLED": "true",
    }
    with RunwireServer.open(tmp_path, keys=SECRETS["RUNWIRE_API_KEYS"], env=env) as server:
        async with server.client(API_KEY) as client:
            body = run_body(
                scripted(calls(("leak", {"text": FORGED})), says("done")), "leak", text=f"planted-input {FORGED}"
            )
            run = (await client.post("/runs/wait", json=body)).json()
            assert run["status"] == "success"
            auth = {"type": "bearer", "token": "planted-tool-token-1"}
            refused = {"url": "http://127.0.0.1:9/", "headers": {"X-Team": "planted-header-1"}, "auth": auth}
            spec = {
                **tool_spec("down", ""),
                "http": refused,
                "signing_secret": "whsec_cGxhbnRlZC1zaWduaW5nLXNlY3JldA==",
            }
            await client.post("/runs/wait", json=run_body(scripted(calls(("down", {})), says("x")), spec))
            model = openai("http://127.0.0.1:9/v1", api_key="planted-tenant-key-1")
            await client.post("/runs/wait", json=run_body(model))
            await client.get("/runs", params={"api_key": "planted-query-key-1"})
            await client.get("/runs", headers={"Authorization": "Bearer planted-wrong-key-1"})
            await client.get(f"/planted-path/{API_KEY}")
            metrics = await scrape(client)
        log = server.log()
        lines = lines_of(server)
    assert [line for line in lines if line["event"] == "tool_failed"]
    assert [line for line in lines if line["logger"] == "leaky.library"]
    assert not [line for line in lines if line["event"] == "forged"]
    assert log.count("[redacted]") > 5
    for planted in ("planted", "cGxhbnRlZ", "\x1b"):
        assert planted not in log
        assert planted not in metrics.text


async def test_lines_carry_the_ids_that_find_them(tmp_path: Path) -> None:
    env = {"RUNWIRE_LOG_LEVEL": "debug"}
    with ToolServer.start(tmp_path) as tools, RunwireServer.open(tmp_path, env=env) as server:
        async with server.client() as client:
            spec = tool_spec("lost", tools.url("/close-after"))
            body = run_body(scripted(calls(("lost", {})), says("x")), spec)
            answer = await client.post("/runs/wait", json=body, headers={"X-Request-ID": "my-own-request"})
            run = answer.json()
            step = (await client.get(f"/runs/{run['id']}/steps/1")).json()
            failed = await client.post("/runs/wait", json=run_body(scripted()))
        lines = lines_of(server)
    (lost,) = [line for line in lines if line["event"] == "tool_connection_lost"]
    assert lost["tool_call_id"] == step["tool_call_id"]
    ended = next(line for line in lines if line["event"] == "run_ended")
    for line in (lost, ended):
        assert (line["run_id"], line["thread_id"]) == (run["id"], run["thread_id"])
        assert line["request_id"] == "my-own-request"
    assert (ended["status"], ended["stop_reason"], ended["iterations"], ended["tool_calls"]) == (
        "success",
        "finish",
        2,
        1,
    )
    (request,) = [
        line for line in lines if line.get("request_id") == "my-own-request" and line["event"] == "http_request"
    ]
    assert (request["method"], request["route"], request["status"]) == ("POST", "/runs/wait", 200)
    assert request["level"] == "debug"
    (error,) = [line for line in lines if line["event"] == "run_error"]
    assert error["run_id"] == failed.json()["id"]
    assert error["request_id"] == failed.json()["error"]["request_id"]


async def test_a_queued_run_does_not_carry_the_request_that_made_room_for_it(tmp_path: Path) -> None:
    env = {"RUNWIRE_LOG_LEVEL": "debug", "RUNWIRE_MAX_CONCURRENT_RUNS": "1"}
    with RunwireServer.open(tmp_path, env=env) as server:
        async with server.client() as client:
            hanging = run_body(scripted(calls(("hang", {}))), "hang")
            first = (await client.post("/runs", json=hanging, headers={"X-Request-ID": "first"})).json()["id"]
            queued = (await client.post("/runs", json=run_body(scripted(says("x"))))).json()["id"]
            await client.post(f"/runs/{first}/cancel", params={"wait": "true"})
            assert (await client.get(f"/runs/{queued}/wait")).json()["status"] == "success"
        ended = {line["run_id"]: line for line in lines_of(server) if line["event"] == "run_ended"}
    assert ended[first]["request_id"] == "first"
    assert "request_id" not in ended[queued]


async def test_the_text_format_is_asked_for_by_name(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path, env={"RUNWIRE_LOG_FORMAT": "text"}) as server:
        async with server.client() as client:
            await client.post("/runs/wait", json=run_body(scripted()))
        assert " warning  runwire.runs run_error " in server.log()
        assert not server.log().startswith("{")
