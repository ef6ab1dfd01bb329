"""The Anthropic mapping of requests: a conversation as the Messages API wants it, its markers, its caches."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.ports import ModelRequest, ToolDefinition
from app.core.json import decode, encode
from app.core.messages import Message, ToolCall
from app.models.anthropic_wire import beta_header, encode_blocks, encode_request, encode_tool

TOOL = ToolDefinition("find", "Finds.", {"type": "object", "properties": {"q": {"type": "string"}}})
OTHER = ToolDefinition("now", "", {})
HISTORY = [
    Message("system", "Be brief."),
    Message(
        "user",
        [
            {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
            {"type": "text", "text": ""},
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ],
    ),
    Message("assistant", "I look.", (ToolCall("c1", "find", {"q": "é"}), ToolCall("call|2.é", "find", '{"q": tru'))),
    Message("tool", "found", tool_call_id="c1", name="find"),
    Message("tool", "", tool_call_id="call|2.é", name="find"),
    Message("user", "and?"),
    Message("system", "Be kind."),
    Message("user", "please"),
    Message("assistant", None),
    Message("user", " \n"),
    Message("assistant", "", refusal="I will not."),
    Message("user", "bye"),
]
MAPPED = "call_90ac6ed9e04eca718bbc1399872ab562"
MARKER = {"type": "ephemeral"}


def sent(request: ModelRequest, params: Mapping[str, object] | None = None) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(encode_request("m", request, params or {})))


def turns(*messages: Message, **params: object) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", sent(ModelRequest(messages), params)["messages"])


def test_a_request_is_what_the_messages_api_expects() -> None:
    request = ModelRequest(HISTORY, [TOOL, OTHER])
    assert sent(request, {"temperature": 0, "thinking": {"type": "enabled", "budget_tokens": 1024}}) == {
        "model": "m",
        "max_tokens": 4096,
        "stream": True,
        "temperature": 0,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
        "tool_choice": {"type": "auto"},
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                    {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "find", "input": {"q": "é"}},
                    {"type": "tool_use", "id": MAPPED, "name": "find", "input": {"invalid_json": '{"q": tru'}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "found"},
                    {"type": "tool_result", "tool_use_id": MAPPED},
                    {"type": "text", "text": "and?"},
                    {"type": "text", "text": "please"},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "I will not."}]},
            {"role": "user", "content": [{"type": "text", "text": "bye"}]},
        ],
        "tools": [
            {
                "name": "find",
                "description": "Finds.",
                "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}},
            },
            {"name": "now", "input_schema": {"type": "object"}},
        ],
    }


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        ("auto", True, {"type": "auto"}),
        ("none", True, {"type": "none"}),
        ("none", False, {"type": "none"}),
        ("required", True, {"type": "any"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ("find", True, {"type": "tool", "name": "find"}),
        ({"type": "any"}, True, {"type": "any"}),
        ({"type": "function", "function": {"name": "find"}}, True, {"type": "tool", "name": "find"}),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
def test_tool_choice_takes_modes_names_and_objects(
    choice: str | Mapping[str, object] | None, parallel: bool, expected: object
) -> None:
    request = ModelRequest(HISTORY, [TOOL], tool_choice=choice, parallel_tool_calls=parallel)
    assert sent(request).get("tool_choice") == expected


def test_without_tools_nothing_about_tools_is_sent() -> None:
    body = sent(ModelRequest(HISTORY[:2], tool_choice="required", parallel_tool_calls=False))
    assert not {"tools", "tool_choice"} & body.keys()


def test_params_cannot_take_over_the_request() -> None:
    params: dict[str, object] = {
        "messages": [], "model": "other", "stream": False, "tools": [], "system": "x", "tool_choice": "any",
        "betas": ["b"], "anthropic_beta": "a", "top_k": 1, "max_tokens": 5,
    }  # fmt: skip
    request = ModelRequest(HISTORY, [TOOL])
    assert sent(request, params) == sent(request) | {"top_k": 1, "max_tokens": 5}


def test_the_api_is_always_given_a_limit_of_tokens() -> None:
    assert sent(ModelRequest(HISTORY), {"max_tokens": None})["max_tokens"] == 4096


@pytest.mark.parametrize(
    ("params", "header"),
    [
        ({}, None),
        ({"betas": []}, None),
        ({"anthropic_beta": "one"}, "one"),
        ({"betas": ["one", "two"]}, "one,two"),
        ({"betas": ["two"], "anthropic_beta": ["one"]}, "one,two"),
    ],
)
def test_betas_become_a_header(params: Mapping[str, object], header: str | None) -> None:
    assert beta_header(params) == header


def test_texts_to_stop_at_are_sent_unless_params_name_others() -> None:
    request = ModelRequest(HISTORY, stop=("\nObservation", "\n"))
    assert sent(request)["stop_sequences"] == ["\nObservation"]
    assert sent(request, {"stop_sequences": ["x"]})["stop_sequences"] == ["x"]
    assert "stop_sequences" not in sent(ModelRequest(HISTORY, stop=("\n",)))


def test_a_result_of_a_call_that_failed_says_so() -> None:
    calls = (ToolCall("a", "find", {}), ToolCall("b", "find", {}), ToolCall("c", "find", {}))
    results = (
        Message("tool", "found", tool_call_id="a"),
        Message("tool", "no such order", tool_call_id="b", status="error"),
        Message("tool", "", tool_call_id="c", status="error"),
    )
    history = (Message("user", "go"), Message("assistant", tool_calls=calls), *results)
    wanted = [
        {"type": "tool_result", "tool_use_id": "a", "content": "found"},
        {"type": "tool_result", "tool_use_id": "b", "content": "no such order", "is_error": True},
        {"type": "tool_result", "tool_use_id": "c", "is_error": True},
    ]
    for _ in range(2):  # the second time from the messages' cache
        assert turns(*history)[2]["content"] == wanted


# --- the prompt cache -------------------------------------------------------------------------------------------------


def test_a_cache_marker_stands_on_the_last_block_of_each_part() -> None:
    body = sent(ModelRequest([*HISTORY[:6]], [TOOL, OTHER]), {"cache_control": MARKER})
    assert "cache_control" not in body
    assert [block.get("cache_control") for block in body["system"]] == [MARKER]
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, MARKER]
    marks = [[block.get("cache_control") for block in turn["content"]] for turn in body["messages"]]
    assert marks == [[{"type": "ephemeral", "ttl": "1h"}, None, None], [None] * 3, [None, None, MARKER]]


def test_a_part_keeps_a_marker_of_its_own() -> None:
    part: dict[str, object] = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    picture: dict[str, object] = {"type": "image_url", "image_url": {"url": "https://x"}, "cache_control": MARKER}
    (turn,) = turns(Message("user", [picture, part]), cache_control=MARKER)
    assert [block["cache_control"] for block in turn["content"]] == [MARKER, part["cache_control"]]


def test_a_marker_of_one_request_is_not_in_the_next() -> None:
    messages = [Message("user", "one")]
    before = sent(ModelRequest(messages, [TOOL]))
    sent(ModelRequest(messages, [TOOL]), {"cache_control": MARKER})
    assert sent(ModelRequest(messages, [TOOL])) == before


def test_a_marker_never_stands_on_thinking() -> None:
    own: dict[str, object] = {"type": "thinking", "thinking": "x", "signature": "s"}
    blocks: list[dict[str, object] | str] = [{"type": "text", "text": "a"}, own]
    message = Message("assistant", "a", provider_blocks={"anthropic": blocks})
    (turn,) = turns(message, cache_control=MARKER)
    assert turn["content"] == [{"type": "text", "text": "a", "cache_control": MARKER}, own]


# --- turns ------------------------------------------------------------------------------------------------------------


def test_results_stand_first_in_the_turn_after_the_calls() -> None:
    (_, turn) = turns(
        Message("assistant", None, (ToolCall("a", "t", {}),)),
        Message("user", "wait"),
        Message("tool", "done", tool_call_id="a"),
    )
    assert [block["type"] for block in turn["content"]] == ["tool_result", "text"]


def test_a_result_in_parts_keeps_them() -> None:
    parts: list[dict[str, object]] = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    (turn,) = turns(Message("tool", parts, tool_call_id="a"))
    assert turn["content"][0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    ]


@pytest.mark.parametrize(("said", "expected"), [("so \n", ["hi", "so"]), (" \n", ["hi"])])
def test_an_answer_to_go_on_with_does_not_end_in_white_space(said: str, expected: list[str]) -> None:
    got = turns(Message("user", "hi"), Message("assistant", said))
    assert [block["text"] for turn in got for block in turn["content"]] == expected


def test_a_name_that_the_model_made_up_is_made_fit_to_be_sent() -> None:
    (turn,) = turns(Message("assistant", None, (ToolCall("a", "no such.tool!", {}), ToolCall("b", "", {}))))
    assert [block["name"] for block in turn["content"]] == ["no_such_tool_", "_"]


MESSAGES = st.lists(
    st.one_of(
        st.builds(Message, st.just("user"), st.text(max_size=3)),
        st.builds(Message, st.just("system"), st.text(max_size=3)),
        st.builds(
            Message, st.just("assistant"), st.text(max_size=3), st.just(()) | st.just((ToolCall("a b", "t", {}),))
        ),
        st.builds(Message, st.just("tool"), st.text(max_size=3), tool_call_id=st.just("a b")),
    ),
    max_size=8,
)


@given(MESSAGES, st.booleans())
def test_user_and_assistant_always_take_turns_and_no_text_is_empty(messages: list[Message], marked: bool) -> None:
    body = sent(ModelRequest(messages), {"cache_control": MARKER} if marked else {})
    roles = [turn["role"] for turn in body["messages"]]
    assert all(first != second for first, second in pairwise(roles))
    blocks = [block for turn in body["messages"] for block in turn["content"]] + body.get("system", [])
    assert all(turn["content"] for turn in body["messages"])
    assert all(block["text"].strip() for block in blocks if block["type"] == "text")
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    ids += [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert all(re.fullmatch("[a-zA-Z0-9_-]+", call_id) for call_id in ids)
    assert len(set(ids)) <= 1


# --- the provider's own blocks ----------------------------------------------------------------------------------------

THOUGHT: dict[str, object] = {"type": "thinking", "thinking": "hm", "signature": "sig"}
OWN = Message(
    "assistant",
    "ok",
    (ToolCall("a", "t", {"n": 1}), ToolCall("b", "t", {})),
    provider_blocks={"anthropic": [THOUGHT, {"type": "text", "text": "ok"}, "a", {"type": "x", "y": [1]}, "b"]},
)


def test_own_blocks_go_back_in_their_order_with_the_calls_of_the_message() -> None:
    restored = Message.from_json(cast("dict[str, object]", decode(encode(OWN.to_json()))))
    assert restored == OWN
    (turn,) = turns(restored)
    assert turn["content"] == [
        THOUGHT,
        {"type": "text", "text": "ok"},
        {"type": "tool_use", "id": "a", "name": "t", "input": {"n": 1}},
        {"type": "x", "y": [1]},
        {"type": "tool_use", "id": "b", "name": "t", "input": {}},
    ]


def test_a_call_that_the_message_lost_is_gone_from_its_own_blocks_too() -> None:
    encode_blocks(OWN)  # the whole message's form is kept already
    (turn,) = turns(replace(OWN, tool_calls=OWN.tool_calls[1:], wire={}))
    assert [block.get("id") for block in turn["content"]] == [None, None, None, "b"]
    assert turn["content"][0] == THOUGHT


def test_blocks_of_another_provider_are_not_sent() -> None:
    (turn,) = turns(Message("assistant", "hi", provider_blocks={"other": [{"type": "x"}]}))
    assert turn["content"] == [{"type": "text", "text": "hi"}]


def test_messages_and_tools_are_encoded_once() -> None:
    request = ModelRequest(HISTORY, [TOOL])
    encode_request("m", request, {})
    before = [encode_blocks(message) for message in HISTORY if message.role != "system"]
    tool = encode_tool(TOOL)
    encode_request("m", request, {"cache_control": MARKER})
    after = [encode_blocks(message) for message in HISTORY if message.role != "system"]
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert encode_tool(TOOL) is tool


def test_a_conversation_that_called_tools_still_goes_where_none_is_offered() -> None:
    body = sent(ModelRequest(HISTORY))
    assert body["tools"] == [{"name": "find", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}
    assert "tools" not in sent(ModelRequest([Message("user", "hi")]))
