"""The Anthropic client against a real server: every fragmentation, every failure, every place to break off."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.agent.ports import Delta, ModelAnswer, ModelRequest, TextDelta
from app.core.errors import InvalidRequest, ModelError
from app.core.messages import Message
from app.core.usage import TokenUsage
from app.models.anthropic import AnthropicChatModel
from app.models.catalog import ModelOptions
from app.models.http import ModelClient, Timeouts
from app.models.retries import Retries
from tests.models.test_catalog import Guarded, Secrets, ask, catalog
from tests.models.test_http import QUICK, Waits, _FragmentTransport
from tests.support.anthropic_messages import (
    answer_events,
    answers,
    error_body,
    events,
    fails,
    message_start,
    messages_server,
    redacted,
    says,
    text,
    thinking,
    tool_use,
    whole,
)
from tests.support.chat_completions import ChatCompletionsServer, Replies, Reply

pytestmark = pytest.mark.anyio

KEY = "sk-ant-api03-0123456789abcdefghijkl"
OPERATOR_KEY, TENANT_KEY = "sk-ant-operator-0123456789", "tenant-key-0123456789"
REQUEST = ModelRequest([Message("user", "hi")])
BLOCKS = (
    thinking("größe 🙂"),
    redacted(),
    text("é \u2028 end"),
    tool_use("t1", "find", {"q": "é 🙂", "n": [1, 2]}),
    tool_use("t2", "now", {}),
)
STREAM = events(answer_events(*BLOCKS))


@asynccontextmanager
async def serving(
    replies: Replies,
    *,
    timeouts: Timeouts | None = None,
    waits: Waits | None = None,
    max_attempts: int = 3,
    params: dict[str, object] | None = None,
) -> AsyncGenerator[tuple[ChatCompletionsServer, AnthropicChatModel]]:
    client = ModelClient(retries=Retries(max_attempts=max_attempts), sleep=waits or Waits())
    async with asyncio.timeout(60), messages_server(replies) as server:
        try:
            yield server, AnthropicChatModel(client, "m", server.base_url, KEY, params, timeouts)
        finally:
            await client.close()


async def played(model: AnthropicChatModel, request: ModelRequest = REQUEST) -> list[Delta | ModelAnswer]:
    return [item async for item in model.stream(request)]


async def answered(model: AnthropicChatModel) -> ModelAnswer:
    last = (await played(model))[-1]
    assert isinstance(last, ModelAnswer)
    return last


async def failure(replies: Replies, **options: object) -> tuple[ModelError, int]:
    """The error of one call, and how many requests it took."""
    async with serving(replies, **options) as (server, model):  # pyright: ignore[reportArgumentType]
        with pytest.raises(ModelError) as raised:
            await played(model)
        assert KEY not in f"{raised.value} {raised.value.message} {raised.value!r}"
        assert len(raised.value.message) < 400
        return raised.value, len(server.requests)


async def test_an_answer_streams_as_deltas_and_ends_in_one_answer() -> None:
    async with serving([says("It is sunny.")], params={"betas": ["one", "two"], "top_k": 3}) as (server, model):
        items = await played(model)
    assert items == [
        TextDelta("It is"),
        TextDelta(" sunn"),
        TextDelta("y."),
        ModelAnswer("It is sunny.", tokens=TokenUsage(9, 3, 12), model="claude-test"),
    ]
    request = server.requests[0]
    assert (request.method, request.path) == ("POST", "/v1/messages")
    named = ("x-api-key", "anthropic-version", "anthropic-beta", "content-type", "authorization")
    assert [request.headers.get(name) for name in named] == [KEY, "2023-06-01", "one,two", "application/json", None]
    assert request.json == {
        "model": "m",
        "max_tokens": 4096,
        "stream": True,
        "top_k": 3,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    }


async def test_without_stream_only_the_answer_comes() -> None:
    async with serving([says("It is sunny.")]) as (_, model):
        assert len(await played(model, ModelRequest([Message("user", "hi")], stream=False))) == 1


async def test_a_server_that_does_not_stream_is_understood() -> None:
    async with serving([whole(text("hello"))]) as (_, model):
        assert await played(model) == [
            TextDelta("hello"),
            ModelAnswer("hello", tokens=TokenUsage(9, 3, 12), model="claude-test"),
        ]


async def test_requests_one_after_another_share_a_connection() -> None:
    async with serving([says("one"), answers(*BLOCKS), whole(text("three"))]) as (server, model):
        for _ in range(3):
            await answered(model)
        assert server.connections == 1


async def test_a_server_that_does_not_end_after_its_last_event_is_not_waited_for() -> None:
    body = events(answer_events(text("hi")))
    async with serving([Reply(body=body, pause_after=len(body))]) as (_, model):
        assert (await answered(model)).content == "hi"


async def test_closing_the_stream_closes_the_connection() -> None:
    async with serving([Reply(body=STREAM, pause_after=len(STREAM) // 2)]) as (server, model):
        async with aclosing(model.stream(REQUEST)) as items:
            await anext(items)
        await server.until(lambda: server.open_connections == 0)


# --- fragments --------------------------------------------------------------------------------------------------------


async def _through_fragments(body: bytes, cuts: list[int]) -> list[Delta | ModelAnswer]:
    client = ModelClient(transport=lambda: _FragmentTransport(body, cuts))
    try:
        return await played(AnthropicChatModel(client, "m", "http://model.test"))
    finally:
        await client.close()


@settings(deadline=None, max_examples=60)
@given(cuts=st.lists(st.integers(0, 5000), max_size=40), newline=st.sampled_from([b"\n", b"\r\n"]))
def test_any_fragmentation_gives_the_same_deltas_and_answer(cuts: list[int], newline: bytes) -> None:
    whole_answer = asyncio.run(_through_fragments(STREAM, []))
    assert asyncio.run(_through_fragments(STREAM.replace(b"\n", newline), cuts)) == whole_answer


async def test_a_stream_of_single_bytes_over_a_socket_gives_the_same_answer() -> None:
    async with serving([Reply(body=STREAM), Reply(body=STREAM, pieces=[1])]) as (_, model):
        assert await played(model) == await played(model)


async def test_events_without_their_names_are_understood() -> None:
    bare = b"\n".join(line for line in STREAM.split(b"\n") if not line.startswith(b"event:"))
    async with serving([Reply(body=STREAM), Reply(body=bare)]) as (_, model):
        assert await played(model) == await played(model)


def _cut_answers() -> list[tuple[int, bytes]]:
    """The stream cut after each byte from the start of its tool call to the reason of its end."""
    body = events(answer_events(text("I look."), tool_use("t1", "pay", {"eur": 100, "to": "x"}), size=9))
    start, end = body.index(b'"tool_use"'), body.index(b"event: message_delta")
    return [(at, body[:at]) for at in range(start, end)]


async def _cut(body: bytes) -> str:
    client = ModelClient(transport=lambda: _FragmentTransport(body, []))
    try:
        with pytest.raises(ModelError) as raised:
            await played(AnthropicChatModel(client, "m", "http://model.test"))
        return raised.value.code
    finally:
        await client.close()


async def test_a_stream_cut_at_any_byte_of_a_call_is_broken_and_never_half_a_call() -> None:
    cuts = _cut_answers()
    assert len(cuts) > 300
    for at, body in cuts:
        assert await _cut(body) == "model_stream_broken", at


async def test_a_connection_that_is_reset_inside_a_call_is_a_broken_stream() -> None:
    for at, _ in _cut_answers()[::40]:
        body = events(answer_events(text("I look."), tool_use("t1", "pay", {"eur": 100, "to": "x"}), size=9))
        error, sent = await failure([Reply(body=body, cut_after=at)])
        assert (error.code, error.retryable, sent) == ("model_stream_broken", True, 1)


async def test_an_answer_whose_end_was_said_survives_a_cut() -> None:
    body = events(answer_events(text("hello"))[:-1])
    for reply in (Reply(body=body), Reply(body=body, close=True), Reply(body=body, cut_after=len(body))):
        async with serving([reply]) as (_, model):
            assert (await answered(model)).content == "hello"


# --- failures ---------------------------------------------------------------------------------------------------------

TOO_LONG = "prompt is too long: 208310 tokens > 200000 maximum"
OVER_LIMIT = "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"
NO_CREDIT = "Your credit balance is too low to access the Anthropic API."

FAILURES: list[tuple[int, str, str, str, bool, int]] = [
    (400, "invalid_request_error", "max_tokens: Field required", "model_bad_request", False, 1),
    (400, "invalid_request_error", TOO_LONG, "context_length_exceeded", False, 1),
    (400, "invalid_request_error", OVER_LIMIT, "context_length_exceeded", False, 1),
    (400, "invalid_request_error", NO_CREDIT, "model_rate_limited", False, 1),
    (401, "authentication_error", f"invalid x-api-key {KEY}", "model_auth", False, 1),
    (402, "billing_error", "payment is due", "model_rate_limited", False, 1),
    (403, "permission_error", "not allowed", "model_auth", False, 1),
    (404, "not_found_error", "model: m", "model_not_found", False, 1),
    (413, "request_too_large", "Request exceeds the maximum size", "model_bad_request", False, 1),
    (429, "rate_limit_error", "slow down", "model_rate_limited", True, 3),
    (500, "api_error", "Internal server error", "model_unavailable", True, 3),
    (504, "timeout_error", "Request timed out", "model_unavailable", True, 3),
    (529, "overloaded_error", "Overloaded", "model_unavailable", True, 3),
]


@pytest.mark.parametrize(("status", "kind", "message", "code", "retryable", "requests"), FAILURES)
async def test_each_failure_has_its_code(
    status: int, kind: str, message: str, code: str, *, retryable: bool, requests: int
) -> None:
    """By its status, as a first event, and after the message's start: each is as good as no answer yet."""
    stream_start = [message_start(), {"type": "ping"}]
    for reply in (
        fails(status, kind, message),
        Reply(body=events([error_body(kind, message)])),
        Reply(body=events([*stream_start, error_body(kind, message)])),
    ):
        error, sent = await failure([reply])
        assert (error.code, error.retryable, sent) == (code, retryable, requests)


@pytest.mark.parametrize(
    ("reply", "code", "retryable", "requests"),
    [
        (Reply(body=b""), "model_empty_response", True, 1),
        (Reply(body=events([{"type": "ping"}])), "model_empty_response", True, 1),
        (Reply(body=events([message_start()])), "model_stream_broken", True, 1),
        (Reply(body=events([message_start()]), cut_after=100), "model_stream_broken", True, 3),
        (Reply(body=b"event: message_start\ndata: {broken\n\n"), "model_invalid_response", False, 1),
        (Reply(body=b"<html>log in</html>", content_type="text/html"), "model_invalid_response", False, 1),
        (Reply(status=307, headers={"Location": "http://127.0.0.1:1/"}), "model_invalid_response", False, 1),
        (Reply(drop=True), "model_unavailable", True, 3),
    ],
)
async def test_an_answer_that_is_none_has_its_code(reply: Reply, code: str, *, retryable: bool, requests: int) -> None:
    error, sent = await failure([reply])
    assert (error.code, error.retryable, sent) == (code, retryable, requests)


@pytest.mark.parametrize(
    "reply", [Reply(silent=True), Reply(pause_after=0), Reply(body=STREAM, pause_after=len(STREAM) // 2)]
)
async def test_a_server_that_makes_no_progress_times_out(reply: Reply) -> None:
    error, sent = await failure([reply], timeouts=QUICK)
    assert (error.code, error.retryable) == ("model_timeout", True)
    assert sent <= 1  # never tried again; on a busy machine the time may be over before the server has read it


async def test_overload_before_the_answer_is_waited_for_as_the_server_asks() -> None:
    waits = Waits()
    begun = Reply(body=events([message_start(), {"type": "ping"}, error_body("overloaded_error", "Overloaded")]))
    replies = [fails(529, "overloaded_error", headers={"Retry-After": "7"}), begun, answers(*BLOCKS)]
    async with serving(replies, waits=waits) as (server, model):
        got = await answered(model)
        assert len({request.body for request in server.requests}) == 1
    assert got.provider_blocks == {"anthropic": [*BLOCKS[:3], 0, 1]}
    assert got.tokens == TokenUsage(9, 3, 12)
    assert waits.seconds[0] == 7
    assert len(waits.seconds) == 2


async def test_overload_in_the_middle_of_an_answer_is_not_tried_again() -> None:
    body = events([*answer_events(text("hello"))[:4], error_body("overloaded_error")])
    error, sent = await failure([Reply(body=body)])
    assert (error.code, error.retryable, sent) == ("model_unavailable", True, 1)


# --- the catalog ------------------------------------------------------------------------------------------------------


async def test_a_spec_is_pinned_without_its_key() -> None:
    secrets = Secrets()
    spec = {
        "provider": "anthropic", "model": "c", "base_url": "https://h/", "api_key": TENANT_KEY,
        "params": {"max_tokens": 9, "betas": ["b"], "cache_control": {"type": "ephemeral"}, "thinking": {"type": "x"}},
    }  # fmt: skip
    async with catalog(ModelOptions(anthropic_api_key=OPERATOR_KEY), secrets=secrets) as models:
        assert await models.pin("t", "anthropic:claude:x") == {
            "provider": "anthropic", "model": "claude:x", "params": {},
        }  # fmt: skip
        pinned = await models.pin("t", spec)
    assert pinned == {**spec, "base_url": "https://h", "api_key": {"secret_ref": "ref-0"}}
    assert TENANT_KEY not in json.dumps(pinned)


@pytest.mark.parametrize("name", ["messages", "model", "stream", "tools", "system", "tool_choice"])
async def test_params_that_are_ours_are_refused(name: str) -> None:
    await _refused({name: None})


@pytest.mark.parametrize(
    "params",
    [{"betas": ["a\r\nx: y"]}, {"betas": [7]}, {"anthropic_beta": "a b"}, {"betas": {}}, {"cache_control": True}],
)
async def test_params_that_would_do_harm_are_refused(params: dict[str, object]) -> None:
    await _refused(params)


async def _refused(params: dict[str, object]) -> None:
    async with catalog(ModelOptions(anthropic_api_key=OPERATOR_KEY)) as models:
        with pytest.raises(InvalidRequest) as raised:
            await models.pin("t", {"provider": "anthropic", "model": "m", "params": params})
    assert [error.pointer for error in raised.value.errors] == ["/model/params"]


async def test_without_a_key_or_an_address_it_says_what_to_set() -> None:
    async with catalog(ModelOptions(openai_api_key=OPERATOR_KEY)) as models:
        for step in (models.pin("t", "anthropic:m"), models.build("t", {"provider": "anthropic", "model": "m"})):
            with pytest.raises(InvalidRequest) as raised:
                await step
            assert raised.value.code == "model_not_configured"
            assert "ANTHROPIC_API_KEY" in raised.value.message


async def test_the_operators_key_goes_to_the_operators_address() -> None:
    async with messages_server([says("hi")]) as server:
        options = ModelOptions(
            openai_api_key="sk-other", anthropic_api_key=f" {OPERATOR_KEY}\n", anthropic_base_url=server.base_url + "/"
        )
        async with catalog(options) as models:
            assert (await ask(models, "anthropic:m")).content == "hi"
            assert Guarded.made == 0
        headers = server.requests[0].headers
    assert headers["x-api-key"] == OPERATOR_KEY
    assert "sk-other" not in str(headers)


@pytest.mark.parametrize("key", [TENANT_KEY, None])
async def test_a_tenants_address_is_guarded_and_never_gets_the_operators_key(key: str | None) -> None:
    checked: list[str] = []
    async with messages_server([says("hi")]) as server:
        options = ModelOptions(anthropic_api_key=OPERATOR_KEY, anthropic_base_url=server.base_url)
        async with catalog(options, check_url=checked.append) as models:
            await ask(models, {"provider": "anthropic", "model": "m", "base_url": server.base_url, "api_key": key})
            assert (Guarded.made, Guarded.requests) == (1, 1)
        headers = server.requests[0].headers
    assert headers.get("x-api-key") == key
    assert OPERATOR_KEY not in str(headers)
    assert checked == [server.base_url]
