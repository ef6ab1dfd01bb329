"""The Chat Completions mapping: requests as bytes, answers from every server's kind of chunks."""

import json
from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.ports import (
    Delta,
    ModelAnswer,
    ModelRequest,
    ProposedCall,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolDefinition,
)
from app.core.errors import ModelError
from app.core.json import encode
from app.core.messages import Message, ToolCall
from app.core.usage import TokenUsage
from app.models.openai_wire import Assembler, decode_chunk, encode_message, encode_request

TOOL = ToolDefinition("find", "Finds.", {"type": "object", "properties": {"q": {"type": "string"}}})
HISTORY = [
    Message("system", "Be brief."),
    Message("user", [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]),
    Message("assistant", None, (ToolCall("c1", "find", {"q": "é"}), ToolCall("c2", "find", '{"q": tru'))),
    Message("tool", "found", tool_call_id="c1", name="find"),
    Message("tool", "", tool_call_id="c2", name="find"),
    Message("assistant", "", refusal="I will not."),
]


def sent(request: ModelRequest, params: Mapping[str, object] | None = None) -> dict[str, object]:
    return cast("dict[str, object]", json.loads(encode_request("m", request, params or {})))


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_request_is_what_chat_completions_expects() -> None:
    assert sent(ModelRequest(HISTORY, [TOOL]), {"temperature": 0, "max_tokens": 5}) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "temperature": 0,
        "max_tokens": 5,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q":"é"}'}},
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "find", "arguments": '{"invalid_json":"{\\"q\\": tru"}'},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
            {"role": "tool", "tool_call_id": "c2", "content": ""},
            {"role": "assistant", "content": "I will not."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "find",
                    "description": "Finds.",
                    "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
                },
            }
        ],
    }


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("find", {"type": "function", "function": {"name": "find"}}),
        ({"type": "allowed_tools"}, {"type": "allowed_tools"}),
        (None, None),
    ],
)
def test_tool_choice_takes_modes_names_and_objects(choice: str | Mapping[str, object] | None, expected: object) -> None:
    assert sent(ModelRequest(HISTORY, [TOOL], tool_choice=choice)).get("tool_choice") == expected


def test_without_tools_nothing_about_tools_is_sent() -> None:
    body = sent(ModelRequest(HISTORY, tool_choice="required", parallel_tool_calls=False))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()


def test_params_cannot_take_over_the_request() -> None:
    params: dict[str, object] = {"messages": [], "model": "other", "stream": False, "tools": [], "n": 5, "seed": 1}
    assert sent(ModelRequest(HISTORY, [TOOL]), params) == sent(ModelRequest(HISTORY, [TOOL]), {"seed": 1})


def test_a_null_param_leaves_out_what_a_server_refuses() -> None:
    params = {"stream_options": None, "parallel_tool_calls": None, "tool_choice": None}
    body = sent(ModelRequest(HISTORY, [TOOL]), params)
    assert not params.keys() & body.keys()


def test_messages_and_tools_are_encoded_once() -> None:
    request = ModelRequest(HISTORY, [TOOL])
    encode_request("m", request, {})
    before = [encode_message(message) for message in HISTORY]
    encode_request("m", request, {})
    assert all(encode_message(message) is wire for message, wire in zip(HISTORY, before, strict=True))


# --- answers ----------------------------------------------------------------------------------------------------------


def chunk(delta: object, finish: str | None = None) -> dict[str, object]:
    return {"model": "srv", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def fragment(**fields: object) -> dict[str, object]:
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return {**fields, "function": function}


def assembled(*chunks: Mapping[str, object], done: bool = False) -> tuple[list[Delta], ModelAnswer]:
    assembler = Assembler()
    deltas = [delta for item in chunks for delta in assembler.feed(item)]
    return deltas, assembler.finish(done=done)


def calls_of(*fragments: list[dict[str, object]], finish: str = "tool_calls") -> tuple[ProposedCall, ...]:
    chunks = [chunk({"tool_calls": item}) for item in fragments]
    deltas, answer = assembled(*chunks, chunk({}, finish))
    # What a reader of the deltas puts together is what the answer says.
    told: dict[int, list[ToolCallDelta]] = {}
    for delta in deltas:
        assert isinstance(delta, ToolCallDelta)
        told.setdefault(delta.index, []).append(delta)
    for index, parts in told.items():
        call = answer.calls[index]
        assert (parts[0].id, parts[0].name) == (call.provider_id, call.name)
        assert "".join(part.args for part in parts) == call.raw_args
        assert all(part.id is None and part.name is None for part in parts[1:])
    return answer.calls


ONE = ProposedCall("find", {"q": "x"}, "c1", '{"q":"x"}')
TWO = ProposedCall("find", {"q": "y"}, "c2", '{"q":"y"}')
WHOLE_1, WHOLE_2 = '{"q":"x"}', '{"q":"y"}'


def test_interleaved_fragments_go_by_index() -> None:
    assert calls_of(
        [fragment(index=0, id="c1", name="find", arguments="")],
        [fragment(index=1, id="c2", name="find", arguments='{"q"')],
        [fragment(index=0, arguments='{"q":')],
        [fragment(index=1, arguments=':"y"}'), fragment(index=0, arguments='"x"}')],
    ) == (ONE, TWO)


def test_id_and_name_may_be_repeated_in_every_fragment() -> None:
    assert calls_of(
        [fragment(index=0, id="c1", name="find", arguments='{"q":')],
        [fragment(index=0, id="c1", name="find", arguments='"x"}')],
        [fragment(index=0, id="c1", name="find", arguments="")],
    ) == (ONE,)


def test_a_server_may_give_index_zero_to_every_call() -> None:
    assert calls_of(
        [fragment(index=0, id="c1", name="find", arguments=WHOLE_1)],
        [fragment(index=0, id="c2", name="find", arguments='{"q":')],
        [fragment(index=0, arguments='"y"}')],
    ) == (ONE, TWO)


def test_index_zero_without_ids_is_told_apart_by_whole_arguments() -> None:
    calls = calls_of(
        [fragment(index=0, name="find", arguments=WHOLE_1)], [fragment(index=0, name="find", arguments=WHOLE_2)]
    )
    assert [call.args for call in calls] == [{"q": "x"}, {"q": "y"}]


def test_fragments_without_an_index_continue_the_last_call() -> None:
    assert calls_of(
        [fragment(id="c1", name="find", arguments='{"q":')],
        [fragment(arguments='"x"}')],
        [fragment(id="c2", name="find", arguments='{"q":')],
        [fragment(id="c2", arguments='"y"}')],
    ) == (ONE, TWO)


def test_whole_calls_without_index_or_id_in_one_chunk_are_calls_of_their_own() -> None:
    calls = calls_of([fragment(name="find", arguments=WHOLE_1), fragment(name="find", arguments=WHOLE_2)])
    assert [call.args for call in calls] == [{"q": "x"}, {"q": "y"}]
    assert [call.args for call in calls_of([fragment(name="a"), fragment(name="a")])] == [{}, {}]


def test_arguments_may_be_an_object_and_the_call_whole() -> None:
    assert calls_of([fragment(index=0, id="c1", name="find", arguments={"q": "x"})]) == (ONE,)


def test_a_name_that_comes_late_is_told_with_the_first_delta() -> None:
    assert calls_of(
        [fragment(index=0, id="c1", arguments='{"q":')], [fragment(index=0, name="find", arguments='"x"}')]
    ) == (ONE,)


@pytest.mark.parametrize("nothing", ["", " ", "null", "{}", None])
def test_no_arguments_are_an_empty_object(nothing: str | None) -> None:
    (call,) = calls_of([fragment(index=0, id="c1", name="t", arguments=nothing)])
    assert (call.args, call.error) == ({}, None)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ('{"q": tru', "not valid JSON"),
        ("[1]", "an array"),
        ('"x"', "a text"),
        ("5", "a number"),
        ('{"a": NaN}', "not valid JSON"),
        ('{"a": "\\u0000"}', "U+0000"),
        ('{"a": 18446744073709551616}', "64 bits"),
        ('{"a":' * 100 + "1" + "}" * 100, "cannot be used"),
        ('{"a":' * 5000, "not valid JSON"),
    ],
)
def test_arguments_that_are_no_usable_object_say_what_to_do(raw: str, words: str) -> None:
    (call,) = calls_of([fragment(index=0, id="c1", name="t", arguments=raw)])
    assert (call.args, call.raw_args, call.name) == (None, raw, "t")
    assert words in (call.error or "")
    assert "Call the tool again" in (call.error or "")


def test_arguments_cut_at_the_token_limit_say_so() -> None:
    (call,) = calls_of([fragment(index=0, id="c1", name="t", arguments='{"q":"x')], finish="length")
    assert call.args is None
    assert "token limit" in (call.error or "")


def test_a_call_without_a_name_is_kept_as_an_error() -> None:
    (call,) = calls_of([fragment(index=0, id="c1", arguments="{}")])
    assert (call.name, call.args) == ("", None)
    assert "no tool name" in (call.error or "")


def test_the_old_function_call_is_a_call() -> None:
    _, answer = assembled(
        chunk({"function_call": {"name": "find", "arguments": '{"q":'}}),
        chunk({"function_call": {"arguments": '"x"}'}}),
        chunk({}, "function_call"),
    )
    assert answer.calls == (ProposedCall("find", {"q": "x"}, None, WHOLE_1),)
    assert answer.finish_reason == "tool_calls"


def test_a_body_that_was_not_streamed_is_one_chunk() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": WHOLE_1}}]
    message = {"role": "assistant", "content": "So:", "tool_calls": calls}
    body = {"model": "srv", "choices": [{"message": message, "finish_reason": "tool_calls"}]}
    assert assembled({**body, "usage": {"prompt_tokens": 3}})[1] == ModelAnswer(
        "So:", (ONE,), TokenUsage(3, 0, 3), "tool_calls", model="srv"
    )


def test_text_reasoning_refusal_and_usage_come_together() -> None:
    deltas, answer = assembled(
        chunk({"role": "assistant"}),
        chunk({"reasoning_content": "hm"}),
        chunk({"reasoning": " so", "content": None}),
        chunk({"content": "Yes"}),
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "!"}]}, {"text": " it is"}]}),
        {**chunk({"refusal": "but no"}, "stop"), "usage": None},
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 8}},
    )
    assert deltas == [
        ReasoningDelta("hm"),
        ReasoningDelta(" so"),
        TextDelta("Yes"),
        ReasoningDelta("!"),
        TextDelta(" it is"),
    ]
    assert answer == ModelAnswer(
        "Yes it is", (), TokenUsage(5, 2, 8), "stop", reasoning="hm so!", refusal="but no", model="srv"
    )


@pytest.mark.parametrize(
    ("said", "meant"), [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("eos", "stop")]
)
def test_finish_reasons_are_mapped(said: str, meant: str) -> None:
    assert assembled(chunk({"content": "x"}, said))[1].finish_reason == meant


def test_an_answer_with_calls_finishes_for_tool_calls_whatever_was_said() -> None:
    call = fragment(index=0, id="c1", name="find", arguments=WHOLE_1)
    assert assembled(chunk({"tool_calls": [call]}, "stop"))[1].finish_reason == "tool_calls"
    assert assembled(chunk({"content": "x"}, "tool_calls"))[1].finish_reason == "stop"


def test_an_emoji_cut_in_half_is_whole_again() -> None:
    deltas, answer = assembled(
        *(decode_chunk(json.dumps(chunk({"content": text}))) for text in ("a\ud83d", "\ude42b", "\x00\ud83d")),
        done=True,
    )
    assert answer.content == "a🙂b\ufffd"
    assert deltas == [TextDelta("a"), TextDelta("🙂b"), TextDelta("\ufffd")]


def test_an_error_object_is_a_model_error_without_the_key() -> None:
    with pytest.raises(ModelError) as raised:
        Assembler(secret="hunter2-key").feed(
            {"error": {"message": "hunter2-key is slow", "code": "rate_limit_exceeded"}}
        )
    assert raised.value.code == "model_rate_limited"
    assert "hunter2" not in raised.value.message


_ANY_TEXT = st.text(max_size=4) | st.sampled_from(["\x00", "\ud83d", "\ude42", "a\ud83d"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | _ANY_TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["index", "id", "function", "name", "arguments", "content", "tool_calls", "text", "type"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(items=st.lists(st.fixed_dictionaries({"delta": _JSON, "usage": _JSON}), max_size=4), done=st.booleans())
def test_chunks_of_any_shape_give_an_answer_or_a_model_error(items: list[dict[str, object]], *, done: bool) -> None:
    chunks = [{**chunk(item["delta"]), "usage": item["usage"]} for item in items]
    try:
        deltas, answer = assembled(*chunks, done=done)
        encode((deltas, answer))
        assert "\x00" not in answer.content + answer.reasoning + "".join(
            call.name + call.raw_args for call in answer.calls
        )
    except ModelError as error:
        assert error.code in {"model_empty_response", "model_stream_broken"}  # noqa: PT017


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=3), st.lists(st.integers(1, 7), min_size=1))
def test_arguments_cut_anywhere_are_put_together(args: dict[str, str], sizes: list[int]) -> None:
    raw = json.dumps(args, ensure_ascii=False)
    pieces, at = [fragment(index=0, id="c1", name="t", arguments="")], 0
    for size in [*sizes, len(raw)]:
        pieces.append(fragment(index=0, arguments=raw[at : at + size]))
        at += size
    (call,) = calls_of(*([piece] for piece in pieces))
    usable = not any("\x00" in text for text in (*args, *args.values()))
    assert call.args == (args if usable else None)
