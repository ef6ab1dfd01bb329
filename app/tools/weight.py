"""The weight of a schema: how many subschemas one check may have to look at, its references followed.

Two references to the same place double what is below them, so thirty short definitions can stand for a billion checks.
"""

from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import unquote

from app.core.values import immutable

MAX_NODES = 10_000
"""Subschemas of a schema with its references expanded. Large generated schemas have hundreds."""

MAX_CHAIN = 256
"""Levels of a schema with its references followed: both this count and the validator go down by recursion."""

_ONE = frozenset((
    "additionalProperties", "items", "contains", "propertyNames", "not", "if", "then", "else", "unevaluatedItems",
    "unevaluatedProperties", "contentSchema",
))  # fmt: skip
_MANY = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED = frozenset(("properties", "patternProperties", "dependentSchemas", "dependencies"))
_AGAIN = ("unevaluatedItems", "unevaluatedProperties")
"""They look a second time at what stands beside them."""

_VALUES_A_NODE = 16
"""So many values of an `enum` (or names of `required`) cost about as much as a subschema."""


@immutable
class Weight:
    nodes: int
    recursive: bool
    """Whether a part of it contains itself; such a part is counted once."""


class TooHeavy(Exception):
    """The schema cannot be taken. The message says why, and what to do."""


def weigh(schema: Mapping[str, object]) -> Weight:
    """Count `schema`, whose nesting is bounded already. Raises `TooHeavy`."""
    counter = _Counter(schema)
    return Weight(counter.count(schema, 0), counter.recursive)


class _Counter:
    def __init__(self, root: Mapping[str, object]) -> None:
        self._root = root
        self._anchors: dict[str, list[Mapping[str, object]]] | None = None
        self._known: dict[int, int] = {}
        self._open: set[int] = set()
        self.recursive = False

    def count(self, schema: object, level: int) -> int:
        if not isinstance(schema, Mapping):
            return 1
        members = cast("Mapping[str, object]", schema)
        known = self._known.get(id(members))
        if known is not None:
            return known
        if id(members) in self._open:
            self.recursive = True
            return 1
        if level > MAX_CHAIN:
            raise TooHeavy(f"more than {MAX_CHAIN} levels with its references followed; write it flatter")
        if level:
            _refuse_id(members)
        self._open.add(id(members))
        total = 0
        for child in self._children(members):
            total += self.count(child, level + 1)
            if total > MAX_NODES:
                break
        if any(name in members for name in _AGAIN):
            total *= 2
        total += 1 + (_length(members.get("enum")) + _length(members.get("required"))) // _VALUES_A_NODE
        if total > MAX_NODES:
            raise TooHeavy(f"more than {MAX_NODES} subschemas with its references expanded; write it shorter")
        self._open.discard(id(members))
        self._known[id(members)] = total
        return total

    def _children(self, members: Mapping[str, object]) -> Iterator[object]:
        for key, value in members.items():
            if key in _MANY or (key in _ONE and isinstance(value, list)):
                yield from cast("list[object]", value) if isinstance(value, list) else ()
            elif key in _ONE:
                yield value
            elif key in _NAMED:
                yield from cast("Mapping[str, object]", value).values() if isinstance(value, Mapping) else ()
            elif key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield from self._targets(value)

    def _targets(self, reference: str) -> Iterator[object]:
        """What a reference stands for. One that leads nowhere gives nothing: compiling refuses it."""
        place = unquote(reference.partition("#")[2])
        if place and not place.startswith("/"):
            yield from self._by_anchor().get(place, ())
            return
        target: object = self._root
        for token in place.split("/")[1:]:
            target = _member(target, token.replace("~1", "/").replace("~0", "~"))
            if target is None:
                return
        yield target

    def _by_anchor(self) -> dict[str, list[Mapping[str, object]]]:
        if self._anchors is None:
            self._anchors = {}
            todo: list[object] = [self._root]
            while todo:
                item = todo.pop()
                if isinstance(item, Mapping):
                    members = cast("Mapping[str, object]", item)
                    for name in ("$anchor", "$dynamicAnchor"):
                        anchor = members.get(name)
                        if isinstance(anchor, str):
                            self._anchors.setdefault(anchor, []).append(members)
                    todo.extend(members.values())
                elif isinstance(item, list):
                    todo.extend(cast("list[object]", item))
        return self._anchors


def _member(value: object, name: str) -> object:
    """One step of a pointer; `None` where it leads nowhere. Raises `TooHeavy` where references change their base."""
    found: object = None
    if isinstance(value, Mapping):
        found = cast("Mapping[str, object]", value).get(name)
    elif isinstance(value, list) and name.isascii() and name.isdigit() and len(name) < 10:
        items = cast("list[object]", value)
        found = items[int(name)] if int(name) < len(items) else None
    _refuse_id(found)
    return found


def _refuse_id(part: object) -> None:
    if isinstance(part, Mapping) and isinstance(cast("Mapping[str, object]", part).get("$id"), str):
        raise TooHeavy('a part may not have an "$id" of its own; refer to it by its place')


def _length(value: object) -> int:
    return len(cast("list[object]", value)) if isinstance(value, list) else 0
