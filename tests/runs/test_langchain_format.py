"""LangChain's form, read back by the real `langchain_core`."""

import json
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.load import load

from app.core.actions import AgentAction, AgentActionMessageLog, AgentFinish
from app.core.messages import Message, ToolCall
from app.runs.langchain_format import action_json, finish_json, message_json, step_json
from tests.agent.cases import CASES

MARKERS: list[dict[str, object]] = [
    {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "agent", "AgentFinish"], "kwargs": {}},
    {"lc": 1, "type": "secret", "id": ["HOME"]},
    {"__lc_escaped__": {"lc": 1}},
    {"a": [{"lc": 2, "b": {"__lc_escaped__": 1}}]},
]
"""Data that looks like LangChain's own form."""

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.sampled_from(MARKERS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "lc", "__lc_escaped__"]), inner, max_size=3)
    ),
    max_leaves=12,
)


def read(dumped: dict[str, object]) -> Any:
    """What LangChain makes of it after a way over HTTP."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `load` is a beta interface, says the peer
        return load(json.loads(json.dumps(dumped)), allowed_objects="core")


@pytest.mark.parametrize("case", ["A-D01", "A-D02"])
def test_actions_and_finishes_look_as_the_peer_dumps_them(case: str) -> None:
    data, expected = CASES[case]["given"], CASES[case]["expect"]["dump"]
    if "action" in data:
        dumped = action_json(AgentAction(**data["action"]))
    else:
        dumped = finish_json(AgentFinish(**data["finish"]))
    assert dumped == expected


@given(values)
def test_any_observation_is_given_back_as_data(value: object) -> None:
    assert read(step_json(AgentAction("a", {"x": value}, "L"), value)) == {
        "action": read(action_json(AgentAction("a", {"x": value}, "L"))),
        "observation": value,
    }
    assert read(action_json(AgentAction("a", {"x": value}, "L"))).tool_input == {"x": value}


def test_an_action_of_a_chat_message_loads_with_its_message() -> None:
    message = Message("assistant", None, (ToolCall("c1", "a", {"lc": 1}), ToolCall("c2", "b", "{oops")))
    loaded = read(action_json(AgentActionMessageLog("a", {"lc": 1}, "L", message_log=(message,))))
    assert type(loaded).__name__ == "AgentActionMessageLog"
    (said,) = loaded.message_log
    assert said.tool_calls == [{"name": "a", "args": {"lc": 1}, "id": "c1", "type": "tool_call"}]
    assert said.invalid_tool_calls[0]["args"] == "{oops"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Message("system", "s"), "SystemMessage"),
        (Message("user", [{"type": "text", "text": "x"}]), "HumanMessage"),
        (Message("assistant", "a", refusal="no"), "AIMessage"),
        (Message("tool", "r", tool_call_id="c1", name="a"), "ToolMessage"),
        (Message("tool", None), "ToolMessage"),
    ],
)
def test_every_kind_of_message_loads(message: Message, kind: str) -> None:
    loaded = read(message_json(message))
    assert type(loaded).__name__ == kind
    assert loaded.content == (message.content or "")
