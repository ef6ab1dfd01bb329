"""The keywords of the ReAct formats, as models really write them, and what they say about a text in their order."""

import re
from typing import Literal, NamedTuple

from app.agent.parsers.json_blob import FENCE
from app.agent.parsers.port import SETTLE, Spoken
from app.agent.parsers.trimming import AnswerTrimmer
from app.agent.parsers.unfinished import Unfinished, letters
from app.agent.ports import ReasoningDelta, TextDelta

_UNBOLD = r"(?(bold)(?:\*\*|__)?)"
_COLON = r"[ \t]{0,4}+[:：﹕∶]"
_NUMBER = r"\s{0,12}+(?:[0-9]{1,8}+\s{0,12}+)?"


def _word(word: str, rest: str = "") -> re.Pattern[str]:
    """Plain or bold, with any kind of colon. The bold marks before it are looked back at: it begins with its letters.

    A search for a literal beginning is ten times as fast as one for alternatives. Possessive quantifiers with bounds: there
    is nothing to backtrack into, so it is linear in the text.
    """
    bold = rf"(?:(?P<bold>(?<=\*\*{word})|(?<=__{word}))|)"
    return re.compile(rf"{word}{bold}{rest}{_UNBOLD}{_COLON}{_UNBOLD}")


Found = Literal["final", "action", "input", "fence"]
Words = tuple[tuple[Found, re.Pattern[str]], ...]

_FINAL: tuple[Found, re.Pattern[str]] = ("final", _word("Final Answer"))
_ACTION: tuple[Found, re.Pattern[str]] = ("action", _word("Action", _NUMBER))
_INPUT: tuple[Found, re.Pattern[str]] = ("input", _word("Action", rf"{_NUMBER}Input{_NUMBER}"))

ANY: Words = (_FINAL, _ACTION, _INPUT)
"""`Action:`, `Action Input:` (each may be numbered) and `Final Answer:`."""
NO_INPUT: Words = (_FINAL, _ACTION)
"""An input without an action says nothing."""
NO_ACTION: Words = (_FINAL, _INPUT)
"""Of several actions the first one counts."""
ANSWER: Words = (_FINAL,)
ANSWER_OR_JSON: Words = (_FINAL, ("fence", FENCE))
ANSWER_OR_FENCE: Words = (_FINAL, ("fence", re.compile("```")))
"""For a text that is still coming: any fence may become one with JSON in it."""

MOST_MARKERS = 50
"""So many `Final Answer:` are looked at; those after them are part of the answer, or of the input."""

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


class Word(NamedTuple):
    """A keyword that was found."""

    kind: Found
    start: int
    """Bold marks before it included."""
    end: int
    bold: str
    """Bold marks that it opens and does not close."""


class Finder:
    """Finds the keywords of a text in their order. Each kind is searched for once in each stretch of it."""

    __slots__ = ("_found", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: dict[Found, Word | None] = {}
        """By kind, the next one; `None` when there is no more."""

    def next(self, words: Words, position: int) -> Word | None:
        """The first of the words from `position` on. Positions only grow."""
        first: Word | None = None
        for kind, pattern in words:
            word = self._found.get(kind, _NOT_SOUGHT)
            if word is not None and word.start < position:
                word = self._found[kind] = self._search(kind, pattern, position)
            if word is not None and (first is None or word.start < first.start):
                first = word
        return first

    def _search(self, kind: Found, pattern: re.Pattern[str], position: int) -> Word | None:
        text = self._text
        found = pattern.search(text, position)
        while found is not None:
            core, end = found.span()
            if found.lastindex is None:
                return Word(kind, core, end, "")
            if core - 2 >= position:
                bold = text[core - 2 : core]
                return Word(kind, core - 2, end, bold if text.count(bold, core, end) == 0 else "")
            plain = pattern.match(text[core : core + LONGEST])
            if plain is not None:  # the marks before it belong to the word before it
                return Word(kind, core, core + plain.end(), "")
            found = pattern.search(text, core + 1)
        return None


_NOT_SOUGHT = Word("final", -1, -1, "")


def closing_mark(text: str, first: Word, last: Word) -> str:
    """The mark that ends what is around a decision: a fence opened before its first keyword, bold opened with its last."""
    return "```" if text.count("```", 0, first.start) % 2 else last.bold


class KeywordTracker:
    """Follows a ReAct text while it comes: thinking up to the first keyword, the answer once it is certain."""

    __slots__ = ("_action", "_answer", "_begun", "_buffer", "_held", "_markers", "_position", "_silent", "_words")

    def __init__(self, words: Words, begun: Unfinished) -> None:
        self._words = words
        self._begun = begun
        self._buffer = ""
        """What may still matter; it starts right after the last `Final Answer:` where there is one."""
        self._position = 0
        """Where in the buffer the search for the next keyword goes on."""
        self._markers = 0
        self._action = False
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
        finder = Finder(buffer)
        while True:
            found = finder.next(self._words, position)
            # What may close bold marks stands behind the colon, so a keyword at the very end is not over.
            whole = found is not None and found.end + 2 <= len(buffer)
            known = found.start if found is not None else self._begun.start(buffer, position)
            if self._markers and (known >= origin + SETTLE or self._markers >= MOST_MARKERS):
                self._answer = AnswerTrimmer()
                self._buffer = ""
                return [*spoken, *_text(self._answer.feed(buffer[origin:]))]
            if self._held and known > position:
                spoken.append(ReasoningDelta(buffer[position:known]))
                position = known
            if found is None or not whole:
                break
            self._held = False
            position = found.end
            self._see(found.kind)
            if self._silent:
                self._buffer = ""
                return spoken
            if found.kind == "final":
                origin = position
        start = origin if self._markers else known
        self._buffer, self._position = buffer[start:], known - start
        return spoken

    def rest(self) -> str:
        if not self._held:
            return ""
        found = Finder(self._buffer).next(self._words, 0)
        return self._buffer if found is None else self._buffer[: found.start]

    def _see(self, kind: Found) -> None:
        match kind:
            case "final":
                self._markers += 1
            case "action":
                self._action = True
            case "input":
                # A whole action: whatever comes now is its input, or makes the text unreadable.
                self._silent = self._action
            case "fence":
                self._silent = not self._markers
        if self._words in (ANY, NO_INPUT):
            self._words = NO_ACTION if self._action else NO_INPUT


def _text(text: str) -> list[Spoken]:
    return [TextDelta(text)] if text else []
