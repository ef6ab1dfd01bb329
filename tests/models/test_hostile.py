"""Hostile input of models: what a provider, a script or a question may say without harm to the server."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.ports import ModelAnswer, ModelRequest, ToolDefinition
from app.core.errors import InvalidRequest, ModelError
from app.core.messages import Message
from app.core.usage import TokenUsage, Usage
from app.models import demo, tool_fragments
from app.models.catalog import ModelCatalog, ModelOptions
from app.models.failures import of_error_object
from app.models.openai_wire import Assembler
from app.models.retries import retry_after_s
from app.models.scripted import ScriptedModel
from app.models.spec import MAX_FIELD_ERRORS, check_model
from app.models.tokens import MAX_TOKENS, read_usage
from app.models.tool_fragments import MAX_CALL_BYTES, MAX_CALLS, ToolFragments
from tests.models.test_catalog import Guarded, Secrets
from tests.support.chat_completions import ChatCompletionsServer, Reply, says
from tests.support.hang import no_hang

pytestmark = pytest.mark.anyio

ALL = tuple(ToolDefinition(name, "", {}) for name in ("calculator", "current_time", "text_length"))
BIG = 2**63 - 1


# --- the demo model's rules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "(" * 200_000, "1" * 200_000, "1." * 100_000, "1+" * 100_000, "1" + " " * 200_000, "-(" * 100_000,
        "how long is " + "“" * 200_000, "how long is " + '"' * 200_001, "how long is " + "'" * 200_001,
        "how long is " + "?!" * 100_000 + "a", "length of " * 20_000, "how long is" + " " * 200_000 + "\n",
        "the time in Asia/" + "a/" * 100_000, "1)" + ")" * 200_000, "1" + ") " * 100_000,
    ],
)  # fmt: skip
def test_a_question_costs_the_demo_model_a_bounded_time(text: str) -> None:
    with no_hang():  # without bounds these take from ten seconds to hours
        demo.decide(ModelRequest([Message("user", text)], ALL))


def test_the_demo_model_looks_at_the_beginning_of_a_question_only() -> None:
    late = "x" * demo.MAX_LOOKED_AT + " what is 2+3?"
    assert demo.decide(ModelRequest([Message("user", late)], ALL)).calls == ()
    early = "what is 2+3? " + "x" * demo.MAX_LOOKED_AT
    assert [call.args for call in demo.decide(ModelRequest([Message("user", early)], ALL)).calls] == [
        {"expression": "2+3"}
    ]


def test_the_demo_model_repeats_the_beginning_of_a_long_result_only() -> None:
    history = [Message("user", "hi"), Message("tool", "x" * 1_000_000, tool_call_id="a")]
    assert len(demo.decide(ModelRequest(history, ALL)).content) < 2 * demo.MAX_LOOKED_AT


# --- counts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "odd", [BIG, 2**64, MAX_TOKENS + 1, -1, "7", True, None, float("nan"), float("inf"), 1e300, [], {}]
)
def test_a_count_that_cannot_be_one_is_nothing(odd: object) -> None:
    assert read_usage({"prompt_tokens": odd, "completion_tokens": 2, "total_tokens": odd}) == TokenUsage(0, 2, 2)


@pytest.mark.parametrize("odd", [[], "x", 7, None, True])
def test_a_usage_that_is_no_object_is_nothing(odd: object) -> None:
    assert read_usage(odd) == TokenUsage()


async def test_the_largest_counts_of_many_calls_add_up_within_64_bits() -> None:
    turn: dict[str, object] = {"content": "x", "usage": {"input_tokens": BIG, "output_tokens": MAX_TOKENS}}
    model = ScriptedModel([turn], repeat=True)
    total = Usage()
    for index in range(1000):
        async for item in model.stream(ModelRequest([], stream=False, call_index=index)):
            assert isinstance(item, ModelAnswer)
            total.add_model_call(item.tokens)
    assert (total.input_tokens, total.output_tokens, total.total_tokens) == (0, 10**15, 10**15)


# --- tool calls -------------------------------------------------------------------------------------------------------


def fragment(**more: object) -> dict[str, object]:
    return {"function": {"name": "t", "arguments": "{}"}, **more}


@pytest.mark.parametrize("indexed", [True, False])
def test_more_calls_than_the_limit_end_the_answer_with_an_error_that_says_so(indexed: bool) -> None:
    calls = [fragment(id=f"c{n}", **({"index": n} if indexed else {})) for n in range(MAX_CALLS + 1)]
    assembler = Assembler()
    assembler.feed({"choices": [{"delta": {"tool_calls": calls[:MAX_CALLS]}, "finish_reason": "tool_calls"}]})
    assert len(assembler.finish().calls) == MAX_CALLS
    with pytest.raises(ModelError, match="more than 1024 tool calls") as caught:
        assembler.feed({"choices": [{"delta": {"tool_calls": calls[MAX_CALLS:]}}]})
    assert (caught.value.code, caught.value.retryable) == ("model_invalid_response", False)


async def test_a_script_has_the_same_limit_of_calls() -> None:
    model = ScriptedModel([{"tool_calls": [{"name": "t"}] * 600, "invalid_tool_calls": [{"name": "t"}] * 600}])
    with pytest.raises(ModelError, match="more than 1024 tool calls"):
        await anext(model.stream(ModelRequest([], call_index=0)))


@pytest.mark.parametrize(
    "part",
    [
        {"index": 0, "function": {"arguments": "x" * (1 << 20)}},
        {"index": 0, "function": {"arguments": "é" * (1 << 19)}},
        {"function": {"name": "n" * (1 << 20), "arguments": "{}"}},
        {"id": "i" * (1 << 20), "function": {"name": "n"}},
    ],
)
def test_calls_that_are_too_long_altogether_end_the_answer(part: dict[str, object]) -> None:
    fragments = ToolFragments()
    parts = [{**part, "id": f"{part['id']}{n}"} if "id" in part else part for n in range(MAX_CALL_BYTES >> 20)]
    with pytest.raises(ModelError, match="longer than 8388608 bytes") as caught:
        fragments.feed([*parts, *parts])
    assert caught.value.code == "model_invalid_response"


def test_looking_for_the_end_of_whole_arguments_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_fragments, "MAX_CHECKED", 10_000)
    fragments = ToolFragments()
    for _ in range(2_000):
        fragments.feed([{"index": 0, "function": {"name": "t", "arguments": "}"}}])
    assert fragments._checked <= 10_000 + 2_000
    assert len(fragments.calls(cut=False)) == 1


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_any_arguments_become_a_call_or_an_error_for_the_model(value: object) -> None:
    fragments = ToolFragments()
    fragments.feed([{"index": 0, "function": {"name": "t", "arguments": value}}])
    call = fragments.calls(cut=False)[0]
    assert (call.args is None) == (call.error is not None)


# --- words of a provider ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["²", "4²9", "٤٢٩", "9" * 5000, BIG, True, -429, "429 ", 4.29, [], {"a": 1}])
def test_an_error_code_that_is_no_status_is_read_as_words(code: object) -> None:
    assert of_error_object({"code": code, "message": "nope"}).code == "model_unavailable"


@pytest.mark.parametrize("code", [429, "429"])
def test_an_error_code_that_is_a_status_counts_as_one(code: object) -> None:
    assert of_error_object({"code": code}).code == "model_rate_limited"


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 01 Jan 2024 00:00:00 +99999999999999999", "Mon, 01 Jan 2024 00:00:00 +9999",
        "nan", "inf", "1e999", "-1", "²", ",", "()",
        "9" * 5000, "Mon, 99 Jan 2024 99:99:99 GMT", "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
    ],
)  # fmt: skip
def test_a_retry_after_that_no_calendar_has_is_absent(value: str) -> None:
    assert retry_after_s(value, 0.0) is None


@given(st.text() | st.from_regex(r"Mon, \d{1,4} Jan \d{1,20} \d{1,3}:\d{1,3}:\d{1,3} [+-]\d{1,20}", fullmatch=True))
def test_a_retry_after_never_raises(value: str) -> None:
    assert (retry_after_s(value, 0.0) or 0.0) >= 0


def test_a_retry_after_without_a_zone_is_utc() -> None:
    assert retry_after_s(formatdate(100, usegmt=True).replace("GMT", "-0000"), 40.0) == 60.0


# --- cookies ----------------------------------------------------------------------------------------------------------


async def test_a_cookie_set_for_one_tenant_is_sent_to_nobody() -> None:
    answer = says("hello")
    reply = Reply(body=answer.body, headers={"Set-Cookie": "session=secret-of-a; Path=/"})
    models = ModelCatalog(ModelOptions(), secrets=Secrets(), guarded_transport=Guarded, check_url=lambda url: None)
    async with ChatCompletionsServer([reply]) as server:
        try:
            for tenant in ("a", "b", "a"):
                spec = {"provider": "openai", "model": "m", "base_url": server.base_url, "api_key": f"key-{tenant}"}
                model = await models.build(tenant, await models.pin(tenant, spec))
                async for _ in model.stream(ModelRequest([Message("user", "hi")])):
                    pass
        finally:
            await models.close()
    assert [request.headers["authorization"] for request in server.requests] == [
        f"Bearer key-{tenant}" for tenant in "aba"
    ]
    assert not any("cookie" in request.headers for request in server.requests)


async def test_a_password_in_the_operators_own_address_is_sent_as_basic_auth() -> None:
    async with ChatCompletionsServer([says("hello")]) as server:
        address = server.base_url.replace("http://", "http://me:pw@")
        models = ModelCatalog(
            ModelOptions(openai_base_url=address),
            secrets=Secrets(),
            guarded_transport=Guarded,
            check_url=lambda url: None,
        )
        model = await models.build("t", await models.pin("t", "openai:m"))
        async for _ in model.stream(ModelRequest([Message("user", "hi")])):
            pass
        await models.close()
    assert server.requests[0].headers["authorization"] == "Basic bWU6cHc="


# --- specs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        [0] * 200_000,
        [{"tool_calls": [0] * 200_000}],
        [{"invalid_tool_calls": [0] * 200_000}],
        [{f"k{n}": 0 for n in range(10_000)}],
    ],
)
def test_a_spec_of_many_mistakes_has_a_short_refusal(script: list[object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_model({"provider": "scripted", "script": script}, pointer="/model")
    assert 1 <= len(caught.value.errors) <= MAX_FIELD_ERRORS
    assert caught.value.errors[0].pointer.startswith("/model/script/0")
