"""What the model is shown: instructions, the conversation, and only the last steps where the agent asks for that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.context import model_messages
from app.agent.ports import PlannedCall, Round, ToolOutcome
from app.agent.settings import AgentSettings
from app.agent.trimming import (
    CountTokens,
    KeepChosen,
    KeepEnds,
    KeepTokens,
    Trim,
    Trimmer,
    estimate_tokens,
    trim_of,
)
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
        told = tuple(Message("tool", str(done.observation), tool_call_id=call.provider_call_id) for call, done in calls)
        messages += [asked, *told]
        rounds.append(Round(asked, tuple(calls), told))
    return messages, rounds


def shown(trim: Trim, sizes: list[int], count: CountTokens = estimate_tokens) -> list[Message]:
    messages, rounds = conversation(sizes)
    return list(model_messages(AgentSettings(), messages, 1, rounds, Trimmer(trim, count)))


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
    assert list(model_messages(settings, [Message("user", "q")], 1, [], Trimmer())) == [
        Message("system", "Answer as {json}."), Message("user", "q"),
    ]  # fmt: skip


def test_the_first_and_the_last_steps_can_be_kept_A_054() -> None:
    assert results(shown(KeepEnds(1, 0), [1, 1, 1])) == ["a:1"]
    assert results(shown(KeepEnds(1, 2), [1, 1, 1, 1, 1])) == ["a:1", "a:4", "a:5"]
    assert results(shown(KeepEnds(0, 0), [1, 1])) == []


def test_ends_inside_one_round_keep_it_one_round() -> None:
    messages = shown(KeepEnds(1, 1), [4])
    assert [call.id for call in messages[1].tool_calls] == ["c1", "c4"]
    assert results(messages) == ["a:1", "a:4"]


def test_kept_steps_stay_within_a_number_of_tokens() -> None:
    def one_each(_: str) -> int:
        return 1  # so a step, with its action and its observation, is two

    assert results(shown(KeepTokens(6, 1), [1] * 5, one_each)) == ["a:1", "a:4", "a:5"]
    assert results(shown(KeepTokens(10, 1), [1] * 5, one_each)) == ["a:1", "a:2", "a:3", "a:4", "a:5"]
    assert results(shown(KeepTokens(0, 0), [1] * 5, one_each)) == []
    assert results(shown(KeepTokens(1, 1), [1] * 5, one_each)) == ["a:1"]  # asked for by name, so it stays


def test_a_plugin_chooses_steps_by_number() -> None:
    assert results(shown(KeepChosen(lambda steps: [step[0].step for step in steps][::2]), [1, 2, 2])) == [
        "a:1", "a:3", "a:5",
    ]  # fmt: skip


def test_the_size_of_a_step_is_counted_once() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return 1

    _, rounds = conversation([1] * 20)
    trimmer = Trimmer(KeepTokens(6, 0), count)
    for end in range(21):
        trimmer.kept(rounds[:end])
    assert sorted(counted) == sorted([str(step) for step in range(1, 21)] + [f"a:{step}" for step in range(1, 21)])


@given(
    trim=st.builds(KeepEnds, st.integers(0, 4), st.integers(0, 4))
    | st.builds(KeepTokens, st.integers(0, 9), st.integers(0, 4)),
    sizes=st.lists(st.integers(1, 4), max_size=5),
)
def test_whatever_is_kept_is_whole_in_order_and_once(trim: Trim, sizes: list[int]) -> None:
    messages = shown(trim, sizes, lambda _: 1)
    asked = [call.id for message in messages for call in message.tool_calls]
    assert asked == [message.tool_call_id for message in messages if message.role == "tool"]
    steps = [int(name[1:]) for name in asked]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        (3, 3),
        ({"keep_first": 1, "keep_last": 2}, KeepEnds(1, 2)),
        ({"max_tokens": 100, "keep_first": 1}, KeepTokens(100, 1)),
        ({"max_tokens": 100}, KeepTokens(100, 0)),
    ],
)
def test_a_setting_is_a_rule(setting: int | dict[str, object], rule: Trim) -> None:
    assert trim_of(setting) == rule


def test_tokens_are_estimated_by_the_kind_of_characters() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("abcdefgh") == 2
    assert estimate_tokens("天气很好") == 4
