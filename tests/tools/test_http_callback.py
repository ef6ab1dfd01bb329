"""What we send, and what each answer of a real server makes of a call."""

import base64
import hashlib
import json
import re
import socket
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import cast

import httpx
import pytest
import respx
from dirty_equals import IsStr
from inline_snapshot import snapshot
from standardwebhooks.webhooks import Webhook

from app.agent.ports import PlannedCall, ToolOutcome
from app.core.actions import AgentAction
from app.core.errors import ToolWithdrawn
from app.core.ids import new_id
from app.tools.dispatch import Dispatch
from app.tools.egress import EgressGuard
from app.tools.http_callback import HttpToolClient, read_answer
from app.tools.result import KEPT_BYTES
from app.tools.runner import BoundTools
from app.tools.service import ToolService
from tests.support.tool_server import ToolServer
from tests.tools.support import ME, Bench, Journal, MemoryRegistry, MemorySecrets, call, ran, spec

pytestmark = pytest.mark.anyio

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
CALL_ID = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
ADD: dict[str, object] = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ToolServer]:
    folder: Path = tmp_path_factory.mktemp("tools")
    with ToolServer.start(folder) as running:
        yield running


async def no_pause(_seconds: float) -> None:
    pass


async def run(
    server: ToolServer, path: str, more: dict[str, object] | None = None, *, journal: Journal | None = None
) -> tuple[ToolOutcome, list[dict[str, object]]]:
    """Call a tool at that path; its outcome and its effects."""
    bench = Bench.make()
    bench.journal = journal or bench.journal
    bound = await bench.bound(spec("it", server.url(path), **(more or {})))
    bound._sleep = no_pause
    asked = call("it", {"a": 2, "b": 3})
    try:
        outcome = await ran(bound.run(asked))
    finally:
        await bench.http.aclose()
    return outcome, [effect for effect in server.effects() if effect["tool_call_id"] == asked.tool_call_id]


READ: dict[str, object] = {"effect": "read"}
WRITE: dict[str, object] = {"effect": "write"}
SAFE_WRITE: dict[str, object] = {"effect": "write", "idempotent": True}


@pytest.mark.parametrize(
    ("path", "output"),
    [
        ("/add", 5), ("/echo", {"a": 2, "b": 3}), ("/ok", True), ("/text", "plain text"), ("/null", None),
        ("/empty", ""), ("/json", {"temperature": 21.5, "unit": "C"}), ("/invalid-utf8", "caf\ufffd \ufffd"),
    ],
)  # fmt: skip
async def test_what_a_2xx_carries_is_the_output(server: ToolServer, path: str, output: object) -> None:
    outcome, effects = await run(server, path)
    assert (outcome.status, outcome.observation, len(effects)) == ("success", output, 1)


@pytest.mark.parametrize("kind", [READ, WRITE, SAFE_WRITE])
@pytest.mark.parametrize(
    ("path", "status", "text", "attempts"),
    [
        ("/error", "error", "No such order.", 1),
        ("/retryable", "error", "Busy.", 3),
        ("/status/404", "error", "it answered HTTP 404: status 404", 1),
        ("/status/422", "error", "it answered HTTP 422: status 422", 1),
        ("/redirect", "error", "it answered with a redirect (HTTP 307); redirects are not followed.", 1),
        ("/429-then-ok", "success", "True", 2),
        ("/retryable-then-ok", "success", "True", 2),
    ],
)
async def test_what_certainly_did_nothing_is_judged_alike_for_every_effect(
    server: ToolServer, kind: dict[str, object], path: str, status: str, text: str, attempts: int
) -> None:
    outcome, effects = await run(server, path, kind)
    assert (outcome.status, str(outcome.observation), len(outcome.attempts)) == (status, text, attempts)
    assert len(effects) == (status == "success")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/500", "unknown"), ("/503-then-ok", "unknown"), ("/close-before", "unknown"), ("/close-after", "unknown"),
        ("/half", "unknown"), ("/never", "unknown"), ("/drip", "unknown"),
    ],
)  # fmt: skip
async def test_a_write_of_unknown_fate_is_sent_once_and_said_to_be_unknown(
    server: ToolServer, path: str, status: str
) -> None:
    outcome, effects = await run(server, path, {"timeout_s": 0.3 if path in ("/never", "/drip") else 5})
    assert (outcome.status, len(outcome.attempts)) == (status, 1)
    assert len(effects) <= 1
    assert outcome.error is not None
    assert outcome.error["state"] == "unknown"
    assert "do not assume" in str(outcome.observation)
    assert "secret" not in str(outcome)


@pytest.mark.parametrize("path", ["/503-then-ok", "/half-then-ok", "/close-after-then-ok", "/500-then-ok"])
@pytest.mark.parametrize("kind", [READ, SAFE_WRITE])
async def test_what_may_be_repeated_is_repeated_with_the_same_key_and_bytes(
    server: ToolServer, path: str, kind: dict[str, object]
) -> None:
    journal = Journal()
    outcome, effects = await run(server, path, kind, journal=journal)
    assert (outcome.status, len(outcome.attempts), len(journal.dispatches)) == ("success", 2, 2)
    assert len({(effect["idempotency_key"], effect["body_sha256"]) for effect in effects}) == 1
    assert effects[-1]["attempt"] == 2


@pytest.mark.parametrize(
    ("path", "kind", "status", "state"),
    [
        ("/500", READ, "error", "failed"), ("/never", READ, "timeout", "failed"),
        ("/500", SAFE_WRITE, "unknown", "unknown"), ("/never", SAFE_WRITE, "timeout", "unknown"),
    ],
)  # fmt: skip
async def test_a_repeatable_call_that_never_works_ends_after_its_attempts(
    server: ToolServer, path: str, kind: dict[str, object], status: str, state: str
) -> None:
    outcome, effects = await run(server, path, {"timeout_s": 0.2, "retry": {"max_attempts": 2}, **kind})
    assert outcome.error is not None
    assert (outcome.status, outcome.error["state"], len(effects)) == (status, state, 2)


async def test_a_wait_longer_than_the_deadline_is_not_waited(server: ToolServer) -> None:
    outcome, _ = await run(server, "/429-then-ok?after=60", {"deadline_s": 10})
    assert outcome.error is not None
    assert (outcome.status, outcome.error["code"], outcome.error["retryable"]) == ("error", "tool_rate_limited", True)


async def test_nobody_listening_means_certainly_not_executed(server: ToolServer) -> None:
    bench = Bench.make()
    bound = await bench.bound(spec("it", "http://127.0.0.1:1/", retry={"max_attempts": 3}))
    bound._sleep = no_pause
    outcome = await ran(bound.run(call("it", {})))
    assert outcome.error is not None
    assert (outcome.status, len(outcome.attempts), outcome.error["state"]) == ("error", 3, "failed")
    await bench.http.aclose()


@pytest.mark.parametrize(
    ("path", "beginning", "read"), [("/big", '"xxx', 3_000_002), ("/gzip-bomb", "\ufffd\ufffd", KEPT_BYTES)]
)
async def test_an_answer_over_the_limit_is_cut_while_it_is_read(
    server: ToolServer, path: str, beginning: str, read: int
) -> None:
    outcome, _ = await run(server, path, {"max_result_bytes": 1000, "timeout_s": 60})
    text = str(outcome.observation)
    meta = cast("dict[str, object]", outcome.envelope["meta"])
    assert (outcome.status, meta["truncated"], meta["bytes_read"]) == ("success", True, read)
    assert text.startswith(beginning)
    assert re.search(
        rf"\n\[cut: the result is longer than 1000 bytes; sha256 [0-9a-f]{{64}}\]\n\[the (whole|first) {read} bytes: GET ",
        text,
    )


async def test_the_one_connection_is_kept_alive(server: ToolServer) -> None:
    bench = Bench.make()
    bound = await bench.bound(spec("it", server.url("/ok")))
    before = server.stats()["connections"]
    for _ in range(5):
        assert (await ran(bound.run(call("it", {})))).status == "success"
    assert server.stats()["connections"] - before == 2
    await bench.http.aclose()


async def test_a_withdrawal_between_attempts_stops_the_next_one(server: ToolServer) -> None:
    class Once(Journal):
        async def record(self, dispatch: Dispatch, /) -> None:
            if len(dispatch.log) > 1:
                raise ToolWithdrawn("gone")

    outcome, effects = await run(server, "/500", READ, journal=Once())
    assert (outcome.status, len(effects)) == ("error", 1)  # no denial: it was sent once
    assert outcome.error is not None
    assert outcome.error["code"] == "tool_withdrawn"


# --- the request ---------------------------------------------------------------------------------------------------


async def mocked(router: respx.MockRouter, **more: object) -> tuple[BoundTools, PlannedCall]:
    guard = EgressGuard()
    http = HttpToolClient(guard, transport=httpx.MockTransport(router.async_handler))
    bench = Bench.make()
    bench.service = ToolService(MemoryRegistry(), MemorySecrets(), bench.service._plugins, guard, http)
    bound = await bench.bound(spec("add", "https://tools.example.com/add", parameters=ADD, **more))
    bound._sleep = no_pause
    return bound, PlannedCall(1, 1, CALL_ID, AgentAction("add", {"b": 3, "a": 2}), provider_call_id="call_1")


async def test_the_request_is_the_one_of_the_contract() -> None:
    router = respx.MockRouter()
    route = router.post("https://tools.example.com/add").respond(json={"output": 5})
    headers = {"X-Team": "blue", "X-Api-Key": "k3y"}
    http = {"url": "https://tools.example.com/add", "headers": headers, "auth": {"type": "bearer", "token": "t0k"}}
    bound, asked = await mocked(router, signing_secret=SECRET, http=http, constants={"api_version": "2"})
    outcome = await ran(bound.run(asked))
    assert outcome.observation == 5
    request = route.calls.last.request
    body = cast("dict[str, object]", json.loads(request.content))
    assert body == snapshot(
        {
            "data": {
                "arguments": {"a": 2, "api_version": "2", "b": 3},
                "callback_token": None,
                "callback_url": None,
                "context": {"locale": "de"},
                "deadline": "2022-02-22T20:22:22.000Z",
                "principal": {"subject": "key-1", "tenant": "acme"},
                "run_id": "run-1",
                "thread_id": "thread-1",
                "tool": "add",
                "tool_call_id": "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
            },
            "timestamp": "2022-02-22T19:22:22.000Z",
            "type": "tool.call",
        }
    )
    parts = ("acme", "thread-1", CALL_ID, "add")
    key = hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part.encode() for part in parts)).hexdigest()
    assert dict(request.headers) == {
        "host": "tools.example.com",
        "accept": "application/json, */*",
        "accept-encoding": "identity",
        "user-agent": "Runwire",
        "content-type": "application/json",
        "content-length": str(len(request.content)),
        "webhook-id": CALL_ID,
        "webhook-timestamp": IsStr(regex=r"\d{10}"),
        "webhook-signature": IsStr(regex=r"v1,[A-Za-z0-9+/]{43}="),
        "idempotency-key": key,
        "runwire-attempt": "1",
        "traceparent": IsStr(regex=r"00-[0-9a-f]{32}-[0-9a-f]{16}-01"),
        "authorization": "Bearer t0k",
        "x-team": "blue",
        "x-api-key": "k3y",
    }
    assert Webhook(SECRET).verify(request.content, dict(request.headers)) == body
    with pytest.raises(Exception, match="No matching signature"):
        Webhook(SECRET).verify(request.content.replace(b"2022", b"2023"), dict(request.headers))


async def test_retries_and_restarts_send_the_same_bytes_under_the_same_key() -> None:
    router = respx.MockRouter()
    answers = [httpx.Response(503), httpx.Response(200, json={"output": 1}), httpx.Response(200, json={"output": 1})]
    route = router.post("https://tools.example.com/add").mock(side_effect=answers)
    bound, asked = await mocked(router, effect="read")
    asked = replace(asked, tool_call_id=new_id())
    await ran(bound.run(asked))
    again, _ = await mocked(router, effect="read")
    await ran(again.run(asked, sent_before=2))
    sent = [cast("httpx.Request", route.calls[index].request) for index in range(3)]
    assert len({request.content for request in sent}) == 1
    assert len({(request.headers["idempotency-key"], request.headers["webhook-id"]) for request in sent}) == 1
    assert [request.headers["runwire-attempt"] for request in sent] == ["1", "2", "3"]
    assert len({request.headers["traceparent"] for request in sent}) == 3


@pytest.mark.parametrize(
    ("limits", "sent_before"),
    [({"retry": {"max_attempts": 1}}, 1), ({"retry": {"max_attempts": 2}}, 2), ({"deadline_s": 4}, 1)],
)
async def test_a_crash_renews_neither_the_attempts_nor_the_deadline(
    limits: dict[str, object], sent_before: int
) -> None:
    router = respx.MockRouter()
    route = router.post("https://tools.example.com/add").respond(json={"output": 5})
    bound, asked = await mocked(router, effect="read", **limits)  # the call was made long ago, by its id
    outcome = await ran(bound.run(asked, sent_before=sent_before))
    assert (outcome.status, len(route.calls)) == ("error", 0)
    assert len(outcome.attempts) == sent_before


async def test_an_error_in_the_tools_own_words_keeps_its_code_under_any_status() -> None:
    router = respx.MockRouter()
    answer = {"error": {"message": "There is no such city.", "code": "bad_city"}}
    router.post("https://tools.example.com/add").respond(422, json=answer)
    bound, asked = await mocked(router)
    outcome = await ran(bound.run(asked))
    assert (outcome.status, outcome.observation) == ("error", "There is no such city.")
    assert outcome.error is not None
    assert outcome.error["code"] == "bad_city"


async def test_cookies_of_one_answer_are_not_sent_with_the_next_call() -> None:
    router = respx.MockRouter()
    cookie = {"set-cookie": "session=of-another-tenant"}
    route = router.post("https://tools.example.com/add").respond(json={"output": 5}, headers=cookie)
    bound, asked = await mocked(router)
    await ran(bound.run(asked))
    await ran(bound.run(asked))
    assert (len(route.calls), "cookie" in route.calls.last.request.headers) == (2, False)


async def test_an_inline_tool_without_a_secret_is_called_unsigned() -> None:
    router = respx.MockRouter()
    route = router.post("https://tools.example.com/add").respond(json={"output": 5})
    bound, asked = await mocked(router)
    await ran(bound.run(asked))
    assert "webhook-signature" not in route.calls.last.request.headers


@pytest.mark.parametrize(
    ("body", "kind", "output"),
    [
        (b'{"output": null}', "output", None),
        (b'{"output": 1, "error": null}', "output", 1),
        (b'{"output": 1, "more": 2}', "output", {"output": 1, "more": 2}),
        (b'{"error": "text"}', "output", {"error": "text"}),
        (b'{"error": {}}', "failed", None),
        (b"[" * 500 + b"]" * 500, "output", "[" * 500 + "]" * 500),
        (b'"\\u0000"', "output", '"\\u0000"'),
        (b"{'a': 1}", "output", "{'a': 1}"),
    ],
)
def test_odd_answers_have_one_meaning(body: bytes, kind: str, output: object) -> None:
    attempt = read_answer("it", 200, {}, body, False, 1000)
    assert (attempt.kind, attempt.output) == (kind, output)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("-1", None), ("soon", None), ("", None), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0), ("9" * 12, None)],
)
def test_retry_after_is_read_in_both_forms(header: str, seconds: float | None) -> None:
    assert read_answer("it", 429, {"retry-after": header}, b"", False, 1000).retry_after_s == seconds


async def test_invoke_calls_once_outside_a_run(server: ToolServer) -> None:
    bench = Bench.make()
    await bench.service.create(ME, spec("adds", server.url("/add"), parameters={**ADD, "required": ["a", "b"]}))
    answer = await bench.service.invoke(ME, "adds", {"a": 1, "b": 2}, idempotency_key="k")
    assert (answer["ok"], answer["data"], answer["status"]) == (True, 3, "success")
    wrong = await bench.service.invoke(ME, "adds", {"a": 1})
    assert (wrong["ok"], wrong["status"]) == (False, "error")
    await bench.service.invoke(ME, "adds", {"a": 1, "b": 2}, idempotency_key="k")
    mine = [effect for effect in server.effects() if effect["tool"] == "adds"]
    assert len(mine) == 2
    assert len({effect["idempotency_key"] for effect in mine}) == 1
    await bench.http.aclose()


@pytest.mark.parametrize("value", [2**64, "\ud800", ["fine"]])
async def test_arguments_that_json_cannot_carry_are_refused_and_not_sent(server: ToolServer, value: object) -> None:
    bench = Bench.make()
    bound = await bench.bound(spec("it", server.url("/echo"), parameters={"type": "object", "properties": {"v": {}}}))
    asked = call("it", {"v": value})
    bound.facts(asked)
    outcome = await ran(bound.run(asked))
    sendable = isinstance(value, list)
    assert (outcome.status, len(bench.journal.dispatches)) == ("success" if sendable else "error", int(sendable))
    await bench.http.aclose()


async def test_a_fault_of_ours_while_sending_leaves_the_outcome_open_and_the_run_alive() -> None:
    def breaks(_request: httpx.Request) -> httpx.Response:
        raise RuntimeError("secret")

    bench = Bench.make()
    guard = EgressGuard()
    http = HttpToolClient(guard, transport=httpx.MockTransport(breaks))
    bench.service = ToolService(MemoryRegistry(), MemorySecrets(), bench.service._plugins, guard, http)
    outcome = await ran((await bench.bound(spec("it"))).run(call("it", {})))
    assert (outcome.status, "secret" in str(outcome)) == ("unknown", False)


async def test_a_name_that_turns_private_after_registration_is_refused_at_the_call(server: ToolServer) -> None:
    bench = Bench.make(allow=())

    def rebound(host: str, port: int, *_: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    guard = EgressGuard(resolver=rebound)
    bench.service = ToolService(bench.registry, bench.secrets, bench.service._plugins, guard, HttpToolClient(guard))
    before = server.stats()["connections"]
    outcome = await ran((await bench.bound(spec("it", f"http://rebound.example:{server.port}/ok"))).run(call("it", {})))
    assert outcome.error is not None
    assert (outcome.status, outcome.error["code"], outcome.error["state"]) == ("error", "egress_refused", "failed")
    assert server.stats()["connections"] == before + 1
