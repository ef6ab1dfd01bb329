"""JSON text: how values become bytes, and which values are allowed in."""

import math
import re
from collections.abc import Iterable, Iterator
from typing import cast

import orjson

from app.core.errors import FieldError, InvalidRequest

MAX_DEPTH = 64
"""Deepest nesting of arrays and objects taken from outside. Far above real payloads, far below any stack."""

MAX_POINTER = 1000
"""Longest JSON pointer that is told, in characters: keys may be as long as a body."""

MAX_INT = 2**63 - 1
"""Largest whole number both databases, JavaScript-free JSON readers and we agree on (a signed 64-bit integer)."""


def encode(value: object) -> bytes:
    """`value` as compact UTF-8 JSON. Raises `TypeError` for what JSON cannot say (non-string keys, sets, NaN is `null`)."""
    return orjson.dumps(value)


def encode_text(value: object) -> str:
    """Like `encode`, as text: what a model is shown of a value that is not text already."""
    return orjson.dumps(value).decode()


def decode(data: bytes | str) -> object:
    """Parse JSON that we wrote ourselves, or whose limits were checked. Raises `ValueError`."""
    return orjson.loads(data)


def decode_strict(data: bytes) -> object:
    """Parse JSON from outside.

    Raises `InvalidRequest`: not JSON or not UTF-8 (NaN and lone surrogates are neither), nested deeper than
    `MAX_DEPTH`, a text with U+0000 (Postgres cannot store it), a number beyond a signed 64-bit integer or infinite.
    """
    try:
        value: object = orjson.loads(data)
    except ValueError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.", code="invalid_json") from error
    if _may_be_odd(data):
        check_value(value)
    return value


_ODD = re.compile(rb"\\u0000|[0-9]{19}|[0-9][eE]")


def _may_be_odd(data: bytes) -> bool:
    """Whether valid JSON text can hold anything that `check_value` refuses: an ordinary body is let through by its looks.

    U+0000 must be escaped in JSON; a number beyond 64 bits has 19 digits or an exponent; nesting needs brackets.
    """
    return data.count(b"[") + data.count(b"{") > MAX_DEPTH or _ODD.search(data) is not None


def check_value(value: object) -> None:
    """Refuse parsed JSON that we could not store and give back unchanged. Raises `InvalidRequest` (see `decode_strict`).

    Level by level, without recursion and without a path to each element: that would cost key length times elements. The
    path is looked for only when there is something to refuse.
    """
    level: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for item in level:
            detail = _fault(item)
            if detail is not None:
                raise _refusal(_path_to_fault(value), detail)
            if isinstance(item, dict):
                below.extend(item.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
            elif isinstance(item, list):
                below.extend(item)  # pyright: ignore[reportUnknownArgumentType]
        if not below:
            return
        level = below
    raise InvalidRequest(
        f"The body is nested deeper than {MAX_DEPTH} levels.", errors=(FieldError("", "nested too deep"),)
    )


def _fault(item: object) -> str | None:
    """What is wrong with one value itself, whatever it holds."""
    if isinstance(item, str):
        return "text must not contain U+0000" if "\x00" in item else None
    if isinstance(item, bool):
        return None
    if isinstance(item, int):
        return None if -MAX_INT - 1 <= item <= MAX_INT else "number is beyond 64 bits; send it as text"
    if isinstance(item, float):
        fits = math.isfinite(item) and abs(item) <= MAX_INT
        return None if fits else "number is beyond 64 bits; send it as text"
    if isinstance(item, dict) and any("\x00" in key for key in item):  # pyright: ignore[reportUnknownVariableType]
        return "a key must not contain U+0000"
    return None


def _path_to_fault(value: object) -> str:
    """The JSON pointer of the first faulty value in reading order; only the path down to where it looks is kept."""
    path: list[str] = []
    open_items: list[Iterator[tuple[object, object]]] = [iter([("", value)])]
    while open_items:
        entry = next(open_items[-1], None)
        if entry is None or len(open_items) > MAX_DEPTH + 2:
            open_items.pop()
            if path:
                path.pop()
            continue
        key, item = entry
        if _fault(item) is not None:
            return "".join("/" + _escape(part) for part in [*path[1:], *([str(key)] if path else [])])[:MAX_POINTER]
        if isinstance(item, dict | list):
            path.append(str(key))
            pairs = item.items() if isinstance(item, dict) else enumerate(item)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            open_items.append(iter(cast("Iterable[tuple[object, object]]", pairs)))
    return ""


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _refusal(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest(
        f"The body holds a value that cannot be kept: {detail}.", errors=(FieldError(pointer, detail),)
    )
