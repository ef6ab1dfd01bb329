"""The Anthropic mapping of answers: streams and whole messages become one answer, whatever their blocks are."""

import json
from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.ports import (
    Delta,
    ModelAnswer,
    ProposedCall,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from app.core.errors import ModelError
from app.core.usage import TokenUsage
from app.models.anthropic_answer import Assembler
from app.models.tokens import read_usage
from tests.support.anthropic_messages import (
    SIGNATURE,
    Block,
    answer_events,
    block_events,
    error_body,
    message_start,
    redacted,
    text,
    thinking,
    tool_use,
    whole,
)
from tests.support.hang import no_hang

SEARCH: Block = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "é"}}
FOUND: Block = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"url": "https://x"}]}


def assembled(*told: Mapping[str, object]) -> tuple[list[Delta], ModelAnswer]:
    assembler = Assembler()
    deltas = [delta for event in told for delta in assembler.feed(event)]
    return deltas, assembler.finish()


def answer(*blocks: Block, **options: object) -> ModelAnswer:
    return assembled(*answer_events(*blocks, **options))[1]  # pyright: ignore[reportArgumentType]


def failure(*told: Mapping[str, object]) -> ModelError:
    with pytest.raises(ModelError) as raised:
        assembled(*told)
    return raised.value


def test_a_stream_of_all_kinds_of_blocks_is_one_answer() -> None:
    blocks = (
        thinking("Let me see."),
        redacted(),
        text("I look."),
        tool_use("toolu_1", "find", {"q": "é"}),
        SEARCH,
        FOUND,
        tool_use("toolu_2", "now", {}),
    )
    deltas, got = assembled(*answer_events(*blocks))
    assert got == ModelAnswer(
        "I look.",
        (
            ProposedCall("find", {"q": "é"}, "toolu_1", '{"q": "é"}'),
            ProposedCall("now", {}, "toolu_2", "{}"),
        ),
        TokenUsage(9, 3, 12),
        "tool_calls",
        reasoning="Let me see.",
        model="claude-test",
        provider_blocks={
            "anthropic": [
                {"type": "thinking", "thinking": "Let me see.", "signature": SIGNATURE},
                redacted(),
                {"type": "text", "text": "I look."},
                0,
                SEARCH,
                FOUND,
                1,
            ]
        },
    )
    assert deltas == [
        *(ReasoningDelta(piece) for piece in ("Let m", "e see", ".")),
        *(TextDelta(piece) for piece in ("I loo", "k.")),
        ToolCallDelta(0, "toolu_1", "find", ""),
        *(ToolCallDelta(0, None, None, piece) for piece in ('{"q":', ' "é"}')),
        ToolCallDelta(1, "toolu_2", "now", ""),
        ToolCallDelta(1, None, None, "{}"),
    ]


def test_a_whole_message_is_the_same_answer_as_its_stream() -> None:
    blocks = (thinking("hm"), text("I look."), tool_use("toolu_1", "find", {"q": "é"}), SEARCH)
    body = json.loads(whole(*blocks, stop="tool_use").body)
    streamed, unstreamed = answer(*blocks), assembled(body)[1]
    raw = unstreamed.calls[0].raw_args
    assert json.loads(raw) == {"q": "é"}
    assert ModelAnswer(
        unstreamed.content, streamed.calls, unstreamed.tokens, unstreamed.finish_reason, unstreamed.reasoning,
        model=unstreamed.model, provider_blocks=unstreamed.provider_blocks,
    ) == streamed  # fmt: skip
    assert unstreamed.calls[0].args == streamed.calls[0].args


@pytest.mark.parametrize("blocks", [(text("hi"),), (text("a"), tool_use("t", "f", {})), (tool_use("t", "f", {}),)])
def test_text_and_calls_alone_are_not_kept_twice(blocks: tuple[Block, ...]) -> None:
    assert answer(*blocks).provider_blocks is None


def test_text_after_a_call_keeps_its_place() -> None:
    got = answer(tool_use("t", "f", {}), text("so"))
    assert got.provider_blocks == {"anthropic": [0, text("so")]}


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("refusal", "content_filter"),
        ("tool_use", "stop"),  # without a call there is nothing to do
        ("what_a_later_version_says", "stop"),
    ],
)
def test_why_an_answer_ended_is_told(stop: str, finish: str) -> None:
    assert answer(text("hi"), stop=stop).finish_reason == finish


def test_a_refused_answer_calls_nothing() -> None:
    got = answer(text("no"), thinking("x"), tool_use("t", "f", {}), stop="refusal")
    assert (got.content, got.calls, got.finish_reason) == ("no", (), "content_filter")
    assert got.provider_blocks == {"anthropic": [text("no"), thinking("x")]}


def test_cached_tokens_count_as_input_and_are_kept_apart() -> None:
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100, "output_tokens": 1}
    assert answer(text("hi"), usage=usage, output_tokens=7).tokens == TokenUsage(125, 7, 132, 100, 20)


def test_a_later_count_replaces_an_earlier_one_and_null_does_not() -> None:
    ending = {"input_tokens": 11, "cache_read_input_tokens": None, "output_tokens": 4}
    told = answer_events(text("hi"), usage={"input_tokens": 9, "cache_read_input_tokens": 2, "output_tokens": 1})
    told[-2]["usage"] = ending
    assert assembled(*told)[1].tokens == TokenUsage(13, 4, 17, 2)


def test_openais_cached_tokens_are_kept_apart_too() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}
    assert read_usage(usage) == TokenUsage(10, 1, 11, 8)
    assert read_usage({**usage, "prompt_tokens_details": {"cached_tokens": 99}}).cache_read_tokens == 10


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_any_size_of_deltas_gives_the_same_answer(sizes: list[int]) -> None:
    blocks = [thinking("größe 🙂"), text("é 🙂 end"), tool_use("t1", "f", {"q": "é 🙂"}), SEARCH]
    told = [message_start()]
    for index, block in enumerate(blocks):
        told += block_events(index, block, sizes[index % len(sizes)])
    told += answer_events(*blocks)[-2:]
    assert assembled(*told)[1] == answer(*blocks)


def test_arguments_cut_at_the_token_limit_are_never_used() -> None:
    told = answer_events(tool_use("t", "f", {"path": "/etc", "force": True}), stop="max_tokens")
    cut = [event for event in told if event["type"] not in ("content_block_stop",)]
    del cut[-3]  # the last fragment of the arguments
    (call,) = assembled(*cut)[1].calls
    assert call.args is None
    assert call.error is not None
    assert "token limit" in call.error


@pytest.mark.parametrize("args", ['{"a": 1', "[1]", '"x"', '{"a": 1} extra', '{"n": 1e400}'])
def test_arguments_that_are_no_object_say_what_is_wrong(args: str) -> None:
    (call,) = answer(tool_use("t", "f", args)).calls
    assert (call.args, call.raw_args) == (None, args)
    assert call.error


def test_arguments_given_at_the_start_of_a_block_are_taken() -> None:
    start = {"type": "content_block_start", "index": 0, "content_block": tool_use("t", "f", {"a": 1})}
    deltas, got = assembled(message_start(), start, {"type": "content_block_stop", "index": 0}, *answer_events()[-2:])
    assert got.calls[0].args == {"a": 1}
    assert "".join(delta.args for delta in deltas if isinstance(delta, ToolCallDelta)) == '{"a":1}'


def test_half_a_thought_is_not_kept() -> None:
    told = [message_start(), *block_events(0, text("so")), *block_events(1, thinking("let me"))[:-2]]
    got = assembled(*told, *answer_events(stop="max_tokens")[-2:])[1]
    assert (got.reasoning, got.provider_blocks) == ("let me", {"anthropic": [text("so")]})


def test_a_thought_that_is_not_shown_keeps_its_signature() -> None:
    assert answer(thinking(""), text("hi")).provider_blocks == {"anthropic": [thinking(""), text("hi")]}


def test_unknown_events_and_deltas_do_no_harm() -> None:
    later = [
        {"type": "ping"},
        {"type": "what_comes_later", "index": 0},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "lost"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"url": "x"}}},
        {"type": "content_block_delta", "index": 0, "delta": None},
        {},
    ]
    told = answer_events(text("hi"))
    assert assembled(*told[:3], *later, *told[3:])[1] == answer(text("hi"))


def test_a_new_beginning_forgets_the_old_one() -> None:
    assert assembled(message_start(), *answer_events(text("hi")))[1] == answer(text("hi"))


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ([], "model_empty_response"),
        ([{"type": "ping"}], "model_empty_response"),
        ([message_start()], "model_stream_broken"),
        (answer_events(text("hi"))[:-2], "model_stream_broken"),
        (answer_events(tool_use("t", "f", {"a": 1}))[:-4], "model_stream_broken"),
        ([error_body("overloaded_error")], "model_unavailable"),
        (answer_events({**SEARCH, "input": '{"a": '}), "model_invalid_response"),
        (answer_events({**FOUND, "content": "\x00"}), "model_invalid_response"),
        (answer_events({**FOUND, "content": "\ud800"}), "model_invalid_response"),
        (answer_events({**FOUND, "content": 2**80}), "model_invalid_response"),
        (answer_events(*[redacted()] * 5000), "model_invalid_response"),
        (answer_events(*[tool_use("t", "f", "{}")] * 1100), "model_invalid_response"),
    ],
)
def test_what_is_no_answer_has_its_code(told: list[Block], code: str) -> None:
    assert failure(*told).code == code


def test_a_signature_in_many_pieces_costs_a_linear_time() -> None:
    piece = {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "x" * 100}}
    told = block_events(0, thinking("t", ""))
    with no_hang():
        got = assembled(message_start(), *told[:-1], *[piece] * 200_000, told[-1], *answer_events()[-2:])[1]
    blocks = cast("Mapping[str, list[dict[str, str]]]", got.provider_blocks)
    assert len(blocks["anthropic"][0]["signature"]) == 20_000_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KINDS = st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message"]
)
BLOCKS = st.sampled_from([text("a"), thinking("b"), redacted(), tool_use("t", "f", {}), SEARCH, FOUND]) | JSON
DELTAS = (
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["text_delta", "input_json_delta", "thinking_delta", "signature_delta"]),
            "text": JSON, "partial_json": JSON, "thinking": JSON, "signature": JSON, "stop_reason": JSON,
        }
    )
    | JSON
)  # fmt: skip
EVENTS = st.fixed_dictionaries(
    {"type": KINDS}, optional={"index": JSON, "content_block": BLOCKS, "delta": DELTAS, "message": JSON,
                               "usage": JSON, "content": st.lists(BLOCKS, max_size=3) | JSON, "stop_reason": JSON},
)  # fmt: skip


@given(st.lists(EVENTS, max_size=8))
def test_nothing_that_a_server_says_is_worse_than_a_model_error(told: list[dict[str, object]]) -> None:
    try:
        got = assembled(*told)[1]
    except ModelError:
        return
    for block in (got.provider_blocks or {}).get("anthropic", ()):
        assert not isinstance(block, int) or block < len(got.calls)
