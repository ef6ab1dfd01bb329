"""The demo model: honest about itself, calls what is asked for and offered, answers from results."""

import pytest

from app.agent.ports import ModelAnswer, ModelRequest, TextDelta, ToolDefinition
from app.core.messages import Message, ToolCall
from app.models.demo import DemoModel, decide

pytestmark = pytest.mark.anyio

ALL = tuple(ToolDefinition(name, "", {}) for name in ("calculator", "current_time", "text_length"))


def asked(text: str, tools: tuple[ToolDefinition, ...] = ALL) -> list[tuple[str, dict[str, object] | None]]:
    answer = decide(ModelRequest([Message("user", text)], tools))
    assert answer.content.startswith("[demo model] ")
    return [(call.name, call.args) for call in answer.calls]


ASKED: list[tuple[str, list[tuple[str, dict[str, object]]]]] = [
    ("What is 2+3?", [("calculator", {"expression": "2+3"})]),
    ("what is (1.5 + 2) * -3?", [("calculator", {"expression": "(1.5 + 2) * -3"})]),
    ("6×7", [("calculator", {"expression": "6*7"})]),
    ("(that is 2*3)", [("calculator", {"expression": "2*3"})]),
    ("What time is it?", [("current_time", {})]),
    ("what's the date in Asia/Tokyo", [("current_time", {"timezone": "Asia/Tokyo"})]),
    ("现在几点", [("current_time", {})]),
    ("How long is 'a 2+2 time'?", [("text_length", {"text": "a 2+2 time"})]),
    ("the length of banana?", [("text_length", {"text": "banana"})]),
    (
        "What is 2+3, what time is it, and how long is 'hello'?",
        [("calculator", {"expression": "2+3"}), ("current_time", {}), ("text_length", {"text": "hello"})],
    ),
    ("Tell me a joke", []),
]


@pytest.mark.parametrize(("text", "calls"), ASKED)
def test_tools_are_called_for_what_the_text_asks(text: str, calls: list[tuple[str, dict[str, object]]]) -> None:
    assert asked(text) == calls


def test_only_offered_tools_are_called() -> None:
    assert asked("2+3 and the time", ALL[1:2]) == [("current_time", {})]
    assert asked("2+3", ()) == []


def test_one_call_at_a_time_where_parallel_calls_are_off() -> None:
    answer = decide(ModelRequest([Message("user", "2+3 and the time")], ALL, parallel_tool_calls=False))
    assert [call.name for call in answer.calls] == ["calculator"]


def test_results_are_answered_from_in_call_order() -> None:
    history = [
        Message("user", "What is 2+3 and the time?"),
        Message("assistant", "", (ToolCall("a", "calculator", {}), ToolCall("b", "current_time", {}))),
        Message("tool", "5", tool_call_id="a"),
        Message("tool", "12:00", tool_call_id="b"),
    ]
    answer = decide(ModelRequest(history, ALL))
    assert answer.content == "[demo model] The calculator says 5. The time is 12:00."
    assert answer.calls == ()


def test_results_of_an_earlier_question_do_not_answer_a_new_one() -> None:
    history = [
        Message("user", "2+3"),
        Message("assistant", "", (ToolCall("a", "calculator", {}),)),
        Message("tool", "5", tool_call_id="a"),
        Message("assistant", "5"),
        Message("user", "4*4"),
    ]
    assert [call.args for call in decide(ModelRequest(history, ALL)).calls] == [{"expression": "4*4"}]


def test_call_ids_differ_between_the_calls_of_a_run() -> None:
    messages = [Message("user", "1+1 and 2+2")]
    ids = [call.provider_id for turn in (0, 1) for call in decide(ModelRequest(messages, ALL, call_index=turn)).calls]
    assert len(set(ids)) == 4


async def test_the_answer_streams_word_by_word() -> None:
    items = [item async for item in DemoModel(delay_s=0).stream(ModelRequest([Message("user", "hello")]))]
    answer = items[-1]
    assert isinstance(answer, ModelAnswer)
    texts = [item.text for item in items if isinstance(item, TextDelta)]
    assert len(texts) > 10
    assert "".join(texts) == answer.content
    assert "no language model" in answer.content


async def test_it_has_an_answer_when_there_is_no_user_message() -> None:
    items = [item async for item in DemoModel(delay_s=0).stream(ModelRequest([], stream=False))]
    assert isinstance(items[0], ModelAnswer)
