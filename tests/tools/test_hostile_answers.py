"""Hostile answers of tools: whatever a tool says becomes an outcome, never a fault of ours."""

from collections.abc import Mapping
from typing import cast

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.ports import ToolOutcome
from app.core.json import check_value, encode
from app.tools.egress import EgressGuard
from app.tools.http_callback import MAX_CODE, HttpToolClient, read_answer
from app.tools.plugin_api import Tool, ToolError, tool
from app.tools.plugins import PluginSet
from app.tools.result import read_body
from app.tools.service import ToolService
from tests.tools.support import Bench, MemoryRegistry, MemorySecrets, call, ran, spec

pytestmark = pytest.mark.anyio

URL = "https://tools.example.com/x"


async def no_pause(_seconds: float) -> None:
    pass


async def outcome_of(*answers: httpx.Response | Exception, **more: object) -> tuple[ToolOutcome, list[httpx.Request]]:
    """The outcome of a call whose attempts are answered so, in order, and the requests that were sent."""
    left = list(answers)
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        said = left.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    guard = EgressGuard()
    http = HttpToolClient(guard, transport=httpx.MockTransport(answer))
    bench = Bench.make()
    bench.service = ToolService(MemoryRegistry(), MemorySecrets(), bench.service._plugins, guard, http)
    bound = await bench.bound(spec("lookup", URL, **more))
    bound._sleep = no_pause
    outcome = await ran(bound.run(call("lookup", {})))
    return outcome, requests


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 01 Jan 2024 00:00:00 +99999999999999999", "Mon, 01 Jan 2024 00:00:00 +9999", "Mon, 99 Jan 2024 00:00:00 GMT",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -9959", "²", "9" * 5000, "nan", "()",
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [429, 503])
async def test_a_retry_after_that_no_calendar_has_is_absent(value: str, status: int) -> None:
    assert read_answer("it", status, {"retry-after": value}, b"", False, 1000).retry_after_s is None
    answers = (httpx.Response(status, headers=[(b"retry-after", value.encode())]), httpx.Response(200, json=1))
    outcome, requests = await outcome_of(*answers, effect="read")
    assert (outcome.status, outcome.observation, len(requests)) == ("success", 1, 2)


@given(st.text() | st.from_regex(r"Mon, \d{1,4} Jan \d{1,20} \d{1,3}:\d{1,3}:\d{1,3} [+-]\d{1,20}", fullmatch=True))
def test_a_retry_after_never_raises(value: str) -> None:
    wait = read_answer("it", 429, {"retry-after": value}, b"", False, 1000).retry_after_s
    assert wait is None or wait >= 0


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (httpx.ReadError("x"), "lookup: its connection was lost."),
        (httpx.Response(500), "lookup answered HTTP 500."),
        (RuntimeError("x"), "lookup: the server failed while it called the tool"),
    ],
)
async def test_what_the_model_reads_of_a_failed_attempt_names_the_tool(
    answer: httpx.Response | Exception, text: str
) -> None:
    outcome, _ = await outcome_of(answer, effect="read", retry={"max_attempts": 1})
    assert outcome.status == "error"
    assert str(outcome.observation).startswith(text)
    assert str(outcome.observation).endswith(".")
    lost, _ = await outcome_of(httpx.ReadError("x"))
    assert str(lost.observation).startswith("What became of lookup is unknown: its connection was lost. It may")


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain; charset=latin-1", b"caf\xe9", "café"),
        ('text/plain;Charset="ISO-8859-1"', b"caf\xe9", "café"),
        ("text/plain; charset=windows-1252", b"\x80", "€"),
        ("text/plain; charset=shift_jis", "日本".encode("shift_jis"), "日本"),
        ("text/plain; charset=utf-16", "日本".encode("utf-16"), "日本"),
        ("text/plain; charset=us-ascii", b"caf\xe9", "caf\ufffd"),
        ("text/plain; charset=utf-8", b"caf\xe9", "caf\ufffd"),
        ("text/plain", "café".encode(), "café"),
        ("text/plain; charset=nonsense", "café".encode(), "café"),
        ("text/plain; charset=zlib", b"caf", "caf"),
        ("text/plain; charset=base64", b"caf", "caf"),
        ("text/plain; charset=punycode", b"caf-", "caf-"),
        ("text/plain; charset=idna", b"caf-", "caf-"),
        ("text/plain; charset=unicode_escape", b"\\x41", "\\x41"),
        ("text/plain; charset=utf-16", b"\x00\xd8", "\ufffd"),
        ("text/plain; charset=utf-16-le", b"a\x00\x00\x00", "a\ufffd"),
    ],
)
async def test_text_is_read_in_its_declared_charset(content_type: str, body: bytes, text: str) -> None:
    outcome, _ = await outcome_of(httpx.Response(200, content=body, headers={"content-type": content_type}))
    assert (outcome.status, outcome.observation) == ("success", text)


async def test_a_long_text_is_cut_in_its_declared_charset() -> None:
    answer = httpx.Response(200, content=b"\xe9" * 100, headers={"content-type": "text/plain; charset=latin-1"})
    outcome, _ = await outcome_of(answer, max_result_bytes=10)
    assert str(outcome.observation).startswith("é" * 10 + "\n[cut:")


@given(st.binary(), st.sampled_from(["", "utf-7", "utf-32", "cp037", "hz", "iso2022_jp", "tactis", "x" * 64]))
def test_any_bytes_in_any_charset_become_a_value_that_can_be_stored(data: bytes, charset: str) -> None:
    for more in (False, True):
        value, _ = read_body(data, 50, more=more, charset=charset or None)
        encode(value)
        check_value(value)


async def test_the_attempts_of_a_call_share_their_trace_and_have_spans_of_their_own() -> None:
    answers = (httpx.Response(503), httpx.Response(503), httpx.Response(200, json=1))
    _, requests = await outcome_of(*answers, effect="read")
    _, others = await outcome_of(httpx.Response(200, json=1))
    parents = [request.headers["traceparent"].split("-") for request in (*requests, *others)]
    assert [(version, len(trace), len(span), flags) for version, trace, span, flags in parents] == [
        ("00", 32, 16, "01")
    ] * 4
    assert len({trace for _, trace, _, _ in parents[:3]}) == 1
    assert len({trace for _, trace, _, _ in parents}) == 2
    assert len({span for _, _, span, _ in parents}) == 4


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize(
    "error", [b'{"error": {"message": "a\\u0000b", "code": "c\\u0000d"}}', b'{"error": "a\\u0000b"}']
)
async def test_a_tools_own_words_are_made_storable(status: int, error: bytes) -> None:
    outcome, _ = await outcome_of(httpx.Response(status, content=error))
    said = encode([outcome.observation, outcome.error, outcome.envelope, outcome.attempts])
    assert status == 200 or b"\\u0000" not in said
    if outcome.error is not None:
        assert "\x00" not in str(outcome.error) + str(outcome.observation)


async def test_a_tools_own_code_is_cut() -> None:
    outcome, _ = await outcome_of(httpx.Response(400, json={"error": {"message": "no", "code": "c" * 100_000}}))
    assert outcome.error is not None
    assert len(str(outcome.error["code"])) == MAX_CODE


@tool
async def surrogate() -> None:
    raise ToolError("bad \ud800 text \x00")


async def test_a_plugins_own_words_are_made_storable() -> None:
    bench = Bench.make(plugins=PluginSet([cast("Tool[..., object]", surrogate)]))
    outcome = await ran((await bench.bound("surrogate")).run(call("surrogate", {})))
    assert outcome.observation == "bad \ufffd text \ufffd"
    encode([cast("Mapping[str, object]", outcome.error), outcome.envelope, outcome.chain, outcome.attempts])


@pytest.mark.parametrize(
    "body",
    [
        b'{"%s":[%s]}' % (b"k" * 10_000, b",".join([b"0"] * 100)), b"[" * 5000 + b"]" * 5000, b"9" * 20_000, b"1e999",
        b'{"output": 18446744073709551616}', b'{"output": "\\u0000"}', b'{"output": NaN}', b'"\\ud800"', b"\xff\xfe",
    ],
)  # fmt: skip
async def test_an_answer_that_cannot_be_kept_as_json_is_kept_as_text(body: bytes) -> None:
    outcome, _ = await outcome_of(httpx.Response(200, content=body))
    assert outcome.status == "success"
    encode([outcome.observation, outcome.envelope])
