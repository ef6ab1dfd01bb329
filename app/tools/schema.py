"""The schema of a tool's arguments: compiled once, and what is wrong with arguments in words a model can act on."""

from collections.abc import Mapping
from typing import cast

import jsonschema_rs

from app.core.errors import FieldError, InvalidRequest
from app.tools.patterns import is_catastrophic

MAX_SCHEMA_DEPTH = 32
"""Deepest nesting of a schema (security requirements)."""

MAX_ERRORS = 5
MAX_DETAIL = 300

_LINEAR = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
"""The engine without backtracking: it has neither look-around nor back-references, and takes linear time."""


class ArgumentSchema:
    """A compiled JSON Schema (2020-12) for one tool's arguments. Nothing is ever fetched."""

    __slots__ = ("_validator", "is_valid")

    def __init__(self, schema: Mapping[str, object]) -> None:
        """Raises `ValueError` (from jsonschema-rs) for a schema that cannot be compiled; see `check_schema`."""
        self._validator = jsonschema_rs.Draft202012Validator(dict(schema), offline=True, pattern_options=_LINEAR)
        self.is_valid = self._validator.is_valid

    def faults(self, arguments: object) -> list[FieldError]:
        """What is wrong, most `MAX_ERRORS` places: JSON pointers into the arguments, and what was expected there."""
        found: list[FieldError] = []
        for error in self._validator.iter_errors(arguments):
            found.append(FieldError(_pointer(error.instance_path), _short(error.message)))
            if len(found) == MAX_ERRORS:
                break
        return found


def check_schema(schema: Mapping[str, object], pointer: str) -> ArgumentSchema:
    """Compile a schema that came from outside.

    Raises `InvalidRequest`: not an object schema, nested deeper than `MAX_SCHEMA_DEPTH`, a `$ref` that leads out of
    it, a pattern that could hang or that needs backtracking, anything 2020-12 forbids. `pointer` says where it stands.
    """
    if schema.get("type") != "object":
        raise _invalid("A tool's parameters must be an object schema.", f"{pointer}/type", 'must be "object"')
    _walk(schema, pointer)
    try:
        return ArgumentSchema(schema)
    except jsonschema_rs.ValidationError as error:
        place = f"{pointer}{_pointer(error.instance_path)}"
        if "pattern" in error.schema_path or "regex" in error.message:
            detail = f"{_short(error.message)}; look-around, back-references and huge repetitions are not supported"
        else:
            detail = _short(error.message)
        raise _invalid("The schema is not valid JSON Schema 2020-12.", place, detail) from error
    except ValueError as error:
        raise _invalid("The schema is not valid JSON Schema 2020-12.", pointer, _short(str(error))) from error


def _walk(schema: Mapping[str, object], pointer: str) -> None:
    level: list[tuple[str, object]] = [(pointer, schema)]
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        below: list[tuple[str, object]] = []
        for place, item in level:
            if isinstance(item, dict):
                members = cast("dict[str, object]", item)
                _check_members(members, place)
                below.extend((f"{place}/{escape(key)}", child) for key, child in members.items())
            elif isinstance(item, list):
                below.extend((f"{place}/{index}", child) for index, child in enumerate(cast("list[object]", item)))
        if not below:
            return
        level = below
    raise _invalid(
        f"The schema is nested deeper than {MAX_SCHEMA_DEPTH} levels.", pointer, f"at most {MAX_SCHEMA_DEPTH} levels"
    )


def _check_members(members: Mapping[str, object], place: str) -> None:
    for key in ("$ref", "$dynamicRef"):
        target = members.get(key)
        if isinstance(target, str) and not target.startswith("#"):
            raise _invalid(
                "A schema may only refer to itself.", f"{place}/{key}", 'must begin with "#"; nothing is fetched'
            )
    patterns = members.get("patternProperties")
    named = list(cast("dict[str, object]", patterns)) if isinstance(patterns, dict) else []
    own = members.get("pattern")
    for pattern in [*named, *([own] if isinstance(own, str) else [])]:
        if len(pattern) > 1000 or is_catastrophic(pattern):
            raise _invalid(
                "A pattern in the schema could take exponential time.",
                f"{place}/pattern" if pattern == own else f"{place}/patternProperties/{escape(pattern)}",
                "nested or overlapping repetition; write it without",
            )


def escape(key: str) -> str:
    """A key as one token of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _pointer(path: list[str | int]) -> str:
    return "".join(f"/{escape(str(part))}" for part in path)


def _short(text: str) -> str:
    return text if len(text) <= MAX_DETAIL else f"{text[:MAX_DETAIL]}…"


def _invalid(message: str, pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest(message, errors=(FieldError(pointer, detail),))
