"""A tool's result as a JSON value that can be stored and shown, within the tool's size limit."""

import hashlib
import re
from collections.abc import Mapping
from encodings import normalize_encoding
from encodings.aliases import aliases
from typing import cast

import orjson
from pydantic_core import to_jsonable_python

from app.agent.ports import WholeResult
from app.core.errors import InvalidRequest
from app.core.json import check_value, decode

KEPT_BYTES = 8 * 1024 * 1024
"""How much is kept of a result that is too long to be shown."""

ANSWER_MEMBERS = frozenset(("output", "error", "update", "goto"))
"""What an answer in the contract's shape may have: any other JSON is the output itself."""

_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]{1,64}/[a-z0-9.+-]{1,64}(?:; ?charset=[a-z0-9._-]{1,32})?")
_OPTIONS = orjson.OPT_NON_STR_KEYS
_UTF_8 = "utf_8"
_TEXT_CODECS = frozenset(aliases.values()) - {
    "base64_codec", "bz2_codec", "hex_codec", "quopri_codec", "rot_13", "uu_codec", "zlib_codec", "mbcs",
}  # fmt: skip
"""Codecs from bytes to text. Those with a quadratic decoder (punycode, IDNA) are no charsets and not in the table."""


def as_json(value: object, limit: int) -> tuple[object, Mapping[str, object], WholeResult | None]:
    """What a function returned, as a JSON value; `(value, meta, the whole where it was cut)`.

    Models, dataclasses, dates and the like become JSON; what JSON cannot say becomes its `str()`. More than `limit`
    bytes: the beginning of its text with a marker, and `meta` says so.
    """
    if value is None or isinstance(value, bool):
        return value, {}, None
    if isinstance(value, str):
        text = printable(value)
        if len(text) * 4 <= limit:
            return text, {}, None
        data = text.encode()
        return (text, {}, None) if len(data) <= limit else (*cut(data, limit), kept(data, "text/plain; charset=utf-8"))
    try:
        data = orjson.dumps(value, default=_jsonable, option=_OPTIONS)
        parsed = decode(data)
        check_value(parsed)
    except (TypeError, ValueError, RecursionError, InvalidRequest):
        return as_json(_text_of(value), limit)
    return (parsed, {}, None) if len(data) <= limit else (*cut(data, limit), kept(data, "application/json"))


def read_body(
    data: bytes, limit: int, *, more: bool, charset: str | None = None
) -> tuple[object, Mapping[str, object]]:
    """An HTTP answer's body as a value: JSON if it is JSON we can keep, else text. `more`: it went on beyond `data`.

    `charset`: what the answer says its text is in; UTF-8 where it is missing or unknown.
    """
    if more or len(data) > limit:
        return cut(data, limit, charset)
    try:
        value = decode(data)
        check_value(value)
    except (ValueError, InvalidRequest):
        return printable(_decoded(data, charset)), {}
    return value, {}


def kept(data: bytes, content_type: str, *, more: bool = False) -> WholeResult:
    """What is kept of a result that was cut. A content type that is none becomes one of plain bytes."""
    named = content_type.strip().lower()
    named = named if _MEDIA_TYPE.fullmatch(named) else "application/octet-stream"
    complete = not more and len(data) <= KEPT_BYTES
    data = data[:KEPT_BYTES]
    return WholeResult(data, hashlib.sha256(data).hexdigest(), named, complete)


def cut(data: bytes, limit: int, charset: str | None = None) -> tuple[str, Mapping[str, object]]:
    """The beginning of a text that is too long, with a marker; `meta` has the SHA-256 of all that was read and is kept."""
    data = data[:KEPT_BYTES] if len(data) > max(KEPT_BYTES, limit) else data
    digest = hashlib.sha256(data).hexdigest()
    codec = _codec(charset)
    broken = "ignore" if codec == _UTF_8 and _cut_inside(data, limit) else "replace"
    text = printable(_decoded(data[:limit], codec, broken))
    marker = f"\n[cut: the result is longer than {limit} bytes; sha256 {digest}]"
    return text + marker, {"truncated": True, "sha256": digest, "bytes_read": len(data)}


def whole_output(data: bytes) -> object:
    """The output in a whole answer, as an answer that is not too long would have given it."""
    value = whole_value(data)
    members = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if "output" in members and members.keys() <= ANSWER_MEMBERS:
        return members["output"]
    return cast("object", value)


def whole_value(data: bytes) -> object:
    """A whole answer: JSON, or its text."""
    try:
        return decode(data)
    except ValueError:
        return printable(_decoded(data, None))


def printable(text: str) -> str:
    """`text` without what cannot be stored: U+0000 and lone surrogates become U+FFFD."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _decoded(data: bytes, charset: str | None, errors: str = "replace") -> str:
    try:
        return data.decode(_codec(charset), errors)
    except (LookupError, UnicodeError):  # a codec this platform lacks, or one that knows no replacement
        return data.decode(errors="replace")


def _codec(charset: str | None) -> str:
    """Python's name for a charset. Looked up in its table, as `codecs.lookup` remembers every name it is ever asked for."""
    if charset is None:
        return _UTF_8
    name = normalize_encoding(charset.lower())
    name = aliases.get(name, name)
    return name if name in _TEXT_CODECS else _UTF_8


def _cut_inside(data: bytes, limit: int) -> bool:
    """Whether the limit falls into a character: then its first bytes are dropped rather than replaced."""
    return limit < len(data) and data[limit] & 0xC0 == 0x80


def _jsonable(value: object) -> object:
    return cast("object", to_jsonable_python(value, fallback=str))


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001  # a result of the tool's own type: its __str__ is foreign code
        return f"<{type(value).__name__}>"
