"""The caller's trace, without any exporter: what is read of it, and what calls carry of it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import INVALID_SPAN_CONTEXT, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.core.trace import MAX_STATE, TraceContext, derived_span_id, derived_trace_id, of_run, parse
from tests.e2e.ledger import until_effects
from tests.support.bodies import calls, openai, run_body, says, scripted, tool_spec
from tests.support.chat_completions import ChatCompletionsServer
from tests.support.chat_completions import says as model_says
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"

_HEX = "0123456789abcdef"
_ids = st.tuples(st.text(_HEX, min_size=32, max_size=32), st.text(_HEX, min_size=16, max_size=16))
_nearly = st.builds(
    "-".join,
    st.tuples(
        st.text("0123456789abcdefAF", max_size=3),
        st.one_of(st.text("0aA", min_size=31, max_size=33), st.just(TRACE)),
        st.one_of(st.text("0aA", min_size=15, max_size=17), st.just(SPAN)),
        st.text("0123456789abcdefg", max_size=3),
    ),
)


@given(_ids.filter(lambda ids: ids[0].strip("0") != "" and ids[1].strip("0") != ""), st.booleans())
def test_what_is_written_is_read_again(ids: tuple[str, str], sampled: bool) -> None:
    context = TraceContext(*ids, sampled)
    assert parse((context.traceparent(),)) == context


@given(st.one_of(st.text(max_size=80), _nearly, st.text(max_size=4).map(PARENT.__add__)))
def test_any_text_is_a_context_or_is_ignored_as_the_reference_reads_it(text: str) -> None:
    read = parse((text,))
    context = TraceContextTextMapPropagator().extract({"traceparent": text.strip(" \t")})
    reference = get_current_span(context).get_span_context()
    if read is None:
        # The reference library takes decimal digits of other scripts, upper case, and unknown tails; we do not.
        assert reference == INVALID_SPAN_CONTEXT or not _canonical(text)
    else:
        assert (int(read.trace_id, 16), int(read.span_id or "", 16)) == (reference.trace_id, reference.span_id)
        assert read.sampled == reference.trace_flags.sampled


def _canonical(text: str) -> bool:
    return len(text.strip(" \t")) == 55 and set(text.strip(" \t")) <= set(_HEX + "-")


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "garbage",
        PARENT.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{PARENT}-more",
        f"{PARENT}, {PARENT}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}",
        f"01-{TRACE}-{SPAN}-01more",
        f"00_{TRACE}_{SPAN}_01",
        f"00-{TRACE[:-1]}ä-{SPAN}-01",
    ],
)
def test_an_invalid_traceparent_is_ignored(bad: str) -> None:
    assert parse((bad,)) is None


def test_two_traceparents_are_none() -> None:
    assert parse((PARENT, PARENT)) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert parse((f"01-{TRACE}-{SPAN}-03-what-comes-later",)) == TraceContext(TRACE, SPAN, sampled=True)
    assert parse((f"01-{TRACE}-{SPAN}-02",)) == TraceContext(TRACE, SPAN, sampled=False)


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        (("a=1",), "a=1"),
        (("a=1,b=2", "t@v=x y"), "a=1,b=2,t@v=x y"),
        (("",), None),
        (("no member",), None),
        (("a=1\r\nx: y",), None),
        (("a=ü",), None),
        (("a=" + "x" * MAX_STATE,), None),
        ((",".join(f"k{number}=1" for number in range(33)),), None),
    ],
)
def test_a_tracestate_is_carried_whole_or_dropped(states: tuple[str, ...], kept: str | None) -> None:
    assert parse((PARENT,), states) == TraceContext(TRACE, SPAN, state=kept)


def test_a_run_without_a_caller_has_a_trace_of_its_own_that_a_restart_does_not_change() -> None:
    assert of_run("r", None, None) == of_run("r", "broken", None) == TraceContext(derived_trace_id("r"))
    assert of_run("r", None, None) != of_run("s", None, None)
    assert derived_span_id("r", 1) != derived_span_id("r", 2)
    assert parse((TraceContext(derived_trace_id("r"), derived_span_id("r", 1)).traceparent(),)) is not None


# --- through the server ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with RunwireServer.open(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[ToolServer]:
    with ToolServer.start(tmp_path) as running:
        yield running


def two_calls(tools: ToolServer) -> dict[str, object]:
    turn = calls(("one", {}), ("two", {}))
    return run_body(
        scripted(turn, calls(("one", {})), says("done")),
        tool_spec("one", tools.url("/ok")),
        tool_spec("two", tools.url("/ok")),
    )


def parents(tools: ToolServer) -> list[TraceContext]:
    found = [parse((str(effect["traceparent"]),)) for effect in tools.effects()]
    assert None not in found
    return [context for context in found if context is not None]


@pytest.mark.parametrize("path", ["/runs/wait", "/runs/stream"])
@pytest.mark.parametrize("flags", ["00", "01"])
async def test_a_callers_trace_goes_on_in_its_tools(
    client: httpx.AsyncClient, tools: ToolServer, path: str, flags: str
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-{flags}", "tracestate": "a=1", "baggage": "user=secret"}
    answer = await client.post(path, json=two_calls(tools), headers=headers)
    assert answer.status_code == 200, answer.text
    sent = parents(tools)
    assert {(context.trace_id, context.sampled) for context in sent} == {(TRACE, flags == "01")}
    assert len({SPAN, *(context.span_id for context in sent)}) == 4
    assert [(effect["tracestate"], effect["baggage"]) for effect in tools.effects()] == [("a=1", None)] * 3


@pytest.mark.parametrize("given", [(), ("broken",), (PARENT, PARENT)])
async def test_all_calls_of_a_run_without_a_valid_parent_share_a_trace_of_their_own(
    client: httpx.AsyncClient, tools: ToolServer, given: tuple[str, ...]
) -> None:
    headers = [("traceparent", value) for value in given]
    run = (await client.post("/runs/wait", json=two_calls(tools), headers=headers)).json()
    assert run["status"] == "success"
    assert {context.trace_id for context in parents(tools)} == {derived_trace_id(run["id"])}


async def test_each_attempt_of_a_call_is_a_span_of_the_same_trace(client: httpx.AsyncClient, tools: ToolServer) -> None:
    spec = tool_spec("again", tools.url("/half-then-ok"), idempotent=True, retry={"max_attempts": 3})
    body = run_body(scripted(calls(("again", {})), says("done")), spec)
    await client.post("/runs/wait", json=body, headers={"traceparent": PARENT})
    sent = parents(tools)
    assert [context.trace_id for context in sent] == [TRACE, TRACE]
    assert len({context.span_id for context in sent}) == 2


async def test_a_tool_called_by_hand_continues_the_callers_trace(client: httpx.AsyncClient, tools: ToolServer) -> None:
    name = f"by_hand_{tools.port}"
    await client.post("/tools", json=tool_spec(name, tools.url("/ok")))
    for headers in ({"traceparent": PARENT}, {}):
        assert (await client.post(f"/tools/{name}/invoke", json={"arguments": {}}, headers=headers)).json()["ok"]
    first, second = parents(tools)
    assert (first.trace_id, second.trace_id != TRACE) == (TRACE, True)


async def test_a_model_server_is_told_the_trace_too(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer([model_says("hello")]) as model:
        await client.post(
            "/runs/wait", json=run_body(openai(model.base_url)), headers={"traceparent": PARENT, "baggage": "a=b"}
        )
        sent = model.requests[0].headers
    context = parse((sent["traceparent"],))
    assert context is not None
    assert context.trace_id == TRACE
    assert "baggage" not in sent


async def test_the_trace_is_kept_through_the_queue_and_a_crash(tmp_path: Path, tools: ToolServer) -> None:
    spec = tool_spec("held", tools.url("/hold"), idempotent=True, timeout_s=15)
    body = run_body(scripted(calls(("held", {})), says("done")), spec)
    parent = {name: f"00-{character * 32}-{SPAN}-01" for name, character in (("now", "a"), ("queued", "b"))}
    async with asyncio.timeout(TIMEOUT_S):
        with RunwireServer.open(tmp_path, env={"RUNWIRE_MAX_CONCURRENT_RUNS": "1"}) as own:
            async with own.client() as client:
                ids = [
                    (await client.post("/runs", json=body, headers={"traceparent": value})).json()["id"]
                    for value in parent.values()
                ]
                await until_effects(tools, "held", count=1)
            own.kill()
            await asyncio.to_thread(own.start)
            tools.release()
            async with own.client() as client:
                ended = [(await client.get(f"/runs/{run_id}/wait")).json() for run_id in ids]
    assert [(run["status"], run["attempt"]) for run in ended] == [("success", 2), ("success", 1)]
    assert [context.trace_id for context in parents(tools)] == ["a" * 32, "a" * 32, "b" * 32]
