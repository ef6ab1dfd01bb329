"""Fields of a JSON object: read with their type, absent where it is another one."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

JsonObject = dict[str, Any]
JsonObjects = list[JsonObject]


class NotOurs(ValueError):
    """JSON that lacks what every Runwire server says. The message names what is missing."""


def object_of(value: object, what: str) -> JsonObject:
    """`value` as a JSON object. Raises `NotOurs`."""
    if not isinstance(value, dict):
        raise NotOurs(f"{what} that is not a JSON object")
    return cast("JsonObject", value)


def required_text(data: Mapping[str, Any], name: str, what: str) -> str:
    """Raises `NotOurs`."""
    value = data.get(name)
    if not isinstance(value, str):
        raise NotOurs(f"{what} without `{name}`")
    return value


def optional_text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) else None


def number(data: Mapping[str, Any], name: str) -> int:
    """0 where there is none."""
    value = data.get(name)
    return value if isinstance(value, int) else 0


def optional_object(data: Mapping[str, Any], name: str) -> JsonObject | None:
    value = data.get(name)
    return cast("JsonObject", value) if isinstance(value, dict) else None


def objects(value: object) -> JsonObjects:
    """The objects of a list; empty for what is none."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("JsonObject", item) for item in items if isinstance(item, dict)]


def optional_time(data: Mapping[str, Any], name: str) -> datetime | None:
    """An aware time; one without an offset is taken for UTC."""
    value = data.get(name)
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)  # RFC 3339 with `Z` from Python 3.11 on
    except ValueError:
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at
