"""A regular expression in a schema: whether a backtracking engine could be made to hang by it.

Our own engine is linear, so this protects whoever else compiles the schema (a model's provider, a tool service). The
check reads the usual syntax itself and refuses the known shapes: a repeated group whose body can be cut in several ways
(`(a+)+`, `(.*,)*`) or whose alternatives overlap (`(a|aa)+`).
"""

import re
from dataclasses import dataclass, field

_SAMPLE = "".join(map(chr, range(32, 127))) + "\t\né中"
_MAX_ALTERNATIVES = 200
"""Alternatives of a repeated group; each is compared with each. More count as overlapping."""
_QUANTIFIER = re.compile(r"\{(\d*)(,?)(\d*)\}")
_NO_WIDTH = ("\\b", "\\B", "\\A", "\\Z", "\\z")
_MANY = 16
"""Repetitions from which a bounded quantifier counts as unbounded."""


@dataclass(slots=True)
class _Item:
    """One element of a sequence: a single-character atom, or a group of alternatives; `low`..`high` times."""

    chars: frozenset[str] = frozenset()
    group: "list[list[_Item]] | None" = None
    low: int = 1
    many: bool = False


@dataclass(slots=True)
class _Reader:
    text: str
    at: int = 0
    atoms: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    def alternatives(self) -> list[list[_Item]]:
        found: list[list[_Item]] = [[]]
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] == "|":
                self.at += 1
                found.append([])
            elif self.text[self.at] in "^$":
                self.at += 1
            elif self.text.startswith(_NO_WIDTH, self.at):
                self.at += 2
            else:
                found[-1].append(self.quantified(self.atom()))
        return found

    def atom(self) -> _Item:
        start = self.at
        if self.text[start] == "(":
            self.at += 1
            prefix = re.compile(r"\?(?::|P?<[A-Za-z_]\w*>)").match(self.text, self.at)
            self.at = prefix.end() if prefix else self.at
            group = self.alternatives()
            self.at += 1
            return _Item(group=group)
        if self.text[start] == "[":
            self.at = _class_end(self.text, start)
        else:
            self.at += 2 if self.text[start] == "\\" else 1
        return _Item(chars=self.chars(self.text[start : self.at]))

    def chars(self, atom: str) -> frozenset[str]:
        literal = atom[-1]
        if len(atom) == 1 and literal != ".":
            return frozenset(literal)
        if len(atom) == 2 and not (literal.isascii() and literal.isalnum()):
            return frozenset(literal)  # an escaped sign
        if atom not in self.atoms:
            self.atoms[atom] = frozenset(re.findall(atom, _SAMPLE)) - {""}
        return self.atoms[atom]

    def quantified(self, item: _Item) -> _Item:
        sign = self.text[self.at : self.at + 1]
        counted = _QUANTIFIER.match(self.text, self.at) if sign == "{" else None
        if sign and sign in "*+?":
            self.at += 1
            item.low, item.many = (1 if sign == "+" else 0), sign != "?"
        elif counted:
            self.at = counted.end()
            low = int(counted[1] or 0)
            high = (int(counted[3]) if counted[3] else None) if counted[2] else low
            item.low, item.many = low, high is None or (high >= _MANY and high > low)
        else:
            return item
        if self.text[self.at : self.at + 1] in ("?", "+"):
            self.at += 1
        return item


def is_catastrophic(pattern: str) -> bool:
    """Whether `pattern` has a shape that takes a backtracking engine exponential time. Unreadable syntax: false."""
    reader = _Reader(pattern)
    try:
        return _any_ambiguous(reader.alternatives())
    except (re.error, IndexError, RecursionError):
        return False


def _class_end(text: str, start: int) -> int:
    at = start + 1
    at += text[at] == "^"
    at += text[at] == "]"
    while text[at] != "]":
        at += 2 if text[at] == "\\" else 1
    return at + 1


def _any_ambiguous(alternatives: list[list[_Item]]) -> bool:
    for item in (item for sequence in alternatives for item in sequence):
        if item.group is None:
            continue
        if item.many and (any(map(_divisible, item.group)) or _overlapping(item.group)):
            return True
        if _any_ambiguous(item.group):
            return True
    return False


def _divisible(sequence: list[_Item]) -> bool:
    """Whether one text can be split into repetitions of this body in more than one way."""
    flat = _flatten(sequence)
    for loop in (item for item in flat if item.many):
        fixed = [item for item in flat if item is not loop and item.low > 0]
        if all(item.chars & loop.chars for item in fixed):
            return True
    return False


def _flatten(sequence: list[_Item]) -> list[_Item]:
    """The sequence with groups of one alternative replaced by what is in them."""
    flat: list[_Item] = []
    for item in sequence:
        if item.group is None:
            flat.append(item)
        elif len(item.group) == 1:
            inner = _flatten(item.group[0])
            flat.extend(
                _Item(part.chars, part.group, min(part.low, item.low), part.many or (item.many and len(inner) == 1))
                for part in inner
            )
        else:
            flat.append(_Item(_first(item), None, item.low, item.many))
    return flat


def _first(item: _Item) -> frozenset[str]:
    if item.group is None:
        return item.chars
    return frozenset[str]().union(*(_first(sequence[0]) for sequence in item.group if sequence))


def _overlapping(alternatives: list[list[_Item]]) -> bool:
    if len(alternatives) > _MAX_ALTERNATIVES:
        return True
    flat = [_flatten(sequence) for sequence in alternatives]
    return any(
        all(a.chars & b.chars for a, b in zip(one, other, strict=False))
        for index, one in enumerate(flat)
        for other in flat[index + 1 :]
        if one and other
    )
