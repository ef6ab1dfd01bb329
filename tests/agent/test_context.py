"""What the model is shown: instructions, the conversation, and only the last steps where the agent asks for that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.context import model_messages
from app.agent.ports import PlannedCall, Round, ToolOutcome
from app.agent.settings import AgentSettings
from app.core.actions import AgentAction
from app.core.messages import Message, ToolCall


def conversation(sizes: list[int]) -> tuple[list[Message], list[Round]]:
    """A user message and rounds of so many parallel calls each."""
    messages = [Message("user", "q")]
    rounds: list[Round] = []
    step = 0
    for index, size in enumerate(sizes):
        calls: list[tuple[PlannedCall, ToolOutcome]] = []
        for _ in range(size):
            step += 1
            calls.append(
                (
                    PlannedCall(step, index + 1, f"t{step}", AgentAction("a", str(step)), f"c{step}"),
                    ToolOutcome("success", f"a:{step}"),
                )
            )
        asked = Message(
            "assistant", None, tuple(ToolCall(f"c{call.step}", "a", {"text": str(call.step)}) for call, _ in calls)
        )
        messages += [
            asked,
            *(Message("tool", str(done.observation), tool_call_id=call.provider_call_id) for call, done in calls),
        ]
        rounds.append(Round(asked, tuple(calls)))
    return messages, rounds


def shown(keep: int, sizes: list[int]) -> list[Message]:
    messages, rounds = conversation(sizes)
    return list(model_messages(AgentSettings(trim_intermediate_steps=keep), messages, 1, rounds))


def results(messages: list[Message]) -> list[object]:
    return [message.content for message in messages if message.role == "tool"]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        pytest.param(-1, ["a:1", "a:2", "a:3"], id="A-050"),
        pytest.param(0, ["a:1", "a:2", "a:3"], id="A-051"),
        pytest.param(2, ["a:2", "a:3"], id="A-052"),
        pytest.param(100, ["a:1", "a:2", "a:3"], id="A-053"),
    ],
)
def test_the_model_sees_the_last_steps_only(keep: int, expected: list[str]) -> None:
    assert results(shown(keep, [1, 1, 1])) == expected


def test_a_round_that_is_cut_through_keeps_the_calls_of_its_kept_steps_only() -> None:
    messages = shown(2, [3, 1])
    assert [call.id for message in messages for call in message.tool_calls] == ["c3", "c4"]
    assert results(messages) == ["a:3", "a:4"]


@given(keep=st.integers(-2, 12), sizes=st.lists(st.integers(1, 4), max_size=5))
def test_every_call_the_model_sees_has_its_result_and_every_result_its_call(keep: int, sizes: list[int]) -> None:
    messages = shown(keep, sizes)
    asked = [call.id for message in messages for call in message.tool_calls]
    answered = [message.tool_call_id for message in messages if message.role == "tool"]
    assert asked == answered
    total = sum(sizes)
    assert len(asked) == (total if keep < 1 else min(keep, total))
    assert messages[0] == Message("user", "q")


def test_instructions_come_first_and_are_text_not_a_template() -> None:
    settings = AgentSettings(instructions="Answer as {json}.")
    assert list(model_messages(settings, [Message("user", "q")], 1, [])) == [
        Message("system", "Answer as {json}."), Message("user", "q"),
    ]  # fmt: skip
