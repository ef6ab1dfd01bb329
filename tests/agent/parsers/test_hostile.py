"""A model may say anything, and much of it: the work stays linear and nothing is raised."""

import pytest

from app.agent.parsers.keywords import MOST_MARKERS
from app.agent.parsers.port import MAX_ANSWER, Ended, Reader
from app.agent.parsers.registry import PARSERS
from app.agent.parsers.trimming import AnswerTrimmer
from app.agent.ports import ParseError
from app.core.actions import AgentAction, AgentFinish
from app.core.errors import ModelError
from tests.support.hang import no_hang

SIZE = 1_000_000

MOST_HELD = 700
"""Characters a reader may look at again when more comes: an answer that is not certain yet, a keyword, an odd member."""

START = {
    "react": "Final Answer: ",
    "react_json": "Final Answer: ",
    "structured_chat": '{"action":"Final Answer","action_input":"',
    "xml": "<final_answer>",
    "self_ask": "Follow up:",
}

PIECES = [
    "Action:", "Action" + " " * 25, "Action Input:", "Final Answer:", "**", "`", "```json\n{", '```[",","', "[", '{"a":', "{},", '"', "\\",
    "\\u00e9", "\\ud83d", "\n", " ", "\nObservation", "<tool>", "<tool></tool>", "<final_answer></final_answer>", "[[tool]]",
    "Follow up:", "\nIntermediate answer", "\x00", "\ud800", "9", "Action：", "Action: e\n", "**Action**: ", "__", "*_", "F", "A",
    "\r\n", "\n \t", "```json\n{}\n```\n", "\\u0041", "\nObservation:\n", '"action":"x",', "[1,", "Final Answer: " + "y" * 180,
]  # fmt: skip


def whole(name: str, text: str, size: int) -> Ended:
    reader = PARSERS[name].reader()
    for start in range(0, len(text), size):
        reader.feed(text[start : start + size])
    return reader.finish()


@pytest.mark.parametrize("name", sorted(PARSERS))
@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_of_anything_is_read_to_its_end(name: str, piece: str) -> None:
    # A quadratic step needs minutes to hours for any of these; the guard is far above what a loaded machine takes.
    for start in ("", START[name]):
        text = start + piece * (SIZE // len(piece))
        with no_hang():
            ended = whole(name, text, 50_000)
        assert isinstance(ended.outcome, AgentAction | AgentFinish | ParseError)


@pytest.mark.parametrize("name", sorted(PARSERS))
@pytest.mark.parametrize("piece", PIECES)
def test_a_piece_costs_no_reading_of_all_that_came_before(name: str, piece: str) -> None:
    for start in ("", START[name]):
        reader = PARSERS[name].reader()
        for letter in start + piece * (4 * MOST_HELD // len(piece) + 1):
            reader.feed(letter)
            assert held(reader) <= MOST_HELD


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_a_megabyte_stops_the_event_loop_for_a_moment_only(name: str) -> None:
    """Some 50 ms of CPU each, in one piece; the guard is ten times that."""
    for start in (
        "",
        START[name],
        START[name] + "x" * 300,
        "Action: e\nAction Input: ",
        '```json\n{"action":"e","action_input":"',
    ):
        for piece in PIECES:
            with no_hang(0.5):
                whole(name, start + piece * (SIZE // len(piece)), 2 * SIZE)


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_an_answer_that_no_model_says_is_refused(name: str) -> None:
    reader = PARSERS[name].reader()
    reader.feed("x" * MAX_ANSWER)
    with pytest.raises(ModelError, match="more than 2097152 characters") as refused:
        reader.feed("x")
    assert refused.value.code == "model_invalid_response"


def test_after_many_second_thoughts_the_rest_is_the_answer() -> None:
    for name in ("react", "react_json"):
        for size in (7, 40, 10_000):
            ended = whole(name, "Final Answer:" * (MOST_MARKERS + 2) + " 42", size)
            assert isinstance(ended.outcome, AgentFinish)
            assert ended.outcome.return_values == {"output": "Final Answer:Final Answer: 42"}


def held(reader: Reader) -> int:
    """How much text is joined with the next piece. (Lists of pieces are joined once, when they are given.)"""
    tracker = reader._tracker
    buffered: str = getattr(tracker, "_buffer", "")
    answer: AnswerTrimmer | None = getattr(tracker, "_answer", None)
    return len(buffered) + (0 if answer is None else len(answer._held))
