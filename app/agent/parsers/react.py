"""The ReAct parser: `Thought:`, `Action:`, `Action Input:`, `Final Answer:` in plain text, one action at a time."""

from app.agent.parsers.keywords import (
    ANSWER,
    ANY,
    KEYWORDS_BEGUN,
    MOST_MARKERS,
    NO_ACTION,
    NO_INPUT,
    Finder,
    KeywordTracker,
    Word,
    Words,
    closing_mark,
)
from app.agent.parsers.port import SETTLE, Parsed, Reader
from app.agent.parsers.trimming import WHITE, before_observation, trimmed
from app.agent.ports import ParseError
from app.core.actions import AgentAction, AgentFinish
from app.core.values import immutable

MISSING_ACTION = "Invalid Format: Missing 'Action:' after 'Thought:'"
MISSING_INPUT = "Invalid Format: Missing 'Action Input:' after 'Action:'"
BOTH = "Parsing LLM output produced both a final answer and a parse-able action:"
"""LangChain's words (`ReActSingleInputOutputParser`): models and users know them."""

_LINE_MARKS = WHITE + "`*_#>"


@immutable
class ReactParser:
    """Reads what LangChain's `ReActSingleInputOutputParser` reads, and what models write beside it.

    Beyond LangChain: bold keywords, full-width colons, a fence around the whole, white space and CRLF at the ends; an
    observation the model invented is cut off; `Final Answer:` in the middle of an input's line belongs to the input.
    """

    def parse(self, text: str) -> Parsed:
        first: Word | None = None
        action: Word | None = None
        given: Word | None = None
        marker: Word | None = None
        words: Words = ANY
        finder, position, markers = Finder(text), 0, 0
        while markers < MOST_MARKERS and (found := finder.next(words, position)) is not None:
            if marker is not None and found.start >= marker.end + SETTLE:
                break
            position = found.end
            first = first or found
            markers += found.kind == "final"
            match found.kind:
                case "final" if given is None:
                    marker = found
                case "final" if _begins_a_line(text, found.start):
                    return ParseError(f"{BOTH}: {text}")
                case "input" if action is not None:
                    given = found
                    if marker is not None:
                        return ParseError(f"{BOTH}: {text}")
                case "action":
                    action = action or found
                case _:
                    pass
            words = ANSWER if given is not None else NO_INPUT if action is None else NO_ACTION
        if first is not None and action is not None and given is not None:
            name = text[action.end : given.start].strip(WHITE + "*")
            told = trimmed(before_observation(text, given.end), closing_mark(text, first, given))
            return AgentAction(name, told.strip('"'), text)
        if first is not None and marker is not None:
            return AgentFinish(
                {"output": trimmed(before_observation(text, marker.end), closing_mark(text, first, marker))}, text
            )
        return ParseError(
            f"Could not parse LLM output: `{text}`", text, MISSING_ACTION if action is None else MISSING_INPUT, True
        )

    def reader(self) -> Reader:
        return Reader(self, KeywordTracker(ANY, KEYWORDS_BEGUN))


def _begins_a_line(text: str, at: int) -> bool:
    """Whether nothing but marks stands before `at` in its line. Looks back a few characters only."""
    before = text[max(0, at - 16) : at]
    return "\n" in before[len(before.rstrip(_LINE_MARKS)) :] or not before
