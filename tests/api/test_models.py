"""Models over HTTP: the list of what may be named, what a run of an alias costs, and the limit in money."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.problems import check_problem
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import NOBODY, RUNNER, RunwireServer
from tests.support.streams import Event, check_whole, read_events

pytestmark = pytest.mark.anyio

KEY = "sk-of-an-alias-987654321"
PRICES = {"input_per_mtok": 3, "output_per_mtok": 15}
COUNTED = {"input_tokens": 1000, "output_tokens": 200}
"""Costs 0.006 USD at `PRICES`."""

TALK = [
    calls(("echo", {"text": "a"}), usage=COUNTED),
    calls(("echo", {"text": "b"}), usage=COUNTED),
    says("ok", usage=COUNTED),
]

ALIASES: dict[str, object] = {
    "talker": {**scripted(*TALK), "prices": PRICES, "description": "Calls twice, then talks."},
    "free": scripted(*TALK),
    "cheap": {**scripted(says("ok", usage=COUNTED)), "prices": {**PRICES, "output_per_mtok": 0, "input_per_mtok": 0}},
    "remote": {
        "provider": "openai",
        "model": "qwen3",
        "base_url": "http://10.1.2.3:8000/v1",
        "api_key_env": "ALIAS_KEY",
        "params": {"user": "param-of-the-operator"},
    },
}
SECRETS = (KEY, "10.1.2.3", "param-of-the-operator", "ALIAS_KEY")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    env = {
        "RUNWIRE_MODELS": json.dumps(ALIASES),
        "ALIAS_KEY": KEY,
        "RUNWIRE_PLUGINS": "tests.e2e.plugin_tools,tests.api.plugin_models",
    }
    with RunwireServer.open(tmp_path_factory.mktemp("models"), env=env) as running:
        yield running


async def told(client: httpx.AsyncClient, body: object) -> list[Event]:
    answer = await client.post("/runs/stream", json=body)
    assert answer.status_code == 200, answer.text
    found = read_events(answer.content)
    check_whole(found)
    return found


def of(found: list[Event], kind: str) -> list[dict[str, Any]]:
    return [item.data for item in found if item.event == kind]


async def test_the_list_shows_aliases_and_plugins_by_name_and_nothing_secret(client: httpx.AsyncClient) -> None:
    answer = await client.get("/models")
    body = answer.json()
    assert [model["name"] for model in body["data"]] == ["cheap", "free", "odd", "remote", "talker"]
    assert (body["has_more"], body["next_cursor"]) == (False, None)
    assert body["data"][-1] == {
        "name": "talker",
        "source": "alias",
        "provider": "scripted",
        "model": "scripted",
        "description": "Calls twice, then talks.",
        "prices": {**PRICES, "cache_read_per_mtok": None, "cache_write_per_mtok": None},
    }
    assert body["data"][2]["source"] == "plugin"
    assert body["data"][3]["prices"] is None
    assert not any(secret in answer.text for secret in SECRETS)


async def test_the_list_comes_in_pages(client: httpx.AsyncClient) -> None:
    seen: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(3):
        page = (await client.get("/models", params={"limit": "2", **cursor})).json()
        seen += [model["name"] for model in page["data"]]
        if not page["has_more"]:
            break
        cursor = {"after": page["next_cursor"]}
    assert seen == ["cheap", "free", "odd", "remote", "talker"]


async def test_one_model_is_found_by_its_name(client: httpx.AsyncClient) -> None:
    answer = await client.get("/models/remote")
    assert (answer.json()["provider"], answer.json()["model"]) == ("openai", "qwen3")
    assert not any(secret in answer.text for secret in SECRETS)
    for name in ("openai", "nothing", "tal ker", "%2e%2e"):
        check_problem(await client.get(f"/models/{name}"), 404, "model_not_found")


async def test_models_are_read_with_a_key_that_may_read(server: RunwireServer) -> None:
    for path in ("/models", "/models/talker"):
        async with server.client(RUNNER) as may:
            assert (await may.get(path)).status_code == 200
        async with server.client(NOBODY) as may_not:
            check_problem(await may_not.get(path), 403, "missing_scope")
        async with server.client(None) as nobody:
            check_problem(await nobody.get(path), 401, "unauthenticated")


async def test_an_unknown_alias_is_refused_with_the_names_that_there_are(client: httpx.AsyncClient) -> None:
    refusal = await client.post("/runs", json=run_body("slow"))
    check_problem(refusal, 422, "unknown_model", "/agent/model")
    assert "cheap, free, remote, talker" in refusal.json()["detail"]


async def test_a_priced_run_tells_what_each_call_and_all_of_them_cost(client: httpx.AsyncClient) -> None:
    found = await told(client, run_body("talker", "echo"))
    assert [usage["cost_usd"] for usage in of(found, "usage")] == [0.006, 0.006, 0.006]
    assert of(found, "end")[0]["usage"]["cost_usd"] == 0.018
    run = (await client.get(f"/runs/{found[0].data['run_id']}")).json()
    assert run["usage"] == {
        "model_calls": 3,
        "tool_calls": 2,
        "input_tokens": 3000,
        "output_tokens": 600,
        "total_tokens": 3600,
        "cost_usd": 0.018,
    }


async def test_a_run_without_prices_has_no_cost(client: httpx.AsyncClient) -> None:
    for model in ("free", scripted(*TALK)):
        found = await told(client, run_body(model, "echo"))
        assert not any("cost_usd" in usage for usage in of(found, "usage"))
        assert of(found, "end")[0]["usage"]["cost_usd"] is None
    found = await told(client, run_body("cheap"))
    assert of(found, "end")[0]["usage"]["cost_usd"] == 0


@pytest.mark.parametrize(("cap", "answers"), [(0.02, 3), (0.012, 2), (0.0119, 2), (0.006, 1), (0.000001, 1), (0, 0)])
async def test_a_run_stops_before_the_round_after_its_money_is_spent(
    client: httpx.AsyncClient, cap: float, answers: int
) -> None:
    found = await told(client, run_body("talker", "echo", agent={"limits": {"max_cost_usd": cap}}))
    assert len(of(found, "usage")) == answers
    assert of(found, "end")[0]["status"] == "success"
    assert of(found, "end")[0]["stop_reason"] == ("finish" if answers == 3 else "usage_limit")
    if answers < 3:
        assert of(found, "finish")[0]["return_values"] == {"output": "Agent stopped due to usage limit."}
    assert len(of(found, "step")) == min(answers, 2)


async def test_a_cap_in_money_needs_prices(client: httpx.AsyncClient) -> None:
    capped = {"limits": {"max_cost_usd": 1.0}}
    for model in ("free", "odd:answers", scripted(says("ok"))):
        check_problem(
            await client.post("/runs", json=run_body(model, agent=capped)),
            422,
            "invalid_request",
            "/agent/limits/max_cost_usd",
        )
        check_problem(
            await client.post("/runs", json=run_body(model, config=capped)),
            422,
            "invalid_request",
            "/config/limits/max_cost_usd",
        )
        check_problem(
            await client.put("/agents/capped", json={"model": model, **capped}),
            422,
            "invalid_request",
            "/limits/max_cost_usd",
        )


@pytest.mark.parametrize("cap", [-0.1, "1", True, [1]])
async def test_a_cap_in_money_is_a_number_from_0_on(client: httpx.AsyncClient, cap: object) -> None:
    body = run_body("talker", agent={"limits": {"max_cost_usd": cap}})
    check_problem(await client.post("/runs", json=body), 422, "invalid_request", "/agent/limits/max_cost_usd")


async def test_a_run_may_lower_its_agents_cap_and_not_raise_it(client: httpx.AsyncClient) -> None:
    agent = {"model": "talker", "tools": ["echo"], "limits": {"max_cost_usd": 0.012}}
    assert (await client.put("/agents/lowered", json=agent)).status_code == 201
    for cap in (0.013, None):
        body = {"agent": "lowered", "input": "go", "config": {"limits": {"max_cost_usd": cap}}}
        check_problem(await client.post("/runs", json=body), 422, "invalid_request", "/config/limits/max_cost_usd")
    body = {"agent": "lowered", "input": "go", "config": {"limits": {"max_cost_usd": 0.001}}}
    assert len(of(await told(client, body), "usage")) == 1


async def test_an_agent_shows_the_name_of_its_alias_only(client: httpx.AsyncClient, server: RunwireServer) -> None:
    made = await client.put("/agents/named", json={"model": "remote"})
    assert made.json()["model"] == {"provider": "alias", "model": "remote"}
    params = {"provider": "alias", "model": "remote", "params": {"seed": 1}}
    made_too = await client.put("/agents/named", json={"model": params})
    assert made_too.json()["model"] == params
    for answer in (made, made_too, await client.get("/agents/named"), await client.get("/agents")):
        assert not any(secret in answer.text for secret in SECRETS)
    assert not any(secret in server.log() for secret in SECRETS)


async def test_an_alias_that_cannot_work_stops_the_start_in_one_line(tmp_path: Path) -> None:
    from tests.cli.command import runwire

    bad = {"fast": {**ALIASES, "provider": "openai", "model": "m", "api_key": KEY}}
    for table, said in (
        (bad, "fast"),
        ({"fast": {"provider": "openai", "model": "m", "api_key_env": "NOPE"}}, "api_key_env"),
    ):
        env = {"RUNWIRE_MODELS": json.dumps(table), "RUNWIRE_PORT": "0"}
        result = await runwire("serve", cwd=tmp_path, env=env)
        assert result.code == 2
        assert result.err.startswith("runwire: RUNWIRE_MODELS cannot be used: ")
        assert said in result.err
        assert result.err.count("\n") == 1
        assert KEY not in result.err
