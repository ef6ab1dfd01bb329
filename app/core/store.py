"""Items of the store: what is kept under a namespace and a key, and what may be kept."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Generic, TypeVar, cast

import orjson

from app.core.errors import FieldError, InvalidRequest
from app.core.values import immutable

T = TypeVar("T")

SEPARATOR = "."
"""Stands between labels where a namespace is one text; so no label has it (as in LangGraph's store)."""

MAX_LABELS = 8
MAX_LABEL = 64
"""Characters of a label."""

MAX_NAMESPACE_BYTES = 1000
"""Of all labels in UTF-8. With a tenant and a key it stays below the 2,700 bytes that an index of Postgres takes."""

MAX_KEY = 255
"""Characters of a key."""

MAX_VALUE_BYTES = 256 * 1024
"""A value as JSON in UTF-8."""

MAX_FIELDS = 128
"""Fields of a value: each is a row of its own, by which the item is found."""

MAX_FILTERS = 16
MAX_TTL_S = 10 * 366 * 86400

Namespace = tuple[str, ...]


@immutable
class StoredItem:
    """An item as it was read. Times are milliseconds since the epoch, UTC."""

    namespace: Namespace
    key: str
    text: str
    """The value as JSON."""
    version: int
    """1 when it was made; one more with each change."""
    created_at: int
    updated_at: int
    expires_at: int | None
    """From then on it is gone; `None`: never."""
    id: str = field(repr=False)

    @property
    def value(self) -> dict[str, object]:
        """A copy that nobody else holds."""
        return orjson.loads(self.text)


@immutable
class StorePage(Generic[T]):
    """A part of a list; `next_cursor` asks for what comes after it, `None`: nothing does."""

    data: Sequence[T]
    next_cursor: str | None


def namespace_of(labels: object, at: str, *, prefix: bool = False) -> Namespace:
    """Checked labels; `at` is their JSON pointer. A `prefix` may be empty. Raises `InvalidRequest`."""
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise _wrong(at, "must be a list of labels")
    given = cast("Sequence[object]", labels)
    if not (0 if prefix else 1) <= len(given) <= MAX_LABELS:
        raise _wrong(at, f"must have {'at most' if prefix else '1 to'} {MAX_LABELS} labels")
    found: list[str] = []
    for place, label in enumerate(given):
        if not isinstance(label, str) or not 1 <= len(label) <= MAX_LABEL:
            raise _wrong(f"{at}/{place}", f"a label is a text of 1 to {MAX_LABEL} characters")
        if SEPARATOR in label:
            raise _wrong(f"{at}/{place}", f"a label must not contain `{SEPARATOR}`")
        _check_text(label, f"{at}/{place}")
        found.append(label)
    if sum(len(label.encode()) for label in found) > MAX_NAMESPACE_BYTES:
        raise _wrong(at, f"all labels together have at most {MAX_NAMESPACE_BYTES} bytes")
    return tuple(found)


def check_key(key: object, at: str) -> str:
    """Raises `InvalidRequest`."""
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY:
        raise _wrong(at, f"a key is a text of 1 to {MAX_KEY} characters")
    _check_text(key, at)
    return key


def text_of(value: Mapping[str, object], at: str) -> str:
    """A value of JSON as text. Raises `InvalidRequest`."""
    if len(value) > MAX_FIELDS:
        raise _wrong(at, f"a value has at most {MAX_FIELDS} fields; put more of them into one that is an object")
    data = orjson.dumps(value)
    if len(data) > MAX_VALUE_BYTES:
        raise _wrong(at, f"a value is at most {MAX_VALUE_BYTES} bytes of JSON")
    return data.decode()


def check_ttl(ttl_s: float | None, at: str) -> int | None:
    """How long an item is kept, in milliseconds. Raises `InvalidRequest`."""
    if ttl_s is None:
        return None
    if not isinstance(ttl_s, int | float) or not 0 < ttl_s <= MAX_TTL_S:
        raise _wrong(at, f"must be above 0 and at most {MAX_TTL_S} seconds, or null")
    return max(1, round(ttl_s * 1000))


def comparable(fields: Mapping[str, object], at: str, most: int) -> dict[str, str]:
    """By field: a text that is the same exactly for equal values of JSON (1 and 1.0 are). Raises `InvalidRequest`."""
    if len(fields) > most:
        raise _wrong(at, f"at most {most} fields")
    return {name: orjson.dumps(_plain(value), option=orjson.OPT_SORT_KEYS).decode() for name, value in fields.items()}


def _plain(value: object) -> object:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[object]", value)]
    return value


def _check_text(text: str, at: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _wrong(at, "must be valid Unicode") from None
    if "\x00" in text:
        raise _wrong(at, "must not contain U+0000")


def _wrong(at: str, detail: str) -> InvalidRequest:
    return InvalidRequest("The store does not take this; see `errors`.", errors=(FieldError(at, detail),))
