"""The keywords of the ReAct formats, as models really write them, and what they say about a text in their order."""

import re
from typing import Literal

from app.agent.parsers.json_blob import FENCE
from app.agent.parsers.port import SETTLE, Spoken
from app.agent.parsers.trimming import AnswerTrimmer
from app.agent.parsers.unfinished import Unfinished, letters
from app.agent.ports import ReasoningDelta, TextDelta

_BOLD = r"(?P<bold>\*\*|__)?"
_UNBOLD = r"(?(bold)(?:\*\*|__)?)"
_COLON = r"[ \t]{0,4}+[:：﹕∶]"
_NUMBER = r"\s{0,12}+(?:[0-9]{1,8}+\s{0,12}+)?"
_FINAL = r"(?P<final>Final Answer)"
_ACTION = rf"Action{_NUMBER}(?P<input>Input{_NUMBER})?"

KEYWORDS = re.compile(rf"{_BOLD}(?:{_FINAL}|{_ACTION}){_UNBOLD}{_COLON}{_UNBOLD}")
"""`Action:`, `Action Input:` (each may be numbered) and `Final Answer:`, plain or bold, with any kind of colon.

Possessive quantifiers with bounds: there is nothing to backtrack into, so a search is linear in the text.
"""

_ANSWER = rf"{_BOLD}{_FINAL}{_UNBOLD}{_COLON}{_UNBOLD}"
ANSWER_OR_JSON = re.compile(rf"(?P<fence>{FENCE.pattern})|{_ANSWER}")
ANSWER_OR_FENCE = re.compile(rf"(?P<fence>```)|{_ANSWER}")
"""For a text that is still coming: any fence may become one with JSON in it."""

LONGEST = 110
"""An upper bound of a keyword's length in characters."""

_MARK = r"[*_]{0,2}+"
_AFTER = r"\s{0,12}+[0-9]{0,8}+\s{0,12}+"
_END = r"[*_]{0,2}+[ \t]{0,4}+"
_FINAL_ATOMS = [_MARK, *letters("Final Answer"), _END]
KEYWORDS_BEGUN = Unfinished(
    [r"[*_]{1,3}+"],
    _FINAL_ATOMS,
    [_MARK, *letters("Action"), _AFTER + _END],
    [_MARK, *letters("Action"), _AFTER, *letters("Input"), _AFTER + _END],
    longest=LONGEST,
)
ANSWER_OR_FENCE_BEGUN = Unfinished([r"[*_]{1,3}+"], ["`", "`"], _FINAL_ATOMS, longest=LONGEST)

Found = Literal["final", "action", "input", "fence"]


def kind(found: re.Match[str]) -> Found:
    """Which keyword was found."""
    match found.lastgroup:
        case "final" | "input" | "fence" as name:
            return name
        case _:
            return "action"


def closing_mark(text: str, first: re.Match[str], last: re.Match[str]) -> str:
    """The mark that ends what is around a decision: a fence opened before its first keyword, bold opened with its last."""
    if text.count("```", 0, first.start()) % 2:
        return "```"
    bold = last.groupdict().get("bold")
    return bold if bold is not None and last.group().count(bold) == 1 else ""


class KeywordTracker:
    """Follows a ReAct text while it comes: thinking up to the first keyword, the answer once it is certain."""

    __slots__ = ("_action", "_answer", "_begun", "_buffer", "_held", "_marker", "_position", "_silent", "_words")

    def __init__(self, words: re.Pattern[str], begun: Unfinished) -> None:
        self._words = words
        self._begun = begun
        self._buffer = ""
        """What may still matter; it starts right after the last `Final Answer:` where there is one."""
        self._position = 0
        """Where in the buffer the search for the next keyword goes on."""
        self._marker = self._action = False
        self._held = True
        """Whether what is in the buffer is thinking."""
        self._silent = False
        self._answer: AnswerTrimmer | None = None

    def feed(self, delta: str) -> list[Spoken]:
        if self._silent:
            return []
        if self._answer is not None:
            return _text(self._answer.feed(delta))
        spoken: list[Spoken] = []
        buffer, position, origin = self._buffer + delta, self._position, 0
        while True:
            found = self._words.search(buffer, position)
            # What may close bold marks stands behind the colon, so a keyword at the very end is not over.
            whole = found is not None and found.end() + 2 <= len(buffer)
            known = found.start() if found is not None else self._begun.start(buffer, position)
            if self._marker and known >= origin + SETTLE:
                self._answer = AnswerTrimmer()
                self._buffer = ""
                return [*spoken, *_text(self._answer.feed(buffer[origin:]))]
            if self._held and known > position:
                spoken.append(ReasoningDelta(buffer[position:known]))
                position = known
            if found is None or not whole:
                break
            self._held = False
            position = found.end()
            self._see(found)
            if self._silent:
                self._buffer = ""
                return spoken
            if self._marker and found.group("final") is not None:
                origin = position
        start = origin if self._marker else known
        self._buffer, self._position = buffer[start:], known - start
        return spoken

    def rest(self) -> str:
        if not self._held:
            return ""
        found = self._words.search(self._buffer)
        return self._buffer if found is None else self._buffer[: found.start()]

    def _see(self, found: re.Match[str]) -> None:
        match kind(found):
            case "final":
                self._marker = True
            case "action":
                self._action = True
            case "input":
                # A whole action: whatever comes now is its input, or makes the text unreadable.
                self._silent = self._action
            case "fence":
                self._silent = not self._marker


def _text(text: str) -> list[Spoken]:
    return [TextDelta(text)] if text else []
