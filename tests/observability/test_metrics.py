"""Metrics of a real server: each moves for the reason it names, and no label holds what a caller wrote."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.problems import check_problem
from tests.e2e.ledger import until_effects
from tests.support import chat_completions
from tests.support.bodies import calls, openai, run_body, says, scripted, tool_spec
from tests.support.chat_completions import ChatCompletionsServer
from tests.support.scrape import Scrape, scrape, scrape_open, scrape_until
from tests.support.server import READER, TIMEOUT_S, RunwireServer
from tests.support.streams import stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

NO_ARGUMENTS: dict[str, object] = {}

PRICED = {
    "priced": {
        "provider": "scripted",
        "script": [says("done", usage={"input_tokens": 1000, "output_tokens": 500})],
        "prices": {"input_per_mtok": 2.0, "output_per_mtok": 4.0},
    }
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    env = {"RUNWIRE_MODELS": json.dumps(PRICED)}
    with RunwireServer.open(tmp_path_factory.mktemp("server"), env=env) as running:
        yield running


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServer]:
    with ToolServer.start(tmp_path_factory.mktemp("tools")) as running:
        yield running


async def moved(client: httpx.AsyncClient, before: Scrape, name: str, **labels: str) -> float:
    return (await scrape(client)).sum(name, **labels) - before.sum(name, **labels)


async def ran(client: httpx.AsyncClient, body: dict[str, object]) -> dict[str, object]:
    answer = await client.post("/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_run_counts_its_end_its_model_calls_and_its_tool_call(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    before = await scrape(client)
    usage = {"input_tokens": 7, "output_tokens": 3}
    script = scripted(calls(("counted", {}), usage=usage), says("done", usage=usage))
    await ran(client, run_body({**script, "model": "counter"}, tool_spec("counted", tools.url("/ok"), effect="read")))
    after = await scrape(client)

    def by(name: str, **labels: str) -> float:
        return after.sum(name, **labels) - before.sum(name, **labels)

    model = {"provider": "scripted", "model": "counter"}
    tool = {"tool": "counted", "status": "success"}
    assert by("runwire_runs_total", status="success", stop_reason="finish") == 1
    assert by("runwire_run_duration_seconds_count", status="success") == 1
    assert by("runwire_model_call_duration_seconds_count", **model, outcome="success") == 2
    assert by("runwire_model_first_chunk_seconds_count", **model) == 2
    assert by("runwire_model_tokens_total", **model, kind="input") == 14
    assert by("runwire_model_tokens_total", **model, kind="output") == 6
    assert by("runwire_tool_calls_total", **tool, effect="read") == 1
    assert by("runwire_tool_call_duration_seconds_count", **tool, source="inline") == 1
    assert by("runwire_tool_attempts_total", tool="counted") == 1
    assert by("runwire_tool_unknown_outcomes_total") == 0
    assert by("runwire_model_cost_usd_total") == 0
    assert by("runwire_http_requests_total", route="/runs/wait", method="POST", status="200") == 1
    assert by("runwire_http_request_duration_seconds_count", route="/runs/wait", method="POST") == 1
    flushes = by("runwire_journal_flush_seconds_count")
    assert flushes >= 3
    assert by("runwire_journal_flush_writes_count") == flushes
    assert by("runwire_journal_flush_writes_sum") >= flushes
    assert after.sum("runwire_runs_running") == 0
    assert after.sum("runwire_build_info") == 1
    assert after.sum("process_resident_memory_bytes") > 0


async def test_both_formats_say_the_same(client: httpx.AsyncClient) -> None:
    await ran(client, run_body(scripted(says("x"))))
    plain, opened = await scrape(client), await scrape_open(client)
    for name in ("runwire_runs_total", "runwire_run_duration_seconds_count", "runwire_model_tokens_total"):
        assert plain.sum(name) == opened.sum(name) > 0 or name == "runwire_model_tokens_total"
    assert {name for name, _, _ in plain.samples if name.startswith("runwire_")} == {
        name for name, _, _ in opened.samples if name.startswith("runwire_")
    }


async def test_a_connection_that_a_tool_cuts_after_the_call_raises_the_alarm(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    before = await scrape(client)
    model = scripted(calls(("pay", {})), says("I do not know"))
    await ran(client, run_body(model, tool_spec("pay", tools.url("/close-after"))))
    assert await moved(client, before, "runwire_tool_unknown_outcomes_total", tool="pay") == 1
    assert await moved(client, before, "runwire_tool_calls_total", tool="pay", effect="write", status="unknown") == 1
    assert await moved(client, before, "runwire_tool_unknown_outcomes_total") == 1


async def test_a_call_that_a_cancel_cut_while_it_was_out_raises_the_alarm_once(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    before = await scrape(client)
    model = scripted(calls(("cut_off", {})), says("never"))
    async with stream(
        client, "POST", "/runs/stream", json=run_body(model, tool_spec("cut_off", tools.url("/never")))
    ) as open_:
        run_id = str((await open_.until("run")).data["run_id"])
        async with asyncio.timeout(TIMEOUT_S):
            await until_effects(tools, "cut_off", count=1)
        await client.post(f"/runs/{run_id}/cancel")
        await open_.rest()
    assert await moved(client, before, "runwire_tool_unknown_outcomes_total", tool="cut_off") == 1
    assert await moved(client, before, "runwire_tool_calls_total", tool="cut_off") == 1
    assert await moved(client, before, "runwire_runs_total", status="cancelled", stop_reason="cancelled") == 1


async def test_attempts_count_each_request_of_a_repeated_call(client: httpx.AsyncClient, tools: ToolServer) -> None:
    before = await scrape(client)
    spec = tool_spec("again", tools.url("/503-then-ok?times=2"), effect="read", retry={"max_attempts": 3})
    await ran(client, run_body(scripted(calls(("again", {})), says("ok")), spec))
    assert await moved(client, before, "runwire_tool_attempts_total", tool="again") == 3
    assert await moved(client, before, "runwire_tool_calls_total", tool="again", status="success") == 1


async def test_a_model_that_fails_counts_under_its_code(client: httpx.AsyncClient) -> None:
    before = await scrape(client)
    await ran(client, run_body({**scripted({"error": {"code": "rate_limited"}}), "model": "failing"}))
    labels = {"model": "failing", "outcome": "model_rate_limited"}
    assert await moved(client, before, "runwire_model_call_duration_seconds_count", **labels) == 1
    assert await moved(client, before, "runwire_runs_total", status="error", stop_reason="error") == 1
    assert await moved(client, before, "runwire_model_first_chunk_seconds_count", model="failing") == 0


async def test_a_priced_alias_counts_what_it_cost(client: httpx.AsyncClient) -> None:
    before = await scrape(client)
    await ran(client, run_body("priced"))
    alias = {"provider": "alias", "model": "priced"}
    assert await moved(client, before, "runwire_model_cost_usd_total", **alias) == pytest.approx(0.004)
    assert await moved(client, before, "runwire_model_tokens_total", **alias, kind="output") == 500


async def test_a_tenants_own_model_server_shares_one_name(client: httpx.AsyncClient) -> None:
    before = await scrape(client)
    async with ChatCompletionsServer([chat_completions.says("hi")]) as model:
        await ran(client, run_body(openai(model.base_url)))
    labels = {"provider": "openai", "model": "_inline"}
    assert await moved(client, before, "runwire_model_call_duration_seconds_count", **labels) == 1
    assert "test-model" not in (await scrape(client)).text


async def test_a_tool_that_the_model_made_up_is_no_label(client: httpx.AsyncClient) -> None:
    before = await scrape(client)
    await ran(client, run_body(scripted(calls(("invented_by_model", {})), says("oh"))))
    assert await moved(client, before, "runwire_tool_calls_total", tool="_unknown", status="error") == 1


async def test_a_structured_answer_has_one_name_of_the_servers(client: httpx.AsyncClient) -> None:
    before = await scrape(client)
    schema = {"title": "what_a_caller_wrote", "type": "object", "required": ["x"]}
    turns = [calls(("what_a_caller_wrote", args)) for args in (NO_ARGUMENTS, {"x": 1})]
    await ran(client, run_body(scripted(*turns), agent={"output_schema": schema}))
    name = "runwire_tool_calls_total"
    assert await moved(client, before, name, tool="_answer", status="error") == 1
    assert await moved(client, before, name, tool="_answer", status="success") == 1
    assert await moved(client, before, name) == 2
    assert "what_a_caller_wrote" not in (await scrape(client)).text
    assert "invented_by_model" not in (await scrape(client)).text


async def test_runs_that_are_posted_count_by_their_route(client: httpx.AsyncClient) -> None:
    before = await scrape(client)
    body = run_body(scripted(says("x")))
    assert (await client.post("/runs", json=body)).status_code == 201
    assert (await client.post("/runs/stream", json=body)).status_code == 200
    assert (await client.post("/runs", json={})).status_code == 422
    name = "runwire_http_requests_total"
    for route, status, times in (("/runs", "201", 1), ("/runs/stream", "200", 1), ("/runs", "422", 1)):
        assert await moved(client, before, name, route=route, method="POST", status=status) == times
    assert await moved(client, before, "runwire_http_request_duration_seconds_count", route="/runs") == 2
    assert await moved(client, before, name, route="unmatched") == 0


async def test_requests_count_by_template_and_never_by_path(client: httpx.AsyncClient) -> None:
    before = await scrape(client)
    run = await ran(client, run_body(scripted(says("x")), metadata={"ticket": "planted-metadata"}))
    await client.get(f"/runs/{run['id']}")
    await client.get("/runs/planted-path")
    await client.get("/planted/path?planted=query")
    await client.request("PROPFIND", "/runs")  # a method, but none of ours
    assert await moved(client, before, "runwire_http_requests_total", route="/runs/{run_id}", status="200") == 1
    assert await moved(client, before, "runwire_http_requests_total", route="/runs/{run_id}", status="404") == 1
    assert await moved(client, before, "runwire_http_requests_total", route="unmatched", status="404") == 1
    assert await moved(client, before, "runwire_http_requests_total", method="_other") == 1
    text = (await scrape(client)).text
    for planted in ("planted", "PROPFIND", str(run["id"]), str(run["thread_id"]), "acme"):
        assert planted not in text


async def test_an_open_stream_is_seen_and_a_reset_one_is_not(client: httpx.AsyncClient) -> None:
    model = scripted(calls(("hang", {})))
    async with stream(client, "POST", "/runs/stream", json=run_body(model, "hang")) as open_:
        run_id = str((await open_.until("action")).data.get("run_id") or open_.events[0].data["run_id"])
        seen = await scrape(client)
        assert seen.sum("runwire_open_streams") == 1
        assert seen.sum("runwire_runs_running") == 1
    # The connection was closed in the middle of the stream.
    await scrape_until(client, lambda found: found.sum("runwire_open_streams") == 0)
    await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})
    await scrape_until(client, lambda found: found.sum("runwire_runs_running") == 0)


async def test_500_tools_make_200_names_and_the_rest_one(tmp_path: Path, tools: ToolServer) -> None:
    with RunwireServer.open(tmp_path) as server:
        async with server.client() as client:
            for part in range(5):
                names = [f"tool_{part}_{number}" for number in range(100)]
                specs = [tool_spec(name, tools.url("/ok"), effect="pure") for name in names]
                await ran(
                    client, run_body(scripted(calls(*((name, NO_ARGUMENTS) for name in names)), says("ok")), *specs)
                )
            found = await scrape(client)
    assert found.sum("runwire_tool_calls_total", status="success") == 500
    assert len(found.values("tool")) == 201
    assert found.sum("runwire_tool_calls_total", tool="_other") == 300


async def test_runs_beyond_the_bounds_count_as_rejected_and_waiting_ones_as_queued(
    tmp_path: Path, tools: ToolServer
) -> None:
    env = {"RUNWIRE_MAX_CONCURRENT_RUNS": "1", "RUNWIRE_MAX_QUEUED_RUNS": "1"}
    with RunwireServer.open(tmp_path, env=env) as server:
        async with server.client() as client:
            body = run_body(scripted(calls(("hang", {}))), "hang")
            ids = [(await client.post("/runs", json=body)).json()["id"] for _ in range(2)]
            check_problem(await client.post("/runs", json=body), 429, "too_many_runs")
            found = await scrape(client)
            assert found.sum("runwire_runs_running") == 1
            assert found.sum("runwire_runs_queued") == 1
            assert found.sum("runwire_queue_oldest_age_seconds") > 0
            assert found.sum("runwire_runs_rejected_total", code="too_many_runs") == 1
            for run_id in ids:
                await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})
            found = await scrape_until(client, lambda item: item.sum("runwire_runs_running") == 0)
            assert found.sum("runwire_runs_queued") == 0
            assert found.sum("runwire_queue_oldest_age_seconds") == 0


async def test_a_tool_is_known_beneath_what_traces_wrap_around_it(tmp_path: Path, tools: ToolServer) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}  # nobody is there
    with RunwireServer.open(tmp_path, env=env) as server:
        async with server.client() as client:
            spec = tool_spec("traced", tools.url("/ok"), effect="read")
            await ran(client, run_body(scripted(calls(("traced", {})), says("ok")), spec))
            found = await scrape(client)
    assert found.sum("runwire_tool_calls_total", tool="traced", effect="read", status="success") == 1
    assert found.sum("runwire_tool_call_duration_seconds_count", tool="traced", source="inline") == 1


async def test_metrics_need_a_key_that_may_see_everything(server: RunwireServer) -> None:
    async with server.client(None) as nobody, server.client(READER) as reader:
        check_problem(await nobody.get("/metrics"), 401, "unauthenticated")
        check_problem(await reader.get("/metrics"), 403, "missing_scope")
        check_problem(await nobody.get("/metrics", params={"api_key": "x"}), 401, "unauthenticated")


async def test_metrics_are_open_without_keys_and_gone_when_turned_off(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "off").mkdir()
    with RunwireServer.open(tmp_path / "open", keys="") as keyless:
        async with keyless.client(None) as client:
            assert (await scrape(client)).sum("runwire_build_info") == 1
    with RunwireServer.open(tmp_path / "off", env={"RUNWIRE_METRICS": "false"}) as off:
        async with off.client() as client:
            await ran(client, run_body(scripted(says("x"))))
            check_problem(await client.get("/metrics"), 404, "route_not_found")
