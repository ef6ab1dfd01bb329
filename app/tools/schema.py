"""The schema of a tool's arguments, or of its output: compiled once, never fetching anything."""

import itertools
from collections.abc import Iterable, Mapping
from typing import cast

import jsonschema_rs
import orjson

from app.core.errors import FieldError, InvalidRequest
from app.tools.faults import escape, fault_of, pointer_of, shortened
from app.tools.patterns import is_catastrophic
from app.tools.weight import TooHeavy, Weight, weigh

MAX_SCHEMA_DEPTH = 32
"""Deepest nesting of a schema (security requirements)."""

MAX_PATTERN = 1000
MAX_PATTERNS = 20_000
"""Characters of one pattern, and of all patterns of a schema."""

LIGHT = 32
"""Subschemas up to which arguments of any size are checked without looking at their size first."""

MAX_WORK = 2 * 10**8
"""Subschemas times bytes of arguments: about a second on a busy core."""

MAX_FAULT_WORK = 3 * 10**8
"""Subschemas times bytes squared (each fault holds its path): some ten megabytes while the faults are told."""

MAX_ERRORS = 5

_LINEAR = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
"""The engine without backtracking: it has neither look-around nor back-references, and takes linear time."""


class ArgumentSchema:
    """A compiled JSON Schema (2020-12) for one tool's arguments, or for what it answers. Nothing is ever fetched."""

    __slots__ = ("_validator", "_weight", "is_valid")

    def __init__(self, schema: Mapping[str, object]) -> None:
        """Raises `ValueError` (from jsonschema-rs) for a schema that cannot be compiled; see `check_schema`."""
        self._validator = jsonschema_rs.Draft202012Validator(dict(schema), offline=True, pattern_options=_LINEAR)
        try:
            self._weight = weigh(schema)
        except TooHeavy:  # stored before there was a limit: nothing is checked against it any more
            self._weight = Weight(MAX_WORK, recursive=True)
        self.is_valid = self._validator.is_valid if self._weight.nodes <= LIGHT else self._is_valid

    def faults(self, arguments: object) -> list[FieldError]:
        """What is wrong, most `MAX_ERRORS` places: JSON pointers into the arguments, and what was expected there.

        The validator collects every fault before it gives the first, each with its whole path, and forgets what it
        has checked of a recursive schema: where that could grow large, one place is told, or none.
        """
        size = _size(arguments)
        if self._too_much(size):
            return [FieldError("", "they are too large to be checked against a schema of this size")]
        weight = self._weight
        work = weight.nodes ** min(_depth(arguments), 16) if weight.recursive else weight.nodes
        if work * size * size <= MAX_FAULT_WORK:
            errors = self._validator.iter_errors(arguments)
            return [fault_of(error) for error in itertools.islice(errors, MAX_ERRORS)]
        if not weight.recursive:
            try:
                self._validator.validate(arguments)
            except jsonschema_rs.ValidationError as error:
                return [fault_of(error)]
        return [FieldError("", "they do not fit, and are too large or too deep to say where")]

    def _is_valid(self, arguments: object) -> bool:
        return not self._too_much(_size(arguments)) and self._validator.is_valid(arguments)

    def _too_much(self, size: int) -> bool:
        return self._weight.nodes > LIGHT and self._weight.nodes * size > MAX_WORK


def _size(value: object) -> int:
    """Bytes as JSON. Raises `ValueError` for what JSON cannot say."""
    try:
        return len(orjson.dumps(value))
    except TypeError as error:
        raise ValueError("no JSON value") from error


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [child for item in level for child in _containers(item)]
    return depth


def _containers(item: object) -> list[object]:
    if isinstance(item, dict):
        children: Iterable[object] = cast("dict[str, object]", item).values()
    elif isinstance(item, list):
        children = cast("list[object]", item)
    else:
        return []
    return [child for child in children if isinstance(child, dict | list)]


def check_schema(schema: Mapping[str, object], pointer: str, *, of_object: bool = True) -> ArgumentSchema:
    """Compile a schema that came from outside. `of_object`: it must be one of an object, as parameters are.

    Raises `InvalidRequest`: not an object schema, nested deeper than `MAX_SCHEMA_DEPTH`, a `$ref` that leads out of
    it, more than `weight.MAX_NODES` subschemas with its references expanded, a pattern that could hang or that needs
    backtracking, too many of them, anything 2020-12 forbids. `pointer` says where it stands.
    """
    if of_object and schema.get("type") != "object":
        raise _invalid("A tool's parameters must be an object schema.", f"{pointer}/type", 'must be "object"')
    _walk(schema, pointer)
    try:
        weigh(schema)
    except TooHeavy as error:
        raise _invalid("The schema is too large to be checked against.", pointer, str(error)) from error
    try:
        return ArgumentSchema(schema)
    except jsonschema_rs.ValidationError as error:
        place = f"{pointer}{pointer_of(error.instance_path)}"
        if "pattern" in error.schema_path or "regex" in error.message:
            detail = f"{shortened(error.message)}; look-around, back-references and huge repetitions are not supported"
        else:
            detail = shortened(error.message)
        raise _invalid("The schema is not valid JSON Schema 2020-12.", place, detail) from error
    except ValueError as error:
        raise _invalid("The schema is not valid JSON Schema 2020-12.", pointer, shortened(str(error))) from error


class _Place:
    """Where a part of the schema stands. Its pointer is made for a refusal only: made for each part, a long key would
    be copied as often as it has parts below.
    """

    __slots__ = ("key", "parent")

    def __init__(self, parent: "_Place | None", key: str | int) -> None:
        self.parent = parent
        self.key = key

    def pointer(self, *more: str) -> str:
        """RFC 6901, with `more` keys below; the root's key is the pointer of the schema itself."""
        tokens = [f"/{escape(key)}" for key in reversed(more)]
        place = self
        while place.parent is not None:
            tokens.append(f"/{escape(str(place.key))}")
            place = place.parent
        return str(place.key) + "".join(reversed(tokens))


def _walk(schema: Mapping[str, object], pointer: str) -> None:
    patterns = 0
    level: list[tuple[_Place, object]] = [(_Place(None, pointer), schema)]
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        below: list[tuple[_Place, object]] = []
        for place, item in level:
            if isinstance(item, dict):
                members = cast("dict[str, object]", item)
                patterns += _check_members(members, place, patterns)
                children: Iterable[tuple[str | int, object]] = members.items()
            else:
                children = enumerate(cast("list[object]", item))
            for key, child in children:
                if isinstance(child, dict | list):
                    below.append((_Place(place, key), cast("object", child)))
        if not below:
            return
        level = below
    raise _invalid(
        f"The schema is nested deeper than {MAX_SCHEMA_DEPTH} levels.", pointer, f"at most {MAX_SCHEMA_DEPTH} levels"
    )


def _check_members(members: Mapping[str, object], place: _Place, before: int) -> int:
    """The characters of the patterns here; `before`: those of the patterns so far."""
    for key in ("$ref", "$dynamicRef"):
        target = members.get(key)
        if isinstance(target, str) and not target.startswith("#"):
            raise _invalid(
                "A schema may only refer to itself.", place.pointer(key), 'must begin with "#"; nothing is fetched'
            )
    named = members.get("patternProperties")
    found = (
        [("patternProperties", name) for name in cast("dict[str, object]", named)] if isinstance(named, dict) else []
    )
    own = members.get("pattern")
    if isinstance(own, str):
        found.append(("pattern", own))
    length = 0
    for key, pattern in found:
        length += len(pattern)
        if before + length > MAX_PATTERNS:
            raise _invalid(
                "The patterns in the schema are too long.",
                place.pointer(key),
                f"at most {MAX_PATTERNS} characters in all patterns together",
            )
        if len(pattern) > MAX_PATTERN or is_catastrophic(pattern):
            raise _invalid(
                "A pattern in the schema could take exponential time.",
                place.pointer(key) if key == "pattern" else place.pointer(key, pattern),
                f"nested or overlapping repetition, or more than {MAX_PATTERN} characters; write it without",
            )
    return length


def _invalid(message: str, pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest(message, errors=(FieldError(pointer, detail),))
