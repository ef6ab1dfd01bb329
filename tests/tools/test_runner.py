"""One call from validation to outcome, with in-process tools."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from typing import Annotated, Literal, cast

import pytest
from dirty_equals import IsInt, IsPositiveFloat, IsStr
from inline_snapshot import snapshot
from pydantic import BaseModel, Field

from app.agent.ports import ToolOutcome
from app.core.errors import Fenced, RunCancelled, Stopped, ToolWithdrawn
from app.core.principal import Principal
from app.tools.demo import DEMO_TOOLS
from app.tools.plugins import PluginSet
from app.tools.runner import BoundTools, call_time_ms
from runwire import Tool, ToolContext, ToolError, tool
from tests.tools.support import ME, Bench, Journal, call, ran

pytestmark = pytest.mark.anyio


@tool(effect="pure")
async def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


@tool(scopes=["orders:write"], return_direct=True)
def refund(order_id: str, amount: float = 1.0) -> dict[str, object]:
    return {"order_id": order_id, "amount": amount}


def bind(*tools: Tool[..., object], journal: Journal | None = None, **changes: object) -> BoundTools:
    plugins = PluginSet(tools)
    bench = Bench.make(plugins=plugins)
    context = replace(bench.context(), record_dispatch=(journal or bench.journal).record, **changes)  # pyright: ignore[reportArgumentType]
    compiled = {name: found for name in plugins.names if (found := plugins.get(name)) is not None}
    return BoundTools(compiled, context)


def failing(error: BaseException, **options: object) -> Tool[..., object]:
    async def fails() -> None:
        raise error

    return tool(**options)(fails)  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownVariableType]


def code(outcome: ToolOutcome) -> object:
    assert outcome.error is not None
    return outcome.error["code"]


async def test_a_call_that_works_is_recorded_whole() -> None:
    journal = Journal()
    tools = bind(double, journal=journal)
    asked = call("double", {"number": 21})
    outcome = await ran(tools.run(asked))
    assert journal.dispatches == [(asked.tool_call_id, 1, "double", False)]
    assert (outcome.status, outcome.observation, outcome.error, outcome.return_direct) == ("success", 42, None, False)
    assert outcome.envelope == {
        "ok": True,
        "data": 42,
        "error": None,
        "meta": {
            "tool": "double",
            "tool_call_id": asked.tool_call_id,
            "status": "success",
            "attempts": 1,
            "duration_ms": IsPositiveFloat(),
        },
    }
    assert [(link["stage"], link["verdict"]) for link in outcome.chain] == snapshot(
        [("intent", "ok"), ("validation", "ok"), ("authorization", "ok"), ("execution", "success")]
    )
    assert outcome.attempts == (
        {"attempt": 1, "at": IsInt(), "duration_ms": IsPositiveFloat(), "http_status": None, "outcome": "success"},
    )


async def test_an_unknown_tool_is_told_with_the_names_there_are() -> None:
    outcome = await ran(bind(double, refund).run(call("dubble", {})))
    assert (outcome.status, outcome.observation) == (
        "error",
        "dubble is not a valid tool, try one of [double, refund].",
    )
    assert outcome.started_at is None


async def test_arguments_that_do_not_fit_are_named_by_place_and_nothing_is_sent() -> None:
    journal = Journal()
    outcome = await ran(bind(double, journal=journal).run(call("double", {"number": "3", "extra": 1})))
    assert outcome.status == "error"
    assert outcome.observation == snapshot(
        'double was not called, its arguments do not fit its schema: at /number: expected an integer, got the text "3"; '
        'at the top: the property "extra" is not allowed; leave it out'
    )
    assert [link["stage"] for link in outcome.chain] == ["intent", "validation"]
    assert journal.dispatches == []


async def test_a_refused_call_is_answered_and_not_sent() -> None:
    journal = Journal()
    outcome = await ran(bind(double, journal=journal).run(call("double", {}, refusal="Your JSON was cut off.")))
    assert (outcome.status, outcome.observation, journal.dispatches) == ("error", "Your JSON was cut off.", [])


async def test_a_missing_scope_denies_after_validation_and_before_sending() -> None:
    journal = Journal()
    tools = bind(refund, journal=journal, principal=Principal("acme", "k", frozenset({"runs:write"})))
    outcome = await ran(tools.run(call("refund", {"order_id": "1"})))
    assert (outcome.status, code(outcome), journal.dispatches) == ("denied", "missing_scope", [])
    assert (await ran(tools.run(call("refund", {})))).status == "error"


async def test_a_claimed_identity_in_the_arguments_proves_nothing() -> None:
    tools = bind(refund, principal=Principal("acme", "k", frozenset()))
    outcome = await ran(tools.run(call("refund", {"order_id": "1", "tenant_id": "admin"})))
    assert outcome.status == "error"


async def test_return_direct_is_set_on_success_only() -> None:
    assert (await ran(bind(refund).run(call("refund", {"order_id": "1"})))).return_direct
    assert not (await ran(bind(refund).run(call("refund", {})))).return_direct
    assert not (await ran(bind(failing(ToolError("no"), return_direct=True)).run(call("fails", {})))).return_direct


async def test_text_becomes_the_only_property() -> None:
    assert (await ran(bind(*DEMO_TOOLS).run(call("text_length", "hello")))).observation == 5


async def test_text_becomes_input_where_nothing_else_fits() -> None:
    @tool
    async def anything(**given: object) -> dict[str, object]:
        return given

    assert (await ran(bind(anything).run(call("anything", "hello")))).observation == {"input": "hello"}


async def test_a_deliberate_error_reaches_the_model_word_for_word() -> None:
    outcome = await ran(
        bind(failing(ToolError("No such order.", code="no_order", retryable=True))).run(call("fails", {}))
    )
    assert (outcome.status, outcome.observation, outcome.fatal) == ("error", "No such order.", None)
    assert outcome.error == {
        "code": "no_order",
        "message": "No such order.",
        "retryable": True,
        "state": "failed",
        "request_id": IsStr(),
    }
    assert (await ran(bind(failing(ToolError())).run(call("fails", {})))).observation == "Tool execution error"


@pytest.mark.parametrize("error", [ValueError("secret"), TimeoutError("secret"), asyncio.CancelledError("secret")])
async def test_an_accident_gives_a_general_sentence_with_a_request_id(error: BaseException) -> None:
    outcome = await ran(bind(failing(error)).run(call("fails", {})))
    assert outcome.status == "error"
    assert outcome.error is not None
    assert outcome.observation == f"The tool failed. (request {outcome.error['request_id']})"
    assert "secret" not in str(outcome)


async def test_a_tools_error_can_be_shown_as_another_text_or_end_the_run() -> None:
    other = await ran(bind(failing(ToolError("no")), handle_tool_errors="Ask a person.").run(call("fails", {})))
    assert (other.observation, other.fatal) == ("Ask a person.", None)
    ending = await ran(bind(failing(ToolError("no")), handle_tool_errors=False).run(call("fails", {})))
    assert (ending.status, ending.fatal) == ("error", "no")
    not_the_tools = await ran(bind(double, handle_tool_errors=False).run(call("double", {})))
    assert not_the_tools.fatal is None


@pytest.mark.parametrize(
    ("options", "status", "state"),
    [
        ({"effect": "read"}, "timeout", "failed"),
        ({"effect": "write", "idempotent": True}, "timeout", "unknown"),
        ({"effect": "write"}, "unknown", "unknown"),
    ],
)
async def test_a_tools_own_time_limit_is_judged_by_its_effect(
    options: dict[str, object], status: str, state: str
) -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    made = tool(timeout_s=0.01, **options)(waits)  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownVariableType]
    outcome = await ran(bind(made).run(call("waits", {})))  # pyright: ignore[reportUnknownArgumentType]
    assert outcome.error is not None
    assert (outcome.status, outcome.error["state"]) == (status, state)


@pytest.mark.parametrize("stop", [RunCancelled("x"), Fenced("x")])
async def test_a_refused_dispatch_comes_out_and_nothing_is_sent(stop: Stopped) -> None:
    acted: list[int] = []

    @tool
    async def acts() -> None:
        acted.append(1)

    with pytest.raises(type(stop)):
        await ran(bind(acts, journal=Journal(refuse=stop)).run(call("acts", {})))
    assert acted == []


async def test_a_withdrawn_tool_is_denied_at_its_next_call() -> None:
    outcome = await ran(bind(double, journal=Journal(refuse=ToolWithdrawn("x"))).run(call("double", {"number": 1})))
    assert (outcome.status, outcome.observation) == ("denied", "double was not called: the tool was withdrawn.")


async def test_a_call_of_unknown_fate_is_repeated_only_where_it_may_be() -> None:
    journal, seen = Journal(), list[ToolContext]()

    @tool(idempotent=True)
    async def safe(context: ToolContext) -> str:
        seen.append(context)
        return context.idempotency_key

    tools = bind(safe, refund, journal=journal)
    asked = call("safe", {})
    again = await ran(tools.run(asked, sent_before=2))
    assert [(entry["attempt"], entry["outcome"]) for entry in again.attempts] == [
        (1, "lost"),
        (2, "lost"),
        (3, "success"),
    ]
    assert again.status == "success"
    assert (seen[0].attempt, seen[0].idempotency_key) == (3, tools.facts(asked).idempotency_key)
    lost = await ran(tools.run(call("refund", {"order_id": "1"}), sent_before=1))
    assert (lost.status, len(journal.dispatches)) == ("unknown", 1)
    assert [(entry["attempt"], entry["outcome"]) for entry in lost.attempts] == [(1, "lost")]
    assert [item["stage"] for item in lost.chain] == ["intent", "validation", "authorization", "execution"]


async def _cut_while_running(made: Tool[..., object], ready: asyncio.Event, reason: str) -> ToolOutcome:
    tools = bind(made)
    asked = call(made.name, {})
    running = asyncio.create_task(tools.run(asked))
    async with asyncio.timeout(5):
        await ready.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    return tools.cut(asked, reason)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("effect", "reason", "status"),
    [
        ("write", "cancelled", "unknown"),
        ("write", "time_limit", "unknown"),
        ("read", "cancelled", "cancelled"),
        ("read", "time_limit", "timeout"),
    ],
)
async def test_a_call_cut_while_it_runs_is_honest_about_it(
    effect: Literal["read", "write"], reason: str, status: str
) -> None:
    ready = asyncio.Event()

    @tool(effect=effect)
    async def waits() -> None:
        ready.set()
        await asyncio.Event().wait()

    outcome = await _cut_while_running(waits, ready, reason)
    assert (outcome.status, [entry["outcome"] for entry in outcome.attempts]) == (status, ["cut"])


async def test_a_call_cut_before_it_was_sent_did_nothing() -> None:
    outcome = bind(refund).cut(call("refund", {"order_id": "1"}), "cancelled")
    assert outcome.status == "cancelled"
    assert "did nothing" in str(outcome.observation)
    assert bind(refund).cut(call("refund", {"order_id": "1"}), "lost").status == "unknown"


async def test_sync_functions_run_in_a_thread_and_know_their_context() -> None:
    @tool
    def where(context: ToolContext) -> list[object]:
        on_loop = threading.current_thread() is threading.main_thread()
        return [on_loop, context.principal.tenant, context.run_id, context.context["locale"]]

    tools = bind(where)
    assert tools.definitions[0].parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert (await ran(tools.run(call("where", {})))).observation == [False, "acme", "run-1", "de"]


class Address(BaseModel):
    city: str


async def test_arguments_become_the_functions_own_types() -> None:
    @tool
    async def book(
        day: Annotated[date, Field(description="When")], to: Address, seats: int = 1, tags: set[str] | None = None
    ) -> dict[str, object]:
        return {"next": date(day.year + 1, day.month, day.day), "to": to, "seats": seats * "x", "tags": tags}

    arguments: dict[str, object] = {"day": "2030-01-02", "to": {"city": "Paris"}, "seats": 2.0, "tags": ["a"]}
    outcome = await ran(bind(book).run(call("book", arguments)))
    assert outcome.observation == {"next": "2031-01-02", "to": {"city": "Paris"}, "seats": "xx", "tags": ["a"]}
    wrong = await ran(bind(book).run(call("book", {"day": "soon", "to": {"city": "Paris"}})))
    assert (wrong.status, code(wrong)) == ("error", "invalid_arguments")


class _Odd:
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("make", "observation"),
    [
        (lambda: float("nan"), None),
        (lambda: 2**70, str(2**70)),
        (lambda: "a\x00b\ud800", "a\ufffdb\ufffd"),
        (lambda: {1: (2, b"x")}, {"1": [2, "x"]}),
        (lambda: _Odd(), IsStr()),
        (lambda: {"a": {"lc": 1, "type": "constructor"}}, {"a": {"lc": 1, "type": "constructor"}}),
    ],
)
async def test_any_result_becomes_json_that_can_be_kept(make: Callable[[], object], observation: object) -> None:
    @tool
    async def gives() -> object:
        return make()

    outcome = await ran(bind(gives).run(call("gives", {})))
    assert (outcome.status, outcome.observation) == ("success", observation)


async def test_an_overlong_result_is_cut_with_a_marker_and_its_digest() -> None:
    @tool
    async def long() -> str:
        return "é" * 1_000_000

    outcome = await ran(bind(long).run(call("long", {})))
    assert outcome.status == "success"
    assert len(str(outcome.observation).encode()) < (1 << 20) + 200
    meta = outcome.envelope["meta"]
    assert isinstance(meta, Mapping)
    assert str(cast("Mapping[str, object]", meta)["sha256"]) in str(outcome.observation)


async def test_nobody_is_left_behind_in_the_books() -> None:
    tools = bind(double)
    await asyncio.gather(*(tools.run(call("double", {"number": n})) for n in range(50)))
    assert tools._live == {}


def test_a_calls_time_is_read_from_its_id() -> None:
    assert call_time_ms("017f22e2-79b0-7cc3-98c4-dc0c0c07398f") == 1645557742000


async def test_facts_name_the_version_the_key_and_the_hash_of_the_arguments() -> None:
    tools = bind(double)
    one, two = call("double", {"number": 1}), call("nope", {})
    facts = tools.facts(one)
    assert (facts.tool_version, facts.effect, len(facts.idempotency_key or "")) == (None, "pure", 64)
    assert facts.arguments_sha256 == tools.facts(replace(one, tool_call_id="other")).arguments_sha256
    assert tools.facts(two).effect is None
    assert ME.may("anything")
