"""The spans of runs, as a collector gets them."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from dirty_equals import IsFloat, IsInt, IsStr
from inline_snapshot import snapshot

from app.core.trace import derived_span_id, derived_trace_id, parse
from tests.e2e.ledger import until_effects
from tests.support.bodies import calls, openai, run_body, says, scripted, tool_spec
from tests.support.chat_completions import ChatCompletionsServer, by_turn
from tests.support.chat_completions import calls as model_calls
from tests.support.chat_completions import fails as model_fails
from tests.support.chat_completions import says as model_says
from tests.support.otlp_collector import CLIENT, ERROR, INTERNAL, CollectedSpan, OtlpCollector
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
UUID7 = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@pytest.fixture
async def collector() -> AsyncIterator[OtlpCollector]:
    async with OtlpCollector() as opened:
        yield opened


@pytest.fixture
def own_tools(tmp_path: Path) -> Any:
    with ToolServer.start(tmp_path) as running:
        yield running


def named(spans: list[CollectedSpan], name: str) -> list[CollectedSpan]:
    return [span for span in spans if span.name.startswith(name)]


async def effects(tools: ToolServer, *names: str, count: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        await until_effects(tools, *names, count=count)


def shown(spans: list[CollectedSpan]) -> list[tuple[object, ...]]:
    return [(span.name, span.kind, span.status, span.attributes) for span in spans]


async def test_a_run_is_a_tree_of_its_model_calls_and_tools(
    tmp_path: Path, collector: OtlpCollector, own_tools: ToolServer
) -> None:
    turn = model_calls(("a", "first", "{}"), ("b", "second", "{}"))
    async with ChatCompletionsServer(by_turn(turn, model_says("done"))) as model:
        env = {**collector.env, "OPENAI_BASE_URL": model.base_url, "OTEL_RESOURCE_ATTRIBUTES": "team=x"}
        with RunwireServer.open(tmp_path, env=env) as server:
            async with server.client() as client:
                await client.post("/tools", json=tool_spec("first", own_tools.url("/503-then-ok"), effect="read"))
                await client.post("/tools", json=tool_spec("second", own_tools.url("/error")))
                spec = {"provider": "openai", "model": "m", "params": {"temperature": 0.5, "max_tokens": 7}}
                agent = {"name": "helper", "model": spec, "tools": ["first", "second"]}
                made = await client.post("/agents", json=agent)
                assert made.status_code == 201, made.text
                body = {"agent": "helper", "input": "go"}
                run = (await client.post("/runs/wait", json=body, headers={"traceparent": PARENT})).json()
                assert run.get("status") == "success", run
                spans = await collector.run(run["id"])
        sent = [request.headers["traceparent"] for request in model.requests]
    root, chat, *_ = spans
    tools = sorted(named(spans, "execute_tool"), key=lambda span: span.name)
    chats = named(spans, "chat")
    assert (root.trace, root.parent, {span.parent for span in spans[1:]}) == (TRACE, SPAN, {root.id})
    assert all(root.start <= span.start <= span.end <= root.end for span in spans)
    assert [f"00-{TRACE}-{span.id}-01" for span in chats] == sent
    assert {item["tool"]: item["traceparent"] for item in own_tools.effects()} == {
        "first": f"00-{TRACE}-{tools[0].id}-01"
    }
    assert {"service.name": "runwire", "team": "x"}.items() <= root.resource.items()
    assert shown([root, chat, *tools, chats[1]]) == snapshot(
        [
            (
                "invoke_agent helper",
                1,
                0,
                {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.conversation.id": run["thread_id"],
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": "m",
                    "runwire.run.id": run["id"],
                    "runwire.run.attempt": 1,
                    "runwire.tenant": "acme",
                    "gen_ai.agent.name": "helper",
                    "gen_ai.agent.version": "1",
                    "runwire.run.status": "success",
                    "runwire.run.stop_reason": "finish",
                    "gen_ai.usage.input_tokens": 18,
                    "gen_ai.usage.output_tokens": 6,
                    "runwire.run.model_calls": 2,
                },
            ),
            (
                "chat m",
                3,
                0,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": "m",
                    "gen_ai.request.temperature": 0.5,
                    "gen_ai.request.max_tokens": 7,
                    "server.address": "127.0.0.1",
                    "server.port": IsInt(gt=0),
                    "gen_ai.response.finish_reasons": ["tool_calls"],
                    "gen_ai.usage.input_tokens": 9,
                    "gen_ai.usage.output_tokens": 3,
                    "gen_ai.response.model": "test-model",
                    "gen_ai.response.time_to_first_chunk": IsFloat(gt=0),
                },
            ),
            (
                "execute_tool first",
                1,
                0,
                {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.call.id": IsStr(regex=UUID7),
                    "gen_ai.tool.type": "function",
                    "runwire.step": 1,
                    "gen_ai.tool.name": "first",
                    "runwire.tool.effect": "read",
                    "runwire.tool.source": "registered",
                    "runwire.tool.version": 1,
                    "runwire.tool.status": "success",
                    "runwire.tool.attempts": 2,
                },
            ),
            (
                "execute_tool second",
                1,
                2,
                {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.call.id": IsStr(regex=UUID7),
                    "gen_ai.tool.type": "function",
                    "runwire.step": 2,
                    "gen_ai.tool.name": "second",
                    "runwire.tool.effect": "write",
                    "runwire.tool.source": "registered",
                    "runwire.tool.version": 1,
                    "runwire.tool.status": "error",
                    "runwire.tool.attempts": 1,
                    "error.type": "no_order",
                },
            ),
            (
                "chat m",
                3,
                0,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": "m",
                    "gen_ai.request.temperature": 0.5,
                    "gen_ai.request.max_tokens": 7,
                    "server.address": "127.0.0.1",
                    "server.port": IsInt(gt=0),
                    "gen_ai.response.finish_reasons": ["stop"],
                    "gen_ai.usage.input_tokens": 9,
                    "gen_ai.usage.output_tokens": 3,
                    "gen_ai.response.model": "test-model",
                    "gen_ai.response.time_to_first_chunk": IsFloat(gt=0),
                },
            ),
        ]
    )
    assert [[(event.name, event.attributes) for event in span.events] for span in tools] == snapshot(
        [
            [
                (
                    "runwire.tool.attempt",
                    {
                        "runwire.tool.attempt": 1,
                        "runwire.tool.outcome": "tool_server_error",
                        "runwire.tool.duration_ms": IsFloat(gt=0),
                        "http.response.status_code": 503,
                    },
                ),
                (
                    "runwire.tool.attempt",
                    {
                        "runwire.tool.attempt": 2,
                        "runwire.tool.outcome": "success",
                        "runwire.tool.duration_ms": IsFloat(gt=0),
                        "http.response.status_code": 200,
                    },
                ),
            ],
            [
                (
                    "runwire.tool.attempt",
                    {
                        "runwire.tool.attempt": 1,
                        "runwire.tool.outcome": "no_order",
                        "runwire.tool.duration_ms": IsFloat(gt=0),
                        "http.response.status_code": 200,
                    },
                )
            ],
        ]
    )


async def test_runs_that_go_on_at_once_keep_their_spans_apart(
    tmp_path: Path, collector: OtlpCollector, own_tools: ToolServer
) -> None:
    count = 20
    tools = [tool_spec(name, own_tools.url("/ok?ms=20"), effect="read") for name in ("one", "two")]
    script = scripted(calls(("one", {}), ("two", {})), calls(("one", {})), says("done"))
    with RunwireServer.open(tmp_path, env=collector.env) as server:
        async with server.client() as client:

            async def run(number: int) -> str:
                headers = {"traceparent": f"00-{number:032x}-{SPAN}-01"}
                answer = await client.post("/runs/wait", json=run_body(script, *tools), headers=headers)
                return str(answer.json()["id"])

            ids = await asyncio.gather(*(run(number) for number in range(1, count + 1)))
        spans = await collector.until(lambda spans: len(named(list(spans), "invoke_agent")) == count)
    roots = {span.trace: span for span in named(spans, "invoke_agent")}
    assert {trace: root.attributes["runwire.run.id"] for trace, root in roots.items()} == {
        f"{number:032x}": run_id for number, run_id in enumerate(ids, 1)
    }
    for trace, root in roots.items():
        below = [span for span in spans if span.trace == trace and span is not root]
        assert {span.parent for span in below} == {root.id}
        assert (len(named(below, "chat")), len(named(below, "execute_tool"))) == (3, 3)
    heard = {str(item["traceparent"]): str(item["tool_call_id"]) for item in own_tools.effects()}
    assert heard == {
        f"00-{span.trace}-{span.id}-01": span.attributes["gen_ai.tool.call.id"] for span in named(spans, "execute_tool")
    }


@pytest.mark.parametrize("parent", [PARENT, None])
async def test_a_run_goes_on_in_the_same_trace_after_a_kill(
    tmp_path: Path, collector: OtlpCollector, own_tools: ToolServer, parent: str | None
) -> None:
    spec = tool_spec("held", own_tools.url("/hold"), idempotent=True, timeout_s=15)
    body = run_body(scripted(calls(("held", {})), says("done")), spec)
    headers = {} if parent is None else {"traceparent": parent}
    with RunwireServer.open(tmp_path, env={**collector.env, "RUNWIRE_MAX_CONCURRENT_RUNS": "1"}) as server:
        async with server.client() as client:
            first, queued = [(await client.post("/runs", json=body, headers=headers)).json()["id"] for _ in range(2)]
            await effects(own_tools, "held", count=1)
        server.kill()
        await asyncio.to_thread(server.start)
        own_tools.release()
        async with server.client() as client:
            for run_id in (first, queued):
                assert (await client.get(f"/runs/{run_id}/wait")).json()["status"] == "success"
        spans = await collector.until(lambda spans: len(named(list(spans), "invoke_agent")) == 2)
    roots = {str(span.attributes["runwire.run.id"]): span for span in named(spans, "invoke_agent")}
    for run_id, attempt in ((first, 2), (queued, 1)):
        root, trace = roots[run_id], TRACE if parent else derived_trace_id(run_id)
        assert (root.trace, root.parent, root.id) == (trace, SPAN if parent else "", derived_span_id(run_id, attempt))
        assert root.attributes["runwire.run.attempt"] == attempt
        assert root.links == (((trace, derived_span_id(run_id, 1)),) if attempt == 2 else ())
    again = next(span for span in named(spans, "execute_tool") if span.parent == roots[first].id)
    assert again.attributes["runwire.tool.sent_before"] == 1
    traces = [parse((str(item["traceparent"]),)) for item in own_tools.effects()]
    assert {context.trace_id for context in traces if context} == {root.trace for root in roots.values()}


async def test_a_run_that_is_not_sampled_sends_no_span_and_says_so_to_its_tools(
    tmp_path: Path, collector: OtlpCollector, own_tools: ToolServer
) -> None:
    body = run_body(scripted(calls(("one", {})), says("done")), tool_spec("one", own_tools.url("/ok")))
    with RunwireServer.open(tmp_path, env=collector.env) as server:
        async with server.client() as client:
            headers = {"traceparent": f"00-{TRACE}-{SPAN}-00", "tracestate": "a=1"}
            await client.post("/runs/wait", json=body, headers=headers)
            seen = (await client.post("/runs/wait", json=body)).json()
        spans = await collector.run(seen["id"])
    first, second = own_tools.effects()
    assert str(first["traceparent"]).startswith(f"00-{TRACE}-")
    assert str(first["traceparent"]).endswith("-00")
    assert (first["tracestate"], second["tracestate"]) == ("a=1", None)
    assert str(second["traceparent"]).endswith("-01")
    assert TRACE not in {span.trace for span in spans}


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_a_cancelled_run_ends_its_spans_as_what_they_were(
    tmp_path: Path, collector: OtlpCollector, own_tools: ToolServer
) -> None:
    held = tool_spec("held", own_tools.url("/hold"), timeout_s=15)
    read = tool_spec("looked", own_tools.url("/hold"), effect="read", timeout_s=15)
    body = run_body(scripted(calls(("held", {}), ("looked", {}))), held, read)
    with RunwireServer.open(tmp_path, env=collector.env) as server:
        async with server.client() as client:
            run_id = (await client.post("/runs", json=body)).json()["id"]
            await effects(own_tools, "held", "looked", count=2)
            await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})
        spans = await collector.run(run_id)
    tools = {span.name: (span.status, span.attributes.get("error.type")) for span in named(spans, "execute_tool")}
    assert tools == {"execute_tool held": (ERROR, "outcome_unknown"), "execute_tool looked": (0, None)}
    assert {
        (s.attributes["runwire.tool.status"], s.attributes["runwire.tool.cut"]) for s in named(spans, "execute")
    } == {
        ("unknown", "cancelled"),
        ("cancelled", "cancelled"),
    }
    root = spans[0]
    assert (root.status, root.attributes["runwire.run.status"]) == (0, "cancelled")


async def test_a_run_out_of_time_ends_its_spans_as_what_they_were(
    tmp_path: Path, collector: OtlpCollector, own_tools: ToolServer
) -> None:
    held = tool_spec("held", own_tools.url("/hold"), effect="read", timeout_s=15)
    silent = scripted(says("", delay_ms=30_000))
    with RunwireServer.open(tmp_path, env=collector.env) as server:
        async with server.client() as client:
            limit = {"max_execution_time": 0.3}
            ids = [
                (await client.post("/runs/wait", json=run_body(script, held, agent=limit))).json()["id"]
                for script in (scripted(calls(("held", {}))), silent)
            ]
        acting, thinking = [await collector.run(run_id) for run_id in ids]
    tool = named(acting, "execute_tool")[0]
    assert (tool.status, tool.attributes["runwire.tool.status"]) == (ERROR, "timeout")
    assert tool.attributes["error.type"] == tool.attributes["runwire.tool.cut"] == "time_limit"
    assert named(thinking, "chat")[0].attributes["runwire.model.cut"] is True
    for root in (acting[0], thinking[0]):
        assert root.attributes["runwire.run.stop_reason"] == "max_execution_time"
        assert root.status == 0


async def test_a_failed_model_call_fails_its_span_and_its_run_by_the_code_alone(
    tmp_path: Path, collector: OtlpCollector
) -> None:
    async with ChatCompletionsServer([model_fails(401, "the provider's own words")]) as model:
        with RunwireServer.open(tmp_path, env=collector.env) as server:
            async with server.client() as client:
                run = (await client.post("/runs/wait", json=run_body(openai(model.base_url)))).json()
            root, chat = await collector.run(run["id"])
    assert (chat.kind, chat.status, chat.attributes["error.type"]) == (CLIENT, ERROR, "model_auth")
    assert (root.kind, root.status, root.attributes["error.type"]) == (INTERNAL, ERROR, "model_auth")
    assert (root.status_message, chat.status_message, root.events, chat.events) == ("", "", (), ())
    assert "server.address" not in chat.attributes  # a tenant's own
    assert not any(b"own words" in body for body in collector.bodies)


async def test_a_run_left_by_a_stopping_server_says_that_it_is_still_running(
    tmp_path: Path, collector: OtlpCollector
) -> None:
    body = run_body(scripted(says("later", delay_ms=30_000)))
    with RunwireServer.open(tmp_path, env=collector.env) as server:
        async with server.client() as client:
            run_id = (await client.post("/runs", json=body)).json()["id"]
            server.signal(signal.SIGTERM)
            spans = await collector.run(run_id)
        assert await asyncio.to_thread(server.wait) == 0
    root, chat = spans
    assert root.attributes["runwire.run.status"] == "running"
    assert root.attributes["runwire.run.left"] is True
    assert chat.attributes["runwire.model.cut"] is True


async def test_a_tool_called_by_hand_is_a_span_under_its_caller(
    tmp_path: Path, collector: OtlpCollector, own_tools: ToolServer
) -> None:
    with RunwireServer.open(tmp_path, env=collector.env) as server:
        async with server.client() as client:
            await client.post("/tools", json=tool_spec("by_hand", own_tools.url("/ok")))
            for headers in ({"traceparent": PARENT}, {}):
                await client.post("/tools/by_hand/invoke", json={"arguments": {}}, headers=headers)
        spans = await collector.until(lambda spans: len(spans) == 2)
    first, second = sorted(spans, key=lambda span: span.start)
    assert (first.name, first.trace, first.parent) == ("execute_tool by_hand", TRACE, SPAN)
    assert (second.trace, second.parent) == (derived_trace_id(str(second.attributes["gen_ai.tool.call.id"])), "")
    assert [item["traceparent"] for item in own_tools.effects()] == [
        f"00-{span.trace}-{span.id}-01" for span in (first, second)
    ]


# --- what must not be in them ----------------------------------------------------------------------------------------

SECRETS = (
    "sk-planted-operator-key",
    "planted-tool-bearer-token",
    "planted-tenant-model-key",
    "whsec_cGxhbnRlZCBzaWduaW5nIHNlY3JldCAwMTIz",
)
HEADER = "planted-collector-token"
SAID = ("planted words of the user", "planted argument", "planted result", "planted answer", "planted instructions")


@pytest.mark.parametrize("content", [False, True])
async def test_content_is_exported_only_on_request_and_secrets_never(
    tmp_path: Path, collector: OtlpCollector, own_tools: ToolServer, content: bool
) -> None:
    arguments = {
        "text": "planted argument",
        "password": SECRETS[1],
        "note": f"the key is {SECRETS[0]}",
        "r": "planted result",
    }
    turn = model_calls(("a", "echoed", json.dumps(arguments)), ("b", "no such tool: planted argument", "{}"))
    env = {
        **collector.env,
        "OPENAI_API_KEY": SECRETS[0],
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={HEADER}",
        **({CONTENT: "true"} if content else {}),
    }
    async with ChatCompletionsServer(by_turn(turn, model_says("planted answer"))) as model:
        with RunwireServer.open(tmp_path, env=env) as server:
            async with server.client() as client:
                tool = tool_spec("echoed", own_tools.url("/echo"), signing_secret=SECRETS[3])
                tool["http"] = {"url": own_tools.url("/echo"), "auth": {"type": "bearer", "token": SECRETS[1]}}
                body = run_body(
                    openai(model.base_url, api_key=SECRETS[2]),
                    tool,
                    text="planted words of the user",
                    agent={"instructions": "planted instructions"},
                )
                run = (await client.post("/runs/wait", json=body)).json()
                assert run.get("status") == "success", run
            spans = await collector.run(run["id"])
    exported = b"".join(collector.bodies)
    assert [secret for secret in (*SECRETS, HEADER) if secret.encode() in exported] == []
    assert [said for said in SAID if said.encode() in exported] == (list(SAID) if content else [])
    assert all(HEADER in head for head in collector.heads)
    recorded = {name for span in spans for name in span.attributes}
    assert ("gen_ai.input.messages" in recorded) is content
    if content:
        chat = named(spans, "chat")[-1]
        assert json.loads(str(chat.attributes["gen_ai.input.messages"])) == snapshot(
            [
                {"role": "user", "parts": [{"type": "text", "content": "planted words of the user"}]},
                {
                    "role": "assistant",
                    "parts": [
                        {
                            "type": "tool_call",
                            "id": "a",
                            "name": "echoed",
                            "arguments": {
                                "text": "planted argument",
                                "password": "[redacted]",
                                "note": "the key is [redacted]",
                                "r": "planted result",
                            },
                        },
                        {"type": "tool_call", "id": "b", "name": "no such tool: planted argument", "arguments": {}},
                    ],
                },
                {
                    "role": "tool",
                    "parts": [
                        {
                            "type": "tool_call_response",
                            "id": "a",
                            "response": '{"note":"the key is [redacted]","password":[redacted],"r":"planted result","text":"planted argument"}',
                        }
                    ],
                },
                {
                    "role": "tool",
                    "parts": [
                        {
                            "type": "tool_call_response",
                            "id": "b",
                            "response": "no such tool: planted argument is not a valid tool, try one of [echoed].",
                        }
                    ],
                },
            ]
        )
        assert json.loads(
            str(named(spans, "execute_tool echoed")[0].attributes["gen_ai.tool.call.arguments"])
        ) == snapshot(
            {
                "text": "planted argument",
                "password": "[redacted]",
                "note": "the key is [redacted]",
                "r": "planted result",
            }
        )


async def test_content_of_any_length_is_bounded(tmp_path: Path, collector: OtlpCollector) -> None:
    body = run_body(
        scripted(calls(("repeat_text", {"text": "ä\n", "times": 20_000})), says("ü" * 20_000)), "repeat_text"
    )
    with RunwireServer.open(tmp_path, env={**collector.env, CONTENT: "true"}) as server:
        async with server.client() as client:
            run = (await client.post("/runs/wait", json=body)).json()
        spans = await collector.run(run["id"])
    texts = [value for span in spans for value in span.attributes.values() if isinstance(value, str)]
    assert 4000 < max(map(len, texts)) <= 8192
    for name in ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.result"):
        assert [json.loads(str(span.attributes[name])) for span in spans if name in span.attributes]
