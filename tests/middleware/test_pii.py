"""The middleware `pii`: what it finds, what it puts in its place, and what nobody gets to see."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.middleware.detectors import BUILT_IN, Strategy, built_in, own
from app.runs.middleware.pii import PiiKind, PiiSpec, _Held, _Pii  # pyright: ignore[reportPrivateUsage]
from tests.agent_loop.support import Call, seen
from tests.middleware.support import Model, events, played
from tests.support.bodies import run_body, scripted
from tests.support.chat_completions import ChatCompletionsServer, says

pytestmark = pytest.mark.anyio


def pii(kind: str, strategy: str = "redact", **more: object) -> dict[str, object]:
    return {"name": "pii", "config": {"pii_type": kind, "strategy": strategy, **more}}


OUTPUT: dict[str, Any] = {"apply_to_input": False, "apply_to_output": True}


@pytest.mark.parametrize(
    ("config", "text", "shown"),
    [
        pytest.param(pii("email"), "write to a.b@example.com now", "write to [REDACTED_EMAIL] now", id="B-271"),
        pytest.param(pii("email", "hash"), "write to a.b@example.com now", "write to <email_hash:a6f1bad1> now", id="B-273"),
        pytest.param(pii("credit_card", "mask"), "5105-1051-0510-5100 and 1234-5678-9012-3456",
                     "****-****-****-5100 and 1234-5678-9012-3456", id="B-275"),
        pytest.param(pii("ip", "mask"), "192.168.1.100 and 999.1.1.1", "*.*.*.100 and 999.1.1.1", id="B-276"),
        pytest.param(pii("url"), "see https://user:pw@example.com/x?y=1 and www.example.org/z",
                     "see [REDACTED_URL] and [REDACTED_URL]", id="B-277"),
        pytest.param(pii("api_key", detector="sk-[A-Za-z0-9]+"), "key sk-abc123DEF456 end", "key [REDACTED_API_KEY] end", id="B-279"),
        pytest.param(pii("email"), "邮箱zhang@example.com。电话", "邮箱[REDACTED_EMAIL]。电话", id="B-287"),
    ],
)  # fmt: skip
async def test_the_model_does_not_see_what_users_should_not_have_said(
    client: httpx.AsyncClient, config: dict[str, object], text: str, shown: str
) -> None:
    """B-287: the peer does not see an address right beside Chinese text. What the user said stays stored as it was."""
    async with Model("ok") as model:
        run = await played(client, model, [config], text=text)
        assert seen(model.requests[0]) == [("user", shown)]
    assert (await run.said())[0] == ("user", shown)
    assert run.answer == "ok"
    stored = (await client.get(f"/threads/{run.run['thread_id']}/state")).json()["values"]["messages"]
    assert stored[0]["content"] == text


async def test_a_part_of_a_message_is_read_too_B_286(client: httpx.AsyncClient) -> None:
    parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a@b.com"}]}]}
    async with Model("ok") as model:
        await played(client, model, [pii("email")], text=parts)
        assert seen(model.requests[0]) == [("user", [{"type": "text", "text": "[REDACTED_EMAIL]"}])]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"pii_type": "foo"}, 'Unknown PII type: foo. Must be one of ["email",'),
        ({"pii_type": "foo", "detector": "("}, "regular expression"),
        ({"pii_type": "foo", "detector": "(a+)+$"}, "exponential"),
        ({"pii_type": "foo", "detector": "a*"}, "empty text"),
        ({"pii_type": "email", "strategy": "shout"}, "redact"),
        ({"pii_type": "email", "sorategy": "mask"}, "unknown field"),
        ({}, "required"),
    ],
    ids=["B-280", "none", "catastrophic", "empty", "strategy", "field", "nothing"],
)
async def test_a_config_that_cannot_be_used_is_refused(
    client: httpx.AsyncClient, config: dict[str, object], says: str
) -> None:
    entry = {"name": "pii", "config": config}
    refused = await client.post("/runs", json=run_body(scripted({"content": "x"}), agent={"middleware": [entry]}))
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["pointer"].startswith("/agent/middleware/0/config")
    assert says in error["detail"]


async def test_each_type_may_be_there_once(client: httpx.AsyncClient) -> None:
    async with Model("ok") as model:
        await played(client, model, [pii("email"), pii("ip")], text="a@b.com 1.2.3.4")
        assert seen(model.requests[0]) == [("user", "[REDACTED_EMAIL] [REDACTED_IP]")]
    body = run_body(scripted({"content": "x"}), agent={"middleware": [pii("email"), pii("email", "mask")]})
    assert (await client.post("/runs", json=body)).json()["code"] == "duplicate_middleware"


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_an_answer_is_neither_streamed_nor_stored_as_it_was_B_281(client: httpx.AsyncClient, size: int) -> None:
    said = "Hello, mail x.long.name@sub.example.com, 或者y@z.org。 Bye."
    kept = "Hello, mail [REDACTED_EMAIL], 或者[REDACTED_EMAIL]。 Bye."
    model = scripted({"content": said, "chunk_size": size})
    body = run_body(model, agent={"middleware": [pii("email", **OUTPUT)]})
    run = (await client.post("/runs/wait", json=body)).json()
    data = await events(client, run)
    spoken = [event["data"]["delta"]["text"] for event in data if event["event"] == "output"]
    assert "".join(spoken) == kept
    assert len(spoken) > 1 or size > 3
    assert run["output"] == {"output": kept}
    everything = json.dumps([data, run, (await client.get(f"/threads/{run['thread_id']}/state")).json()])
    assert "x.long" not in everything
    assert "y@z" not in everything


async def test_what_a_tool_gives_is_read_before_the_model_sees_it_B_282(client: httpx.AsyncClient) -> None:
    results: dict[str, Any] = {"apply_to_input": False, "apply_to_tool_results": True}
    async with Model([("c1", "echo", {"x": "q@w.com"})], "ok") as model:
        run = await played(client, model, [pii("email", **results)])
        assert seen(model.requests[1])[-1] == ("tool", "echo:[REDACTED_EMAIL]", "c1")
    step = await run.step()
    assert (step["observation"], step["envelope"]["data"]) == ("echo:[REDACTED_EMAIL]",) * 2
    assert step["action"]["tool_input"] == {"x": "q@w.com"}


async def test_the_arguments_of_calls_are_output_too_B_283(client: httpx.AsyncClient) -> None:
    """The peer leaves them as they are. They can be left here as well."""
    made: list[Call] = [("c1", "echo", {"x": "q@w.com"})]
    cases: list[tuple[dict[str, Any], str]] = [
        (OUTPUT, "[REDACTED_EMAIL]"),
        ({**OUTPUT, "apply_to_tool_calls": False}, "q@w.com"),
    ]
    for more, ran in cases:
        async with Model(("calling", made), "ok") as model:
            run = await played(client, model, [pii("email", **more)])
        step = await run.step()
        assert step["observation"] == f"echo:{ran}"
        leaked = "q@w.com" in json.dumps(await events(client, run.run))
        assert leaked is (ran == "q@w.com")


@pytest.mark.parametrize("where", ["input", "output", "tool_results"])
async def test_what_is_to_be_blocked_ends_the_run(client: httpx.AsyncClient, where: str) -> None:
    more: dict[str, Any] = {"apply_to_input": False, f"apply_to_{where}": True}
    config = pii("email", "block", **more)
    async with Model([("c1", "echo", {"x": "q@" if where != "tool_results" else "q@w.com"})], "mail x@y.com") as model:
        run = await played(client, model, [config], text="a@b.com")
        assert run.model_calls == {"input": 0, "output": 2, "tool_results": 1}[where]
    assert (run.run["status"], run.run["error"]["code"]) == ("error", "pii_detected")
    data = json.dumps(await events(client, run.run))
    assert "x@y.com" not in data
    if where == "tool_results":
        assert "echo:q@w.com" not in data


async def test_a_text_agent_is_read_as_well(client: httpx.AsyncClient) -> None:
    async with ChatCompletionsServer([says("Final Answer: mail x@y.com")]) as server:
        body = run_body(
            {"provider": "openai", "model": "m", "base_url": server.base_url}, "echo", text="I am a@b.com",
            agent={"type": "react", "middleware": [pii("email", apply_to_output=True)]},
        )  # fmt: skip
        run = (await client.post("/runs/wait", json=body)).json()
        assert b"a@b.com" not in server.requests[0].body
    assert run["output"] == {"output": "mail [REDACTED_EMAIL]"}


@pytest.mark.parametrize(
    ("kind", "value", "form"),
    [
        ("email", "john@mail.example.com", "john@****.com"),
        ("credit_card", "4111111111111111", "************1111"),
        ("credit_card", "4111 1111 1111 1111", "**** **** **** 1111"),
        ("ip", "10.0.0.1", "*.*.*.1"),
        ("ip", "2001:db8::1", "****"),
        ("mac_address", "00:1a:2B:3c:4d:5e", "**:**:**:**:**:5e"),
        ("url", "https://example.com/a?b=c", "[MASKED_URL]"),
    ],
)
def test_a_masked_value_keeps_what_people_know_it_by(kind: str, value: str, form: str) -> None:
    for before, after in (("", ""), ("see ", "."), ("看", "。"), ("(", ")")):
        assert built_in(kind).replaced(f"{before}{value}{after}", "mask") == f"{before}{form}{after}"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("email", "a@b"), ("email", "@b.com"), ("credit_card", "4111111111111112"), ("credit_card", "1" * 12),
        ("ip", "1.2.3"), ("ip", "12:30"), ("ip", "std::vector"), ("mac_address", "00:1a:2b:3c:4d"), ("url", "http"),
    ],
)  # fmt: skip
def test_what_only_looks_like_it_is_left(kind: str, text: str) -> None:
    assert built_in(kind).replaced(text, "redact") == text


PARTS = st.sampled_from(
    ["a.b@example.com", "x@y", "@", ".", " ", "，", "4111 1111 1111 1111", "4111", "-", "192.168.0.1", "::1", "https://e.com/x", "www.", "00:1a:2b:3c:4d:5e", "好", "z"]
)  # fmt: skip


@given(st.lists(PARTS, max_size=12).map("".join), st.lists(st.integers(1, 9), max_size=30), st.sampled_from(BUILT_IN))
def test_a_stream_says_what_the_whole_text_would_say(text: str, cuts: list[int], kind: str) -> None:
    spec = PiiSpec(pii_type=kind, apply_to_output=True)
    held, spoken, at = _Held(_Pii(spec, built_in(kind))), list[str](), 0
    for cut in (*cuts, len(text) + 1):
        if piece := text[at : at + cut]:
            spoken.append(held.feed(piece))
        at += cut
    assert "".join(spoken) + held.rest() == built_in(kind).replaced(text, "redact")


@given(st.text(max_size=300), st.sampled_from(["redact", "mask", "hash"]), st.sampled_from(BUILT_IN))
def test_what_was_replaced_holds_nothing_more_to_find(text: str, strategy: Strategy, kind: str) -> None:
    detector = built_in(kind)
    if strategy == "redact":
        assert not detector.found_in(detector.replaced(text, strategy))


def test_a_long_text_is_looked_at_in_time_whatever_the_pattern() -> None:
    text = "a" * 200_000
    assert own("x", r"[a-z]+@").replaced(text, "redact") == text
    for kind in BUILT_IN:
        assert built_in(kind).replaced(text, "redact") == text
        assert built_in(kind).replaced("1" * 200_000, "redact") == "1" * 200_000


def test_the_kind_tells_its_config() -> None:
    schema: dict[str, Any] = dict(PiiKind().config_schema)
    assert {"pii_type", "strategy", "detector", "apply_to_input", "apply_to_output", "apply_to_tool_results"} <= set(
        schema["properties"]
    )
