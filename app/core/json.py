"""JSON text: how values become bytes, and which values are allowed in."""

import math
import re

import orjson

from app.core.errors import FieldError, InvalidRequest

MAX_DEPTH = 64
"""Deepest nesting of arrays and objects taken from outside. Far above real payloads, far below any stack."""

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
    """Refuse parsed JSON that we could not store and give back unchanged. Raises `InvalidRequest` (see `decode_strict`)."""
    level: list[tuple[str, object]] = [("", value)]
    for _ in range(MAX_DEPTH + 1):
        below: list[tuple[str, object]] = []
        for pointer, item in level:
            _check_item(pointer, item, below)
        if not below:
            return
        level = below
    raise InvalidRequest(
        f"The body is nested deeper than {MAX_DEPTH} levels.",
        errors=(FieldError(level[0][0][:200], "nested too deep"),),
    )


def _check_item(pointer: str, item: object, below: list[tuple[str, object]]) -> None:
    if isinstance(item, str):
        if "\x00" in item:
            raise _refusal(pointer, "text must not contain U+0000")
    elif isinstance(item, bool) or item is None:
        return
    elif isinstance(item, int):
        if not -MAX_INT - 1 <= item <= MAX_INT:
            raise _refusal(pointer, "number is beyond 64 bits; send it as text")
    elif isinstance(item, float):
        if not math.isfinite(item) or abs(item) > MAX_INT:
            raise _refusal(pointer, "number is beyond 64 bits; send it as text")
    elif isinstance(item, dict):
        for key, child in item.items():  # pyright: ignore[reportUnknownVariableType]
            if "\x00" in key:
                raise _refusal(pointer, "a key must not contain U+0000")
            below.append((f"{pointer}/{_escape(str(key))}", child))  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(item, list):
        below.extend((f"{pointer}/{index}", child) for index, child in enumerate(item))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _refusal(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest(
        f"The body holds a value that cannot be kept: {detail}.", errors=(FieldError(pointer, detail),)
    )
