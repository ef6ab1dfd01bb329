"""Unfinished words: where, at the end of a text that goes on, a keyword may have begun."""

import re


class Unfinished:
    """Finds the place from which the end of a text could still become one of the given words.

    Each word is a list of atoms (regular expressions without groups that backtrack); a beginning of the word is any number
    of its first atoms. `longest` bounds, in characters, how far back a word can begin.
    """

    __slots__ = ("_longest", "_pattern")

    def __init__(self, *words: list[str], longest: int) -> None:
        self._pattern = re.compile("(?:" + "|".join(_beginnings(atoms) for atoms in words) + r")\Z")
        self._longest = longest

    def start(self, text: str, after: int = 0) -> int:
        """The index of the first character that must be held back, `len(text)` when there is none."""
        found = self._pattern.search(text, max(after, len(text) - self._longest))
        return len(text) if found is None else found.start()


def letters(word: str) -> list[str]:
    """The atoms of a word that is written in one way only."""
    return [re.escape(letter) for letter in word]


def _beginnings(atoms: list[str]) -> str:
    pattern = atoms[-1]
    for atom in reversed(atoms[:-1]):
        pattern = f"{atom}(?:{pattern})?"
    return pattern
