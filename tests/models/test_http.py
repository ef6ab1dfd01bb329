"""The model client against a real server and against exact fragments of a stream."""

import asyncio
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.agent.ports import Delta, ModelAnswer, ModelRequest, TextDelta
from app.core.errors import ModelError
from app.core.messages import Message
from app.core.usage import TokenUsage
from app.models.http import ModelClient, Timeouts
from app.models.openai import OpenAIChatModel
from app.models.retries import Retries, retry_after_s
from tests.support.chat_completions import (
    ChatCompletionsServer,
    RecordedRequest,
    Replies,
    Reply,
    answer_chunks,
    calls,
    chunk,
    events,
    fails,
    says,
)

pytestmark = pytest.mark.anyio

KEY = "sk-test-0123456789abcdefghijkl"
QUICK = Timeouts(connect_s=5, first_token_s=0.2, between_chunks_s=0.2, total_s=20)
REQUEST = ModelRequest([Message("user", "hi")])


class Waits:
    """Takes the place of sleeping between attempts: notes how long, goes on at once."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def serving(
    replies: Replies,
    *,
    timeouts: Timeouts | None = None,
    waits: Waits | None = None,
    max_attempts: int = 3,
) -> AsyncGenerator[tuple[ChatCompletionsServer, OpenAIChatModel]]:
    client = ModelClient(retries=Retries(max_attempts=max_attempts), sleep=waits or Waits())
    async with asyncio.timeout(30), ChatCompletionsServer(replies) as server:
        try:
            yield server, OpenAIChatModel(client, "m", server.base_url, KEY, {}, timeouts)
        finally:
            await client.close()


async def played(model: OpenAIChatModel, request: ModelRequest = REQUEST) -> list[Delta | ModelAnswer]:
    return [item async for item in model.stream(request)]


async def answered(model: OpenAIChatModel) -> ModelAnswer:
    last = (await played(model))[-1]
    assert isinstance(last, ModelAnswer)
    return last


async def failure(replies: Replies, **options: object) -> tuple[ModelError, int]:
    """The error of one call, and how many requests it took."""
    async with serving(replies, **options) as (server, model):  # pyright: ignore[reportArgumentType]
        with pytest.raises(ModelError) as raised:
            await played(model)
        text = f"{raised.value} {raised.value.message} {raised.value!r}"
        assert KEY not in text
        assert "Bearer" not in text
        assert len(raised.value.message) < 400
        return raised.value, len(server.requests)


async def test_an_answer_streams_as_deltas_and_ends_in_one_answer() -> None:
    async with serving([says("It is sunny.")]) as (server, model):
        items = await played(model)
    assert items == [
        TextDelta("It is"),
        TextDelta(" sunn"),
        TextDelta("y."),
        ModelAnswer("It is sunny.", tokens=TokenUsage(9, 3, 12), model="test-model"),
    ]
    request = server.requests[0]
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.json == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hi"}],
    }


async def test_without_stream_only_the_answer_comes() -> None:
    async with serving([says("It is sunny.")]) as (_, model):
        items = await played(model, ModelRequest([Message("user", "hi")], stream=False))
    assert len(items) == 1


async def test_a_server_that_does_not_stream_is_understood() -> None:
    body = (
        b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"model":"x"}'
    )
    async with serving([Reply(body=body, content_type="application/json")]) as (_, model):
        assert await played(model) == [TextDelta("hello"), ModelAnswer("hello", tokens=TokenUsage(1, 2, 3), model="x")]


async def test_requests_one_after_another_share_a_connection() -> None:
    async with serving([says("one"), calls(("c1", "t", "{}")), says("three")]) as (server, model):
        for _ in range(3):
            await answered(model)
        assert server.connections == 1


# --- fragments --------------------------------------------------------------------------------------------------------

STREAM_CHUNKS = answer_chunks(
    "größe: 🙂 \u2028 end", calls=[("c1", "find", '{"q":"é 🙂","n":[1,2]}'), ("c2", "t", "{}")]
)


class _Fragments(httpx.AsyncByteStream):
    def __init__(self, body: bytes, cuts: list[int]) -> None:
        self._body = body
        self._borders = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start, end in pairwise(self._borders):
            yield self._body[start:end]


class _FragmentTransport(httpx.AsyncBaseTransport):
    def __init__(self, body: bytes, cuts: list[int]) -> None:
        self._stream = _Fragments(body, cuts)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=self._stream)


async def _through_fragments(body: bytes, cuts: list[int]) -> list[Delta | ModelAnswer]:
    client = ModelClient(transport=lambda: _FragmentTransport(body, cuts))
    try:
        return await played(OpenAIChatModel(client, "m", "http://model.test/v1"))
    finally:
        await client.close()


@settings(deadline=None, max_examples=60)
@given(cuts=st.lists(st.integers(0, 5000), max_size=40), newline=st.sampled_from(["\n", "\r\n"]))
def test_any_fragmentation_gives_the_same_deltas_and_answer(cuts: list[int], newline: str) -> None:
    whole = asyncio.run(_through_fragments(events(STREAM_CHUNKS), []))
    assert asyncio.run(_through_fragments(events(STREAM_CHUNKS, newline=newline), cuts)) == whole


async def test_a_stream_of_single_bytes_over_a_socket_gives_the_same_answer() -> None:
    body = events(STREAM_CHUNKS, newline="\r\n")
    async with serving([Reply(body=body), Reply(body=body, pieces=[1])]) as (_, model):
        assert await played(model) == await played(model)


async def test_a_line_of_a_megabyte_is_one_chunk() -> None:
    text = "x" * 1_000_000
    async with serving([Reply(body=events([chunk({"content": text}, finish="stop")]))]) as (_, model):
        assert (await answered(model)).content == text


async def test_comments_and_empty_events_are_passed_over() -> None:
    body = b": processing\n\nevent: ping\ndata: {}\n\ndata:\n\n" + events(answer_chunks("hi"))
    async with serving([Reply(body=body)]) as (_, model):
        assert (await answered(model)).content == "hi"


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "code", "retryable", "requests"),
    [
        (fails(401, f"Incorrect API key provided: {KEY}."), "model_auth", False, 1),
        (fails(403, f"Bearer {KEY} may not"), "model_auth", False, 1),
        (fails(404, "The model `m` does not exist"), "model_not_found", False, 1),
        (fails(400, "Invalid value: 'x' \x00\r\n" + "y" * 5000), "model_bad_request", False, 1),
        (fails(422, "bad"), "model_bad_request", False, 1),
        (fails(400, "too long", code="context_length_exceeded"), "context_length_exceeded", False, 1),
        (fails(400, "the request exceeds the available context size"), "context_length_exceeded", False, 1),
        (fails(400, "filtered", code="content_filter"), "content_filtered", False, 1),
        (fails(429, "slow down"), "model_rate_limited", True, 3),
        (fails(429, "You exceeded it", code="insufficient_quota"), "model_rate_limited", False, 1),
        (fails(500), "model_unavailable", True, 3),
        (fails(529), "model_unavailable", True, 3),
        (fails(501), "model_unavailable", True, 1),
        (Reply(status=502, body=b"<html>bad gateway</html>", content_type="text/html"), "model_unavailable", True, 3),
        (Reply(status=307, headers={"Location": "http://127.0.0.1:1/"}), "model_invalid_response", False, 1),
        (Reply(body=b"<html>log in</html>", content_type="text/html"), "model_invalid_response", False, 1),
        (Reply(body=b"[1]", content_type="application/json"), "model_invalid_response", False, 1),
        (Reply(body=b"data: {broken\n\n"), "model_invalid_response", False, 1),
        (Reply(body=b"data: 5\n\n"), "model_invalid_response", False, 1),
        (Reply(body=b"x", headers={"Content-Encoding": "gzip"}), "model_invalid_response", False, 1),
        (Reply(body=b"", content_type="application/json"), "model_empty_response", True, 1),
        (Reply(body=b""), "model_empty_response", True, 1),
        (Reply(body=b"data: [DONE]\n\n"), "model_empty_response", True, 1),
        (Reply(body=b'data: {"error":{"message":"busy","code":503}}\n\n'), "model_unavailable", True, 3),
        (
            Reply(body=b'event: error\ndata: {"message":"no","type":"invalid_request_error"}\n\n'),
            "model_bad_request",
            False,
            1,
        ),
        (Reply(body=events(answer_chunks("hi")[:2], done=False)), "model_stream_broken", True, 1),
        (Reply(body=events(answer_chunks("hello")), cut_after=500), "model_stream_broken", True, 1),
        (Reply(body=events(answer_chunks("hello")), cut_after=0), "model_stream_broken", True, 3),
        (Reply(drop=True), "model_unavailable", True, 3),
    ],
)
async def test_each_failure_has_its_code(reply: Reply, code: str, *, retryable: bool, requests: int) -> None:
    error, sent = await failure([reply])
    assert (error.code, error.retryable, sent) == (code, retryable, requests)


async def test_an_error_in_the_middle_of_a_stream_is_not_tried_again() -> None:
    body = events([*answer_chunks("hello")[:2], {"error": {"message": "overloaded", "type": "server_error"}}])
    error, sent = await failure([Reply(body=body)])
    assert (error.code, sent) == ("model_unavailable", 1)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(silent=True),
        Reply(pause_after=0),
        Reply(body=events(answer_chunks("hello")), pause_after=450),
        Reply(body=b": still here\n\n" * 10_000, pieces=[14], delay_s=0.01),
        Reply(body=events(answer_chunks("hello")), pieces=[450, 1], delay_s=0.01),
    ],
    ids=["silent", "head only", "stalled after a chunk", "only comments", "single bytes"],
)
async def test_a_server_that_makes_no_progress_times_out(reply: Reply) -> None:
    error, sent = await failure([reply], timeouts=QUICK)
    assert (error.code, error.retryable) == ("model_timeout", True)
    assert sent <= 1  # never tried again; on a busy machine the time may be over before the server has read it


async def test_an_endless_answer_ends_at_its_total_time() -> None:
    body = events([chunk({"content": "again "})] * 100_000, done=False)
    error, _ = await failure([Reply(body=body, pieces=[300], delay_s=0.01)], timeouts=replace(QUICK, total_s=0.3))
    assert error.code == "model_timeout"


async def test_an_endless_answer_ends_at_its_size() -> None:
    client = ModelClient(max_answer_bytes=10_000)
    async with ChatCompletionsServer([Reply(body=events([chunk({"content": "x" * 100})] * 1000))]) as server:
        with pytest.raises(ModelError) as raised:
            await played(OpenAIChatModel(client, "m", server.base_url))
        await client.close()
    assert raised.value.code == "model_invalid_response"


async def test_a_refused_connection_is_tried_again_and_then_unavailable() -> None:
    waits = Waits()
    client = ModelClient(sleep=waits)
    async with ChatCompletionsServer([says("x")]) as server:
        base_url = server.base_url
    with pytest.raises(ModelError) as raised:
        await played(OpenAIChatModel(client, "m", base_url))
    await client.close()
    assert (raised.value.code, len(waits.seconds)) == ("model_unavailable", 2)


@pytest.mark.parametrize(
    ("base_url", "key"),
    [
        ("http://[::1/v1", KEY),
        ("http://h:99999/v1", KEY),
        ("localhost/v1", KEY),
        ("ftp://h/v1", KEY),
        ("http://127.0.0.1:1/v1", KEY + "é"),
        ("http://127.0.0.1:1/v1", KEY + "\n"),
        ("http://127.0.0.1:1/v1", KEY + "\x01"),
    ],
)
async def test_what_cannot_be_sent_is_a_bad_request_without_the_key(base_url: str, key: str) -> None:
    client = ModelClient(sleep=Waits())
    with pytest.raises(ModelError) as raised:
        await played(OpenAIChatModel(client, "m", base_url, key))
    await client.close()
    assert raised.value.code in ("model_bad_request", "model_unavailable")
    assert KEY not in "".join(traceback.format_exception(raised.value))


async def test_an_answer_whose_end_was_said_needs_no_done_and_survives_a_cut() -> None:
    whole = events(answer_chunks("hello", usage=None), done=False)
    for reply in (Reply(body=whole), Reply(body=whole, close=True), Reply(body=whole, cut_after=len(whole))):
        async with serving([reply]) as (_, model):
            assert (await answered(model)).content == "hello"


async def test_done_without_a_finish_reason_ends_an_answer() -> None:
    async with serving([Reply(body=events(answer_chunks("hello")[:2]))]) as (_, model):
        assert (await answered(model)).content == "hello"


# --- retries ----------------------------------------------------------------------------------------------------------


async def test_what_failed_before_the_first_chunk_is_sent_again_unchanged() -> None:
    waits = Waits()
    replies = [fails(503), Reply(drop=True), says("made it")]
    async with serving(replies, waits=waits) as (server, model):
        assert (await answered(model)).content == "made it"
        assert len({request.body for request in server.requests}) == 1
    assert 0.25 <= waits.seconds[0] <= 0.5 <= waits.seconds[1] <= 1


async def test_retry_after_is_honoured_and_capped() -> None:
    waits = Waits()
    replies = [fails(429, headers={"Retry-After": "7"}), fails(503, headers={"Retry-After": "3600"}), says("ok")]
    async with serving(replies, waits=waits) as (_, model):
        await answered(model)
    assert waits.seconds == [7, 30]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        ("0.5", 0.5),
        ("Thu, 01 Jan 1970 00:16:50 GMT", 10.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, now=1000.0) == seconds


# --- cancelling -------------------------------------------------------------------------------------------------------


def _stalled() -> Callable[[RecordedRequest], Reply]:
    first_words = len(events(answer_chunks("hello")[:2], done=False))
    return lambda _: Reply(body=events(answer_chunks("hello")), pause_after=first_words)


async def test_cancelling_the_consumer_closes_the_connection() -> None:
    async with serving(_stalled()) as (server, model):
        first = asyncio.Event()

        async def consume() -> None:
            async with aclosing(model.stream(REQUEST)) as items:
                async for _ in items:
                    first.set()

        task = asyncio.create_task(consume())
        await first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.open_connections == 0)


async def test_cancelling_before_the_answer_began_closes_the_connection() -> None:
    async with serving([Reply(silent=True)]) as (server, model):
        task = asyncio.create_task(played(model))
        await server.until(lambda: len(server.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.open_connections == 0)


async def test_closing_the_stream_early_closes_the_connection() -> None:
    async with serving(_stalled()) as (server, model):
        async with aclosing(model.stream(REQUEST)) as items:
            await anext(items)
        await server.until(lambda: server.open_connections == 0)


async def test_a_hundred_calls_at_once_are_answered() -> None:
    async with serving(lambda _: says("hello there")) as (_, model):
        answers = await asyncio.gather(*(answered(model) for _ in range(100)))
    assert {answer.content for answer in answers} == {"hello there"}
