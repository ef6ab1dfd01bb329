"""Coercion: texts that models write where a schema asks for a number or a truth value, made what it asks for.

Only what loses nothing, only scalars, and only where the type does not take what came: `"3"` becomes 3, `"true"` true, 3.0
becomes 3 for an integer. A number's text is JSON's own (RFC 8259, section 6), without an exponent.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import cast

from app.core.json import MAX_INT
from app.tools.faults import escape

MAX_DEPTH = 64
"""Levels of a value that are looked at; JSON from outside has no more."""

EXACT = 2**53
"""Beyond it a float no longer tells one whole number from the next."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,40})?")
_BOOLEANS = {"true": True, "false": False}

Schema = Mapping[str, object]


class Coercion:
    """Fits arguments to one schema. Made once for each tool that asks for it."""

    __slots__ = ("_root",)

    def __init__(self, schema: Schema) -> None:
        self._root = schema

    def fit(self, arguments: dict[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
        """The arguments as the schema wants them, and JSON pointers to what was changed. What came stays as it is."""
        changed: list[str] = []
        fitted = self._fit(arguments, [self._root], "", changed, MAX_DEPTH)
        return cast("dict[str, object]", fitted), tuple(changed)

    def _fit(self, value: object, schemas: list[Schema], place: str, changed: list[str], left: int) -> object:
        if left == 0:
            return value
        applied = self._expanded(schemas)
        if isinstance(value, dict):
            return self._fit_members(cast("dict[str, object]", value), applied, place, changed, left)
        if isinstance(value, list):
            return self._fit_items(cast("list[object]", value), applied, place, changed, left)
        for schema in applied:
            types = self._types(schema)
            fitted = value if types is None else _scalar(value, types)
            if fitted is not value:
                changed.append(place)
                return fitted
        return value

    def _fit_members(
        self, value: dict[str, object], applied: list[Schema], place: str, changed: list[str], left: int
    ) -> dict[str, object]:
        result = value
        for name, item in value.items():
            below = [found for schema in applied for found in _of_member(schema, name)]
            fitted = self._fit(item, below, f"{place}/{escape(name)}", changed, left - 1) if below else item
            if fitted is not item:
                result = dict(value) if result is value else result
                result[name] = fitted
        return result

    def _fit_items(
        self, value: list[object], applied: list[Schema], place: str, changed: list[str], left: int
    ) -> list[object]:
        result = value
        for index, item in enumerate(value):
            below = [found for schema in applied for found in _of_item(schema, index)]
            fitted = self._fit(item, below, f"{place}/{index}", changed, left - 1) if below else item
            if fitted is not item:
                result = list(value) if result is value else result
                result[index] = fitted
        return result

    def _expanded(self, schemas: list[Schema]) -> list[Schema]:
        """The schemas with what they refer to or are made of; of alternatives, only where there is one beside null."""
        found: list[Schema] = []
        todo = list(schemas)
        while todo and len(found) < 256:  # a cycle of references comes to its end here
            schema = todo.pop()
            if any(schema is known for known in found):
                continue
            found.append(schema)
            target = self._target(schema.get("$ref"))
            todo += [target] if target is not None else []
            todo += _schemas(schema.get("allOf"))
            for key in ("anyOf", "oneOf"):
                branches = [branch for branch in _schemas(schema.get(key)) if branch.get("type") != "null"]
                todo += branches if len(branches) == 1 and len(_schemas(schema.get(key))) > 1 else []
        return found

    def _types(self, schema: Schema) -> frozenset[str] | None:
        """The types a schema takes by its `type`, or by those of all its alternatives; `None`: it does not say."""
        own = schema.get("type")
        if isinstance(own, str):
            return frozenset((own,))
        if isinstance(own, list):
            return frozenset(str(name) for name in cast("list[object]", own))
        for key in ("anyOf", "oneOf"):
            branches = _schemas(schema.get(key))
            if branches:
                of_each = [self._branch_types(branch) for branch in branches]
                known = [types for types in of_each if types is not None]
                return frozenset[str]().union(*known) if len(known) == len(of_each) else None
        return None

    def _branch_types(self, branch: Schema) -> frozenset[str] | None:
        own = branch.get("type")
        target = self._target(branch.get("$ref"))
        if own is None and target is not None:
            own = target.get("type")
        if isinstance(own, str):
            return frozenset((own,))
        return frozenset(str(name) for name in cast("list[object]", own)) if isinstance(own, list) else None

    def _target(self, ref: object) -> Schema | None:
        """Where a `$ref` of the form `#/a/b` leads (schemas may refer to nothing else than themselves)."""
        if not isinstance(ref, str) or not ref.startswith("#"):
            return None
        place: object = self._root
        for token in ref.split("/")[1:]:
            key = token.replace("~1", "/").replace("~0", "~")
            place = cast("object", place.get(key)) if isinstance(place, dict) else None  # pyright: ignore[reportUnknownMemberType]
        return cast("Schema", place) if isinstance(place, dict) else None


def _of_member(schema: Schema, name: str) -> list[Schema]:
    properties = schema.get("properties")
    named = cast("dict[str, object]", properties).get(name) if isinstance(properties, dict) else None
    if named is not None:
        return [cast("Schema", named)] if isinstance(named, dict) else []
    if "patternProperties" in schema:  # which of them applies is the validator's business
        return []
    others = schema.get("additionalProperties")
    return [cast("Schema", others)] if isinstance(others, dict) else []


def _of_item(schema: Schema, index: int) -> list[Schema]:
    first = _schemas(schema.get("prefixItems"))
    if index < len(first):
        return [first[index]]
    items = schema.get("items")
    return [cast("Schema", items)] if isinstance(items, dict) else []


def _schemas(value: object) -> list[Schema]:
    if not isinstance(value, list):
        return []
    return [cast("Schema", item) for item in cast("list[object]", value) if isinstance(item, dict)]


def _scalar(value: object, types: frozenset[str]) -> object:
    """What `value` is for these types; itself where they take it, or where something would be lost."""
    if isinstance(value, float):
        whole = "integer" in types and "number" not in types and value.is_integer() and abs(value) <= EXACT
        return int(value) if whole else value
    if not isinstance(value, str) or "string" in types:
        return value
    if "boolean" in types and value in _BOOLEANS:
        return _BOOLEANS[value]
    if not _NUMBER.fullmatch(value):
        return value
    exact = Decimal(value)
    if "integer" in types or "number" in types:
        if exact == exact.to_integral_value() and abs(exact) <= MAX_INT and not (exact == 0 and value[0] == "-"):
            return int(exact)
        if "number" in types and Decimal(repr(float(exact))) == exact:
            return float(exact)
    return value
