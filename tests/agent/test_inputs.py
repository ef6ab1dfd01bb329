"""A run's input and its agent's settings, as posted: what is taken and what is refused, before any model is called."""

import pytest

from app.core.errors import InvalidRequest, NotSupported
from app.core.messages import Message, ToolCall
from app.runs.inputs import input_messages
from app.runs.spec import AgentSpec, RunCreate
from app.runs.validation import check

CALL = {"role": "assistant", "tool_calls": [{"id": "c1", "name": "add", "args": {"a": 1}}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "1"}


def pointers(error: InvalidRequest) -> list[str]:
    return [item.pointer for item in error.errors]


def test_text_is_one_user_message() -> None:
    assert input_messages("hi") == (Message("user", "hi"),)


def test_the_keys_of_agent_executor_are_taken_and_extra_ones_are_variables_A_084() -> None:
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert input_messages({"input": "q", "chat_history": history, "lang": "zh"}) == (
        Message("user", "a"), Message("assistant", "b"), Message("user", "q"),
    )  # fmt: skip


def test_a_missing_input_key_is_refused_A_083() -> None:
    with pytest.raises(InvalidRequest) as caught:
        input_messages({"other": "q"})
    assert (caught.value.code, pointers(caught.value)) == ("missing_input", ["/input/input"])


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"messages": [{"role": "user", "content": "a"}], "input": "q"}, "/input/input"),
        ({"messages": []}, "/input/messages"),
        ({"messages": "hi"}, "/input/messages"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "/input/messages/0/role"),
        ({"messages": [{"role": "user", "content": "a", "colour": "red"}]}, "/input/messages/0/colour"),
        ({"messages": [{"role": "user"}]}, "/input/messages/0"),
        ({"messages": [CALL, {"role": "user", "content": "b"}]}, "/input/messages/0/tool_calls/0"),
        ({"messages": [CALL]}, "/input/messages/0/tool_calls/0"),
        ({"messages": [CALL, RESULT, RESULT]}, "/input/messages/2/tool_call_id"),
        ({"messages": [RESULT]}, "/input/messages/0/tool_call_id"),
        ({"input": 3}, "/input/input"),
        ({"input": "q", "chat_history": [1]}, "/input/chat_history/0"),
    ],
)
def test_input_that_cannot_be_used_is_refused_at_its_place(value: dict[str, object], pointer: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        input_messages(value)
    assert pointers(caught.value) == [pointer]


def test_a_history_with_answered_calls_is_taken() -> None:
    assert input_messages({"messages": [CALL, RESULT]}) == (
        Message("assistant", None, (ToolCall("c1", "add", {"a": 1}),)),
        Message("tool", "1", tool_call_id="c1"),
    )


@pytest.mark.parametrize(
    ("field", "value", "pointer"),
    [
        pytest.param("handle_parsing_errors", 123, "/handle_parsing_errors", id="A-102"),
        pytest.param("max_iterations", -1, "/max_iterations", id="A-103"),  # it is 0 in the peer
        ("max_execution_time", -0.1, "/max_execution_time"),
        ("max_parallel_tools", 0, "/max_parallel_tools"),
        ("early_stopping_method", "soon", "/early_stopping_method"),
        ("max_iterations", "3", "/max_iterations"),
        ("limits", {"max_tool_calls": -1}, "/limits/max_tool_calls"),
        ("type", "re akt", "/type"),
        ("colour", "red", "/colour"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_at_its_place(field: str, value: object, pointer: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(AgentSpec, {"model": "demo", field: value})
    assert caught.value.code == "invalid_request"
    assert pointer in pointers(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("webhook", {"url": "https://example.com"}),
    ],
)
def test_a_run_field_that_is_not_built_yet_is_refused(field: str, value: object) -> None:
    with pytest.raises(NotSupported):
        check(RunCreate, {"agent": "demo", "input": "q", field: value})


@pytest.mark.parametrize("selected", [["actions", "steps"], "actions,steps", " actions , steps,"])
def test_a_selection_of_events_is_a_list_or_as_in_the_query(selected: object) -> None:
    assert check(RunCreate, {"agent": "demo", "input": "q", "stream": selected}).stream == ["actions", "steps"]


def test_an_unknown_event_type_is_refused_before_a_run_is_made() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(RunCreate, {"agent": "demo", "input": "q", "stream": "actions,tokens"})
    assert pointers(caught.value) == ["/stream/1"]


def test_a_complaint_names_every_wrong_place() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(RunCreate, {"agent": 3, "inptu": "q"})
    assert {"/agent", "/inptu", "/input"} <= set(pointers(caught.value))
    assert next(item for item in caught.value.errors if item.pointer == "/inptu").detail == "unknown field"
