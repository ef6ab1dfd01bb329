"""Reading while the model speaks says the same as reading the whole, however the text is cut into pieces."""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.agent.parsers.port import Ended, Spoken, TextParser, output_text
from app.agent.parsers.registry import PARSERS
from app.agent.ports import ReasoningDelta, TextDelta
from app.core.actions import AgentAction, AgentFinish

WORDS = [
    "Thought: ", "Action:", "Action Input:", "\nAction: search", "\nAction 1 Input: foo", "Final Answer:", "**Final Answer:**",
    "**", "*", "_", "`", "```", "```json\n", "```\n", "\nObservation:", "\n**Observation：** ", "\n", "\r\n", " ", "\t", "：",
    "x" * 90, "y" * 210, " " * 30, "word ", "A", "Act", "Fi", "Final", "\n Obs", "{", "}", "[", "]", ",", ":", '"', "\\", "\\u00e9",
    "\\ud83d\\ude00", "\\ud83d", "\\u0000", "\\n", '{"action": "Final Answer", "action_input": "', '{"action":"search","action_input":',
    '"action"', '"action_input"', '"Final Answer"', '{"thought": "t", "n": 1, "action":"Final Answer","action_input":"', '"}', "null", "1e9",
    "<tool>", "</tool>", "<tool_input>", "</tool_input>", "<final_answer>", "</final_answer>", "<observation>", "[[tool]]", "[[/to",
    "Follow up:", "Followup: ", "So the final answer is:", "\nIntermediate answer: ", "é", "\U0001f600", "\x00", "\ud800", "　",
]  # fmt: skip

TEXTS = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=5)), max_size=14).map("".join)


def read(parser: TextParser, text: str, cuts: list[int]) -> tuple[list[Spoken], Ended]:
    reader = parser.reader()
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    spoken = [part for start, end in itertools.pairwise(places) for part in reader.feed(text[start:end])]
    return spoken, reader.finish()


def joined(deltas: list[Spoken], kind: type[Spoken]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, kind))


def check(parser: TextParser, text: str, cuts: list[int]) -> None:
    spoken, ended = read(parser, text, cuts)
    outcome = parser.parse(text)
    assert ended.outcome == outcome
    told = joined([*spoken, *ended.deltas], TextDelta)
    if isinstance(outcome, AgentFinish):
        assert told == output_text(outcome)
    else:
        assert not any(isinstance(delta, TextDelta) for delta in ended.deltas)
    if isinstance(outcome, AgentAction):
        assert told == ""
    thinking = joined([*spoken, *ended.deltas], ReasoningDelta)
    assert thinking in text
    assert all(delta.text for delta in [*spoken, *ended.deltas])


@pytest.mark.parametrize("name", sorted(PARSERS))
@settings(max_examples=400, deadline=None)
@given(text=TEXTS, cuts=st.lists(st.integers(0, 3000), max_size=12))
@example(text="**Final Answer:** " + "x" * 300, cuts=[15, 16, 17, 18])
@example(text='{"action":"Final Answer","action_input":"a\\ud83d\\ude00b"}', cuts=list(range(60)))
def test_streamed_text_is_the_answer_whatever_the_pieces(name: str, text: str, cuts: list[int]) -> None:
    check(PARSERS[name], text, cuts)


@pytest.mark.parametrize("name", sorted(PARSERS))
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_streamed_letter_by_letter_it_is_the_same(name: str, text: str) -> None:
    check(PARSERS[name], text, list(range(len(text))))
