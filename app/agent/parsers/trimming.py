"""The answer of a keyword format: cut off at an invented observation, trimmed at both ends, whole or piece by piece."""

import re

from app.agent.parsers.unfinished import Unfinished, letters

WHITE = (
    " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""What `str.strip` takes away."""

_OBSERVATION = re.compile(r"\n[ \t]{0,8}+[*_#]{0,3}+[ ]?+Observation[*_]{0,3}+[ \t]{0,4}+[*_]{0,3}+[:：]")
_OBSERVATION_BEGUN = Unfinished(
    ["\n", r"[ \t]{0,8}+[*_#]{0,3}+[ ]?+", *letters("Observation"), r"[*_]{0,3}+[ \t]{0,4}+[*_]{0,3}+"], longest=48
)
_OPEN_ENDS = WHITE + "`*_"
"""What may turn out to be trimmed: white space, a closing fence, closing bold marks."""


def _observation(text: str, start: int = 0) -> re.Match[str] | None:
    """Lines are looked at only where one of them may be it: a text may have nothing but line breaks."""
    return _OBSERVATION.search(text, start) if text.find("Observation", start) >= 0 else None


def before_observation(text: str, start: int) -> str:
    """`text` from `start` to the first line that begins with `Observation:`: only the server observes."""
    found = _observation(text, start)
    return text[start:] if found is None else text[start : found.start()]


def trimmed(text: str, closing: str) -> str:
    """`text` without white space around it and without the mark `closing` that belongs to what is around the whole."""
    text = text.strip()
    return text.removesuffix(closing).rstrip() if closing else text


class AnswerTrimmer:
    """The same for an answer that is still coming: gives what no later text can take away."""

    __slots__ = ("_begun", "_cut", "_held", "_pending")

    def __init__(self) -> None:
        self._held = ""
        self._pending: list[str] = []
        self._begun = False
        self._cut = False

    def feed(self, delta: str) -> str:
        if self._cut:
            return ""
        text = self._held + delta
        found = _observation(text)
        if found is not None:
            self._cut = True
        end = _OBSERVATION_BEGUN.start(text) if found is None else found.start()
        self._held = text[end:]
        return self._release(text[:end])

    def _release(self, text: str) -> str:
        body = text.rstrip(_OPEN_ENDS)
        if not body:
            self._pending.append(text)
            return ""
        told = "".join([*self._pending, body])
        self._pending = [text[len(body) :]]
        if not self._begun:
            self._begun = True
            told = told.lstrip()
        return told
