"""Answer formats: a JSON Schema as providers take it to hold an answer to it. Pure.

What a provider does not take is left out of what it is sent, never out of what the answer is checked against.
"""

import re
from collections.abc import Mapping
from typing import cast

Schema = Mapping[str, object]

_LOOSE = frozenset((
    "allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies",
    "patternProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames", "contains", "minContains",
    "maxContains", "uniqueItems", "prefixItems", "minProperties", "maxProperties", "default", "$dynamicRef", "$anchor",
    "minLength", "maxLength",
))  # fmt: skip
"""Keywords that OpenAI's strict mode refuses (its guide to Structured Outputs, "Supported schemas")."""

_DROPPED = frozenset((
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "minProperties", "maxProperties", "propertyNames",
    "patternProperties", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies",
    "unevaluatedProperties", "unevaluatedItems", "$schema", "$id",
))  # fmt: skip
"""Keywords that Anthropic's structured outputs refuse (its guide, "JSON Schema limitations"); its SDKs drop them, too."""

_NAMED = frozenset(("properties", "$defs", "definitions"))
_PARTS = frozenset(("items", "anyOf", "allOf", "oneOf", "prefixItems", "additionalProperties"))

_KEEPS = re.compile(
    r"(?:[\w.-]+/)?(?:gpt-4o(?!-2024-05-13|-audio|-realtime)|gpt-4\.1|gpt-[5-9]|o1(?!-mini|-preview|\w)|o[34](?!\w))"
)
"""OpenAI's models with Structured Outputs, by name, at whatever address they are served; a gateway's prefix may stand before it."""


def keeps_formats(provider: str, model: str) -> bool:
    """Whether a model is known to hold its answers to a format. Of an unknown one nobody knows, so a tool is the safe way."""
    return provider == "openai" and _KEEPS.match(model) is not None


def is_strict(schema: Schema) -> bool:
    """Whether OpenAI's strict mode takes a schema of an object: all is required, nothing is added, no odd keyword."""
    if any(key in _LOOSE for key in schema):
        return False
    if schema.get("type") == "object" or "properties" in schema:
        properties = cast("Mapping[str, object]", schema.get("properties") or {})
        required = cast("list[object]", schema.get("required") or [])
        if schema.get("additionalProperties") is not False or set(properties) != set(required):
            return False
    return all(is_strict(part) for part in _parts(schema))


def closed(schema: Schema) -> dict[str, object]:
    """A schema as Anthropic takes it: its objects closed, what it does not know left out."""
    found: dict[str, object] = {}
    for key, value in schema.items():
        if key in _DROPPED:
            continue
        if key == "minItems":
            found[key] = min(cast("int", value), 1)
        elif key in _NAMED and isinstance(value, Mapping):
            found[key] = {name: _closed(item) for name, item in cast("Schema", value).items()}
        elif key == "oneOf":
            found["anyOf"] = _closed(value)
        elif key in _PARTS:
            found[key] = _closed(value)
        else:
            found[key] = value
    if found.get("type") == "object" or "properties" in found:
        found["additionalProperties"] = False
    return found


def _closed(part: object) -> object:
    if isinstance(part, Mapping):
        return closed(cast("Schema", part))
    return [_closed(item) for item in cast("list[object]", part)] if isinstance(part, list) else part


def _parts(schema: Schema) -> list[Schema]:
    found: list[object] = []
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            found += cast("Schema", value).values()
        elif key in _PARTS:
            found += cast("list[object]", value) if isinstance(value, list) else [value]
    return [cast("Schema", part) for part in found if isinstance(part, Mapping)]
