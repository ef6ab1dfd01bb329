"""Repair: calls and results of a history belong together before a model sees them."""

from hypothesis import given
from hypothesis import strategies as st

from app.agent.repair import repaired
from app.core.messages import Message, ToolCall

IDS = st.sampled_from(["a", "b", "c"])


def asks(*ids: str) -> Message:
    return Message("assistant", None, tuple(ToolCall(call, "t", {}) for call in ids))


def tells(call: str) -> Message:
    return Message("tool", "told", tool_call_id=call)


MESSAGES = st.lists(
    st.one_of(
        st.lists(IDS, unique=True, max_size=3).map(lambda ids: asks(*ids)),
        IDS.map(tells),
        st.just(Message("user", "x")),
    ),
    max_size=10,
)


@given(MESSAGES, st.integers(0, 10))
def test_after_repair_each_call_of_the_history_has_one_result_before_the_next_message(
    messages: list[Message], before: int
) -> None:
    before = min(before, len(messages))
    shown, count = repaired(messages, before)
    open_calls: set[str] = set()
    for message in shown[:count]:
        if message.role == "tool":
            assert message.tool_call_id in open_calls
            open_calls.remove(message.tool_call_id or "")
            continue
        assert not open_calls
        open_calls = {call.id for call in message.tool_calls}
    assert not open_calls
    assert shown[count:] == messages[before:], "a run's own round is its own business"
    assert [message for message in shown[:count] if message.role != "tool"] == [
        m for m in messages[:before] if m.role != "tool"
    ]
    assert repaired(shown, count) == (shown, count)


def test_a_history_in_order_stays_as_it_is() -> None:
    messages = [Message("user", "x"), asks("a", "b"), tells("b"), tells("a"), Message("assistant", "y")]
    assert repaired(messages, 5) == (messages, 5)
