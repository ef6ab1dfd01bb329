"""A fault of a value against its schema, told so that a model can mend it: the place, what was expected, what came."""

from collections.abc import Callable, Sequence
from typing import cast

import jsonschema_rs
import orjson

from app.core.errors import FieldError

MAX_DETAIL = 300
MAX_SHOWN = 80
"""Characters of what came, and of one thing that was expected."""

MAX_CHOICES = 10
"""Allowed values, or alternatives, that are told."""

_ARTICLES = {"integer": "an integer", "array": "an array", "object": "an object", "null": "null"}


def fault_of(error: jsonschema_rs.ValidationError) -> FieldError:
    """Where it is wrong (a JSON pointer into the value), and what to do about it."""
    return FieldError(shortened(pointer_of(error.instance_path)), shortened(_detail(error)))


def escape(key: str) -> str:
    """A key as one token of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def pointer_of(path: Sequence[str | int]) -> str:
    return "".join(f"/{escape(str(part))}" for part in path)


def shortened(text: str, limit: int = MAX_DETAIL) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _detail(error: jsonschema_rs.ValidationError) -> str:
    kind = error.kind
    keyword, value = kind.name, cast("object", getattr(kind, "value", None))
    if keyword in ("required", "dependentRequired"):
        return f"the property {_json(value)} is missing"
    if keyword in ("additionalProperties", "unevaluatedProperties") and isinstance(value, list):
        names = cast("list[object]", value)
        said = (
            "property {} is not allowed; leave it out"
            if len(names) == 1
            else "properties {} are not allowed; leave them out"
        )
        return f"the {said.format(_listed(names, 'and'))}"
    expected = _expected(keyword, value)
    if expected is None and keyword in ("anyOf", "oneOf"):
        expected = _alternatives(error)
    if expected is None:
        return error.message
    return f"expected {expected}, got {_shown(cast('object', error.instance))}"


def _expected(keyword: str, value: object) -> str | None:
    words = _WORDS.get(keyword)
    return None if words is None else words(value)


def _types(value: object) -> str:
    names = cast("list[str]", value) if isinstance(value, list) else [str(value)]
    return " or ".join(_ARTICLES.get(name, f"a {name}") for name in names)


def _one_of(value: object) -> str:
    options = cast("list[object]", value) if isinstance(value, list) else [value]
    return f"one of {_listed(options, 'or')}"


_WORDS: dict[str, Callable[[object], str]] = {
    "type": _types,
    "enum": _one_of,
    "const": lambda value: _json(value),
    "minimum": lambda value: f"a number of at least {value}",
    "maximum": lambda value: f"a number of at most {value}",
    "exclusiveMinimum": lambda value: f"a number greater than {value}",
    "exclusiveMaximum": lambda value: f"a number less than {value}",
    "multipleOf": lambda value: f"a multiple of {value}",
    "minLength": lambda value: f"a text of at least {value} characters",
    "maxLength": lambda value: f"a text of at most {value} characters",
    "pattern": lambda value: f"a text that matches the pattern {shortened(str(value), MAX_SHOWN)}",
    "format": lambda value: f"a text in the format {value}",
    "minItems": lambda value: f"at least {value} items",
    "maxItems": lambda value: f"at most {value} items",
    "uniqueItems": lambda _: "items that all differ",
    "minProperties": lambda value: f"at least {value} properties",
    "maxProperties": lambda value: f"at most {value} properties",
}


def _alternatives(error: jsonschema_rs.ValidationError) -> str | None:
    """What each branch of an `anyOf` or `oneOf` asks for, where each can say it in a word."""
    context = cast("list[list[jsonschema_rs.ValidationError]] | None", getattr(error.kind, "context", None))
    if not context or len(context) > MAX_CHOICES:
        return None
    found: list[str] = []
    for branch in context:
        first = branch[0] if branch else None
        if first is None or first.instance_path != error.instance_path:
            return None
        expected = _expected(first.kind.name, cast("object", getattr(first.kind, "value", None)))
        if expected is None:
            return None
        found.append(expected)
    return ", or ".join(found)


def _listed(values: Sequence[object], word: str) -> str:
    shown = [_json(value) for value in values[:MAX_CHOICES]]
    if len(values) > MAX_CHOICES:
        shown.append(f"{len(values) - MAX_CHOICES} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {word} {shown[-1]}"


def _shown(value: object) -> str:
    """What came, in short: a scalar as JSON, of anything larger only its kind and size."""
    if isinstance(value, dict):
        return _counted("an object with", len(cast("dict[str, object]", value)), "property", "properties")
    if isinstance(value, list):
        return _counted("an array of", len(cast("list[object]", value)), "item", "items")
    if isinstance(value, str):
        kind = "the text " if len(value) <= MAX_SHOWN else f"a text of {len(value)} characters, "
        return kind + _json(value)
    return _json(value)


def _counted(what: str, count: int, one: str, many: str) -> str:
    return f"{what} {count} {one if count == 1 else many}"


def _json(value: object) -> str:
    if isinstance(value, str) and len(value) > MAX_SHOWN:
        value = f"{value[:MAX_SHOWN]}…"
    try:
        return shortened(orjson.dumps(value).decode(), MAX_SHOWN + 4)
    except TypeError:  # a whole number beyond 64 bits
        return shortened(str(value), MAX_SHOWN)
