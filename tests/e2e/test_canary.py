"""Canaries: secrets planted wherever a secret can stand, and looked for in all that a server lets out."""

import base64
import json
from pathlib import Path

import httpx
import pytest

from tests.support.bodies import calls, openai, run_body, says, scripted, tool_spec
from tests.support.chat_completions import ChatCompletionsServer, RecordedRequest, Reply, fails
from tests.support.otlp_collector import OtlpCollector
from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

KEY = "hush0hush-api-key-0123456789"
SIGNING = "whsec_" + base64.b64encode(b"hush0hush-signing-secret-01").decode()
PLANTED = {
    "RUNWIRE_API_KEYS": f"{KEY}:acme,hush0hush-other-key-0123456789:other",
    "RUNWIRE_SECRET_KEY": "hush0hush secret key 0123456789",
    "OPENAI_API_KEY": "sk-hush0hush-openai-key-0123456789",
    "ANTHROPIC_API_KEY": "sk-ant-hush0hush-anthropic-key-0123456789",
    "ALIAS_KEY_HERE": "hush0hush-alias-key-0123456789",
}
CANARIES = ("hush0hush", SIGNING.removeprefix("whsec_")[:16], base64.b64encode(b"hush0hush").decode()[:11])


def telling(request: RecordedRequest) -> Reply:
    """A model's server that quotes the key it was given, as some do."""
    key = next((value for name, value in request.headers.items() if name.lower() in ("authorization", "x-api-key")), "")
    return fails(401, f"Incorrect API key provided: {key} ({key.removeprefix('Bearer ')})")


async def test_no_planted_secret_is_let_out(tmp_path: Path) -> None:
    let_out: list[str] = []

    async def keep(response: httpx.Response) -> httpx.Response:
        text = (await response.aread()).decode(errors="replace")
        let_out.append(f"{response.request.url.path}\n{response.headers}\n{text}")
        return response

    async with ChatCompletionsServer(telling) as model, OtlpCollector() as collector:
        aliases = {
            "quick": {"provider": "openai", "model": "m", "base_url": model.base_url, "api_key_env": "ALIAS_KEY_HERE"}
        }
        env = {
            **PLANTED,
            **collector.env,
            "OPENAI_BASE_URL": model.base_url,
            "ANTHROPIC_BASE_URL": model.base_url.removesuffix("/v1"),
            "RUNWIRE_MODELS": json.dumps(aliases),
            "RUNWIRE_PLUGINS": "tests.observability.leaky_plugin",
            "RUNWIRE_LOG_LEVEL": "debug",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-team=hush0hush-otlp-header-0123456789",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
        }
        with (
            ToolServer.start(tmp_path) as tools,
            RunwireServer.open(tmp_path, keys=PLANTED["RUNWIRE_API_KEYS"], env=env) as server,
        ):
            async with server.client(KEY) as client:
                secret = {
                    "headers": {"X-Team-Key": "hush0hush-tool-header-0123456789"},
                    "auth": {"type": "bearer", "token": "hush0hush-tool-token-0123456789"},
                }
                specs = [
                    {**tool_spec(name, ""), "signing_secret": SIGNING, "http": {"url": tools.url(path), **secret}}
                    for name, path in (("good", "/ok"), ("cut", "/close-after"), ("odd", "/status?code=400"))
                ]
                for spec in specs:
                    await client.post("/tools", json=spec)  # its answer is the one place that shows the signing secret
                    await keep(await client.get(f"/tools/{spec['name']}"))
                    await keep(await client.post(f"/tools/{spec['name']}/invoke", json={"arguments": {}}))
                await keep(await client.get("/tools"))
                inline = openai(model.base_url, api_key="hush0hush-tenant-key-0123456789")
                agent = {"name": "keyed", "model": inline, "tools": ["good"]}
                await keep(await client.post("/agents", json=agent))
                await keep(await client.get("/agents/keyed"))
                bodies: list[dict[str, object]] = [
                    {"agent": "keyed", "input": "hi"},
                    *(run_body(named) for named in ("quick", "openai:m", "anthropic:m")),
                    run_body(openai("http://127.0.0.1:9/v1", api_key="hush0hush-down-key-0123456789")),
                    run_body(
                        scripted(calls(("good", {}), ("cut", {}), ("odd", {}), ("leak", {"text": "x"})), says("done")),
                        *specs,
                        "leak",
                    ),
                ]
                runs: list[str] = []
                for body in bodies:
                    await keep(await client.post("/runs/stream", json=body))
                    run = (await keep(await client.post("/runs/wait", json=body))).json()
                    runs.append(run["id"])
                    for view in ("", "/events", "/steps", "/steps/1", "/messages", "/stream"):
                        await keep(await client.get(f"/runs/{run['id']}{view}"))
                await keep(await client.get("/runs"))
                await keep(await client.get("/models"))
                await keep(await client.get("/metrics"))
                for wrong in ({"api_key": "hush0hush-query-key-0123456789"}, {"key": KEY}):
                    await keep(await client.get("/runs", params=wrong))
                for name, value in (("Authorization", "Bearer hush0hush-wrong"), ("X-API-Key", "hush0hush-wrong&")):
                    await keep(await client.get("/runs", headers={name: value}))
                await keep(await client.post("/runs", json=run_body({**inline, "base_url": "ftp://hush0hush@x"})))
                await keep(await client.post("/runs", json={"agent": {"model": {"api_key": "hush0hush-lone-key"}}}))
                for run_id in runs:
                    await collector.run(run_id)
            log = server.log()
        spans = "\n".join(body.decode("latin-1") for body in collector.bodies)
        database = b"".join(file.read_bytes() for file in (tmp_path / ".runwire").glob("*.db*")).decode("latin-1")
    assert "model_auth" in "".join(let_out)
    assert "execute_tool" in spans
    for canary in CANARIES:
        for place, text in (("answers", "\n".join(let_out)), ("log", log), ("traces", spans), ("database", database)):
            at = text.find(canary)
            assert at < 0, (place, text[max(0, at - 300) : at + 80])
