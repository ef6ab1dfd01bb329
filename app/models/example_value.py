"""An example value: what fits a JSON Schema, as far as a few fixed rules can tell. For models that think nothing up. Pure."""

from collections.abc import Mapping
from math import ceil
from typing import cast

Schema = Mapping[str, object]

MAX_DEPTH = 16
"""A schema may contain itself."""


def example(schema: Schema, text: str = "example") -> object:
    """A value for `schema`, the smallest that comes to mind. `text`: what its texts say where any text will do."""
    return _Example(schema, text).of(schema, 0)


class _Example:
    def __init__(self, root: Schema, text: str) -> None:
        self._root = root
        self._text = text

    def of(self, part: object, depth: int) -> object:
        if not isinstance(part, Mapping) or depth > MAX_DEPTH:
            return None
        schema = cast("Schema", part)
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        for key in ("enum", "examples"):
            given = schema.get(key)
            if isinstance(given, list) and given:
                return cast("list[object]", given)[0]
        target = schema.get("$ref")
        if isinstance(target, str):
            return self.of(self._target(target), depth + 1)
        for key in ("anyOf", "oneOf", "allOf"):
            given = schema.get(key)
            if isinstance(given, list) and given and "type" not in schema:
                return self.of(cast("list[object]", given)[0], depth + 1)
        return self._of_type(schema, depth)

    def _of_type(self, schema: Schema, depth: int) -> object:
        kind = schema.get("type", "object" if "properties" in schema else "string")
        if isinstance(kind, list):
            kind = cast("list[object]", kind)[0] if kind else "null"
        match kind:
            case "object":
                properties = cast("Schema", schema.get("properties") or {})
                names = cast("list[str]", schema.get("required") or list(properties))
                return {name: self.of(properties.get(name, {}), depth + 1) for name in names}
            case "array":
                return [
                    self.of(schema.get("items", {}), depth + 1) for _ in range(min(_count(schema, "minItems"), 100))
                ]
            case "string":
                least, most = _count(schema, "minLength"), schema.get("maxLength")
                text = self._text + "." * min(least - len(self._text), 10_000)
                return text[:most] if isinstance(most, int) else text
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case _:
                return None

    def _target(self, reference: str) -> object:
        found: object = self._root
        for token in reference.split("/")[1:]:
            found = _member(found, token.replace("~1", "/").replace("~0", "~"))
        return found


def _member(value: object, name: str) -> object:
    return cast("Schema", value).get(name) if isinstance(value, Mapping) else None


def _count(schema: Schema, name: str) -> int:
    value = schema.get(name)
    return value if isinstance(value, int) else 0


def _number(schema: Schema, *, whole: bool) -> float | int:
    found: float | int = 0
    for name, beyond in (("minimum", 0), ("exclusiveMinimum", 1)):
        least = schema.get(name)
        if isinstance(least, int | float) and found < least + beyond:
            found = least + beyond
    for name, beyond in (("maximum", 0), ("exclusiveMaximum", 1)):
        most = schema.get(name)
        if isinstance(most, int | float) and found > most - beyond:
            found = most - beyond
    return ceil(found) if whole else found
