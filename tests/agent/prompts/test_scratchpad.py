"""A scratchpad shows every step once, in order, or the last of them, at the cost of what is new."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.agent.parsers.registry import PARSERS
from app.agent.parsers.xml import escaped, unescaped
from app.agent.scratchpad import LogStep, MessageScratchpad, MessageStep, TextScratchpad, xml_step
from app.core.actions import AgentAction, AgentFinish, AgentStep
from app.core.messages import Message

CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for line in (Path(__file__).parent / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    for case in [json.loads(line)]
}

STEPS = st.lists(
    st.builds(AgentStep, st.builds(AgentAction, st.text(max_size=4), st.text(max_size=4), st.text(max_size=9)), st.text(max_size=9)),
    max_size=12,
)  # fmt: skip


def test_an_xml_step_escapes_the_tags_inside_its_values() -> None:
    step = AgentStep(AgentAction("a", "<tool>x</tool>", "log1"), "<observation>o</observation>")
    assert TextScratchpad(xml_step, [step]).text() == CASES["A-M11"]["expect"]["text"]


def test_a_plain_action_is_an_assistant_s_message_with_its_log() -> None:
    (want,) = CASES["A-M01"]["expect"]["action_messages"]
    assert AgentAction("a", "1", "thinking").messages() == (Message("assistant", want["content"]),)


def test_a_plain_step_is_a_user_s_message_with_the_observation_as_json() -> None:
    got = [AgentStep(AgentAction("a", "1", "t"), item).messages() for item in CASES["A-M02"]["given"]["observations"]]
    assert got == [(Message("user", text),) for text in ("文本", '{"k":"值"}', "[1,null]", "null", "3.5")]


def test_a_finish_is_an_assistant_s_message_with_its_log() -> None:
    (want,) = CASES["A-M12"]["expect"]["messages"]
    assert AgentFinish({"output": "4"}, "Final Answer: 4").messages() == (Message("assistant", want["content"]),)


def test_a_self_ask_step_has_its_own_words() -> None:
    step = AgentStep(AgentAction("search", "q", "Follow up: q"), "a")
    assert LogStep("\nIntermediate answer: ", "")(step) == "Follow up: q\n\nIntermediate answer: a\n"


def test_an_invented_observation_is_not_shown_beside_the_real_one() -> None:
    text = "Action: search\nAction Input: foo\nObservation: invented"
    action = PARSERS["react"].parse(text)
    assert isinstance(action, AgentAction)
    assert action.log == text
    assert LogStep()(AgentStep(action, "real")) == "Action: search\nAction Input: foo\nObservation: real\nThought: "
    unread = AgentStep(AgentAction("_Exception", "o", text), "o")
    assert LogStep()(unread) == text + "\nObservation: o\nThought: "


def test_messages_carry_the_log_and_the_observation() -> None:
    pad = MessageScratchpad(MessageStep(), [AgentStep(AgentAction("a", "1", "L"), {"k": "{observation}"})])
    said, told = pad.messages()
    assert said == Message("assistant", "L")
    assert told.role == "user"
    assert isinstance(told.content, str)
    assert '{"k":"{observation}"}' in told.content


@given(steps=STEPS, cuts=st.lists(st.integers(0, 12), max_size=4), keep=st.one_of(st.none(), st.integers(-2, 14)))
def test_added_bit_by_bit_it_says_the_same_and_keep_counts_from_the_end(
    steps: list[AgentStep], cuts: list[int], keep: int | None
) -> None:
    text, messages = TextScratchpad(LogStep()), MessageScratchpad(MessageStep())
    done = 0
    for cut in [*sorted(cuts), len(steps)]:
        text.extend(steps[done:cut])
        messages.extend(steps[done:cut])
        done = max(done, min(cut, len(steps)))
        assert len(text) == len(messages) == done
        text.text()
    last = steps[-keep:] if keep is not None and keep > 0 else steps
    assert text.text(keep) == "".join(map(LogStep(), last))
    assert list(messages.messages(keep)) == [message for step in last for message in MessageStep()(step)]


def test_each_of_a_thousand_steps_is_written_once() -> None:
    written: list[AgentStep] = []

    def write(step: AgentStep) -> str:
        written.append(step)
        return "x"

    pad = TextScratchpad(write)
    steps = [AgentStep(AgentAction("a", str(number), ""), number) for number in range(1000)]
    for step in steps:
        pad.extend([step])
        pad.text()
        pad.text(5)
    assert written == steps
    assert pad.text() == "x" * 1000


@given(
    text=st.lists(st.sampled_from(["<tool>", "</tool_input>", "<observation>", "<", ">", "a", "<final_answer>"])).map(
        "".join
    )
)
def test_escaped_tags_come_back_and_are_no_tags_meanwhile(text: str) -> None:
    assert unescaped(escaped(text)) == text
    assert "<tool>" not in escaped(text)
    assert "</tool_input>" not in escaped(text)
