"""Aliases of models behind HTTP: whose key goes where, which deadlines hold, and what a restart changes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.problems import check_problem
from tests.support.bodies import calls, openai, run_body, scripted
from tests.support.bodies import says as turn
from tests.support.chat_completions import ChatCompletionsServer, Reply, answer_chunks, events, fails, says
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import Event, check_whole, read_events, stream

pytestmark = pytest.mark.anyio

KEY, OTHER_KEY, OPERATOR_KEY = "sk-alias-key-111222333", "sk-rotated-key-444555666", "sk-server-key-777888999"
PRICES = {"input_per_mtok": 3, "output_per_mtok": 15, "cache_read_per_mtok": 0.3}
COUNTED = {"input_tokens": 1000, "output_tokens": 200}


def environment(**aliases: object) -> dict[str, str]:
    """No private address is open to tenants: only an alias may go there."""
    return {
        "RUNWIRE_MODELS": json.dumps(aliases),
        "RUNWIRE_EGRESS_ALLOW": "",
        "OPENAI_API_KEY": OPERATOR_KEY,
        "ALIAS_KEY": KEY,
    }


def of(found: list[Event], kind: str) -> list[dict[str, Any]]:
    return [item.data for item in found if item.event == kind]


async def told(client: httpx.AsyncClient, body: object) -> list[Event]:
    async with asyncio.timeout(TIMEOUT_S):
        answer = await client.post("/runs/stream", json=body)
    assert answer.status_code == 200, answer.text
    found = read_events(answer.content)
    check_whole(found)
    return found


async def test_an_agent_of_an_alias_reaches_its_private_address_with_its_key_alone(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 600}}
    chunks = answer_chunks("hi", usage=None)
    chunks.append({**chunks[-1], "choices": [], "usage": usage})
    async with ChatCompletionsServer([Reply(body=events(chunks))]) as model:
        here = {"provider": "openai", "model": "qwen3", "base_url": model.base_url}
        env = environment(
            fast={**here, "api_key_env": "ALIAS_KEY", "params": {"temperature": 0, "seed": 7}, "prices": PRICES},
            bare=here,
        )
        with RunwireServer.open(tmp_path, env=env) as server:
            async with server.client() as client:
                check_problem(await client.post("/runs", json=run_body(openai(model.base_url))), 422, "egress_refused")
                made = await client.put("/agents/clerk", json={"model": "fast", "limits": {"max_cost_usd": 1}})
                assert made.status_code == 201
                found = await told(client, {"agent": "clerk", "input": "go"})
                hotter = {"provider": "alias", "model": "fast", "params": {"temperature": 1}}
                await told(client, run_body(hotter))
                await told(client, run_body("bare"))
                run_id = found[0].data["run_id"]
                paths = ["/models", "/models/fast", "/agents", "/agents/clerk"]
                paths += [f"/runs/{run_id}{part}" for part in ("", "/events", "/steps", "/messages")]
                shown = [(await client.get(path)).text for path in paths]
            shown.append(server.log())
        sent = [(request.headers.get("authorization"), request.json) for request in model.requests]
    assert [key for key, _ in sent] == [f"Bearer {KEY}", f"Bearer {KEY}", None]
    assert [body.get("temperature") for _, body in sent] == [0, 1, None]
    assert [body.get("seed") for _, body in sent] == [7, 7, None]
    # 400 plain and 600 cached tokens in, 200 out
    assert of(found, "usage")[0]["cost_usd"] == 0.00438
    assert of(found, "end")[0]["usage"]["cost_usd"] == 0.00438
    for secret in (KEY, OPERATOR_KEY, model.base_url, "ALIAS_KEY"):
        assert not any(secret in text for text in shown)


async def test_the_deadlines_and_the_retries_of_an_alias_hold(tmp_path: Path) -> None:
    silent, busy = [Reply(silent=True)], [fails(503, "busy"), fails(503, "busy"), says("at last")]
    quick = {"initial_s": 0, "max_s": 0}
    async with (
        ChatCompletionsServer(silent) as dumb,
        ChatCompletionsServer(busy) as once,
        ChatCompletionsServer(busy) as often,
    ):
        env = environment(
            impatient={
                "provider": "openai",
                "model": "m",
                "base_url": dumb.base_url,
                "timeouts": {"first_token_s": 0.2},
            },
            once={"provider": "openai", "model": "m", "base_url": once.base_url, "retries": {"max_attempts": 1}},
            often={
                "provider": "openai",
                "model": "m",
                "base_url": often.base_url,
                "retries": {"max_attempts": 3, **quick},
            },
        )
        with RunwireServer.open(tmp_path, env=env) as server:
            async with server.client() as client:
                assert of(await told(client, run_body("impatient")), "error")[0]["code"] == "model_timeout"
                assert of(await told(client, run_body("once")), "error")[0]["code"] == "model_unavailable"
                found = await told(client, run_body("often"))
                assert of(found, "finish")[0]["return_values"] == {"output": "at last"}
        assert (len(once.requests), len(often.requests)) == (1, 3)


async def test_a_key_that_the_models_server_tells_back_shows_nowhere(tmp_path: Path) -> None:
    async with ChatCompletionsServer([fails(401, f"Incorrect API key provided: {KEY}.")]) as model:
        env = environment(
            fast={"provider": "openai", "model": "m", "base_url": model.base_url, "api_key_env": "ALIAS_KEY"}
        )
        with RunwireServer.open(tmp_path, env=env) as server:
            async with server.client() as client:
                found = await told(client, run_body("fast"))
            assert of(found, "error")[0]["code"] == "model_auth"
            assert KEY not in b"".join(item.raw for item in found).decode()
            assert KEY not in server.log()


async def killed_while_asking(server: RunwireServer, model: ChatCompletionsServer, body: object) -> str:
    """A run whose model is being asked, on a server that is then killed; its id."""
    async with asyncio.timeout(TIMEOUT_S), server.client() as client:
        run_id = str((await client.post("/runs", json=body)).json()["id"])
        await model.until(lambda: bool(model.requests))
    server.kill()
    return run_id


async def ended(server: RunwireServer, run_id: str) -> dict[str, Any]:
    async with server.client() as client:
        return dict((await client.get(f"/runs/{run_id}/wait", params={"timeout_s": TIMEOUT_S})).json())


async def test_a_run_that_waits_uses_the_key_and_the_address_that_its_alias_has_now(tmp_path: Path) -> None:
    async with ChatCompletionsServer([Reply(silent=True)]) as old, ChatCompletionsServer([says("hi")]) as new:
        here = {"provider": "openai", "model": "m", "base_url": old.base_url, "api_key_env": "ALIAS_KEY"}
        with RunwireServer.open(tmp_path, env=environment(fast=here)) as server:
            run_id = await killed_while_asking(server, old, run_body("fast"))
            moved = {**here, "base_url": new.base_url}
            server.env = {**server.env, **environment(fast=moved), "ALIAS_KEY": OTHER_KEY}
            server.start()
            run = await ended(server, run_id)
        assert (run["status"], run["output"]) == ("success", {"output": "hi"})
        assert [request.headers["authorization"] for request in new.requests] == [f"Bearer {OTHER_KEY}"]
        assert [request.headers["authorization"] for request in old.requests] == [f"Bearer {KEY}"]


async def test_a_run_whose_alias_is_gone_ends_and_says_so(tmp_path: Path) -> None:
    async with ChatCompletionsServer([Reply(silent=True)]) as model:
        here = {"provider": "openai", "model": "m", "base_url": model.base_url}
        with RunwireServer.open(tmp_path, env=environment(fast=here)) as server:
            async with server.client() as client:
                assert (await client.put("/agents/left", json={"model": "fast"})).status_code == 201
            run_id = await killed_while_asking(server, model, run_body("fast"))
            server.env = {**server.env, **environment(slow=here)}
            server.start()
            run = await ended(server, run_id)
            assert (run["status"], run["error"]["code"]) == ("error", "model_not_configured")
            assert "`fast` is no longer configured" in run["error"]["message"]
            async with server.client() as client:
                found = await told(client, {"agent": "left", "input": "go"})
                assert of(found, "error")[0]["code"] == "model_not_configured"


async def test_what_a_run_cost_outlives_a_crash(tmp_path: Path) -> None:
    first = calls(("echo", {"text": "a"}), usage=COUNTED)
    slow = scripted(first, turn("", delay_ms=3_600_000))
    done = scripted(first, turn("ok", usage=COUNTED))
    with RunwireServer.open(tmp_path, env=environment(fast={**slow, "prices": PRICES})) as server:
        async with (
            asyncio.timeout(TIMEOUT_S),
            server.client() as client,
            stream(client, "POST", "/runs/stream", json=run_body("fast", "echo")) as told_so_far,
        ):
            run_id = str((await told_so_far.until("run")).data["run_id"])
            await told_so_far.until("step")
            server.kill()
        server.env = {**server.env, **environment(fast={**done, "prices": PRICES})}
        server.start()
        run = await ended(server, run_id)
    assert (run["status"], run["attempt"]) == ("success", 2)
    assert run["usage"]["cost_usd"] == 0.012
