"""What a command reads from its user: files, standard input, `name=value`. Raises `UsageError` for what cannot be used."""

import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import cast

MAX_BYTES = 4 * 1024 * 1024
"""Of a file; the server takes bodies of 1 MiB, and a file may hold several."""


class UsageError(Exception):
    """The command line cannot be used as it is. The message says what to do."""


def read_document(path: str) -> object:
    """The value of a `.json` or `.toml` file, or of JSON on standard input (`-`)."""
    raw = _read(path)
    if path.endswith(".toml"):
        try:
            return tomllib.loads(raw.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is not TOML: {error}.") from error
    return read_json(raw, "Standard input" if path == "-" else path)


def read_json(raw: bytes | str, where: str) -> object:
    try:
        return cast("object", json.loads(raw, parse_constant=_no_constant))
    except (ValueError, RecursionError) as error:
        said = str(error) or "nested too deeply"
        raise UsageError(f"{where} is not JSON: {said}.") from error


def read_object(path: str) -> dict[str, object]:
    value = read_document(path)
    if not isinstance(value, dict):
        raise UsageError(f"{'Standard input' if path == '-' else path} must hold one JSON object.")
    return cast("dict[str, object]", value)


def arguments(pairs: Sequence[str], document: str | None) -> dict[str, object]:
    """A tool's arguments: a JSON object as text or `-`, then `name=value` over it.

    A value that reads as JSON is that value (`2`, `true`, `["a"]`, `"2"`); anything else is text.
    """
    found: dict[str, object] = {}
    if document is not None:
        value = json_argument(document, "The argument")
        if not isinstance(value, dict):
            raise UsageError('The arguments must be one JSON object, such as \'{"expression": "2+3"}\'.')
        found.update(cast("dict[str, object]", value))
    for name, text in split(pairs, "--arg"):
        try:
            found[name] = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            found[name] = text
    return found


def json_argument(text: str, where: str) -> object:
    """The JSON of an argument, or of standard input where the argument is `-`."""
    return read_json(_read("-"), "Standard input") if text == "-" else read_json(text, where)


def split(pairs: Sequence[str], option: str) -> list[tuple[str, str]]:
    """`name=value` of a repeated option."""
    found: list[tuple[str, str]] = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} takes name=value, not {pair!r}.")
        found.append((name, value))
    return found


def _read(path: str) -> bytes:
    try:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1) if path == "-" else _read_file(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{path} is larger than {MAX_BYTES} bytes.")
    return raw


def _read_file(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
