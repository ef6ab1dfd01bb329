"""The JSON blob inside a model's text: where it is, what it says, and how one that was cut off is completed."""

import json
import re
from typing import cast

from app.agent.ports import ParseError
from app.core.actions import AgentAction, AgentFinish
from app.core.errors import InvalidRequest
from app.core.json import MAX_DEPTH, check_value, encode, encode_text
from app.core.values import immutable

FINAL_ACTION = "Final Answer"
"""The name of the action that is the answer."""

FENCE = re.compile(r"```[ \t]{0,8}+[\w.+#-]{0,32}+\s*+(?=[{\[])")
"""A code fence of any language whose content looks like JSON."""

_MOST_TOKENS = 20_000
"""Brackets, commas and strings up to which a blob that was cut off is completed: each costs half a microsecond."""

_ODD = (
    re.compile(r"[\x00\ud800-\udfff]"),
    re.compile(r"\\u(?:0000|[dD][89a-fA-F])"),
    re.compile(r"[0-9](?:[eE]|[0-9]{18})"),
)
"""How a value that cannot be kept looks in JSON text, unless it is nested too deep. One search for all would be slower."""

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+("|\Z|\\\Z)|[{}\[\],]', re.DOTALL)
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")


@immutable
class Blob:
    value: object
    end: int
    """Where the text goes on behind it; the text's length when it was cut off."""
    cut_off: bool = False


def read_blob(text: str, start: int) -> Blob | None:
    """The JSON value that begins at `start`, completed where the text ends too early; `None` when it is no JSON.

    Line breaks inside strings are taken as they are. Of a name given twice the first counts: what was streamed stays true.
    """
    value: object
    try:
        value, end = _decoder(text, start).raw_decode(text, start)
    except (ValueError, RecursionError):
        return _completed(text, start)
    return Blob(value, end)


def _first_of_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return dict(reversed(pairs))


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_PLAIN = json.JSONDecoder(strict=False, parse_constant=_no_constant)
_FIRST_WINS = json.JSONDecoder(strict=False, parse_constant=_no_constant, object_pairs_hook=_first_of_each)


def _decoder(text: str, start: int) -> json.JSONDecoder:
    """The one that looks at every name only where one of ours may stand twice: it is three times slower."""
    twice = text.count('"action"', start) > 1 or text.count('"action_input"', start) > 1 or "\\u00" in text
    return _FIRST_WINS if twice else _PLAIN


def _completed(text: str, start: int) -> Blob | None:
    """The value of a text that ends inside it: as it stands, else without what follows the last whole member."""
    open_ends: list[str] = []
    whole, whole_ends = start, ""
    in_string = False
    for number, token in enumerate(_TOKEN.finditer(text, start)):
        match token.group()[0]:
            case "{" | "[" as bracket:
                open_ends.append("}" if bracket == "{" else "]")
                whole, whole_ends = token.end(), "".join(reversed(open_ends))
            case "}" | "]" as bracket:
                if not open_ends or open_ends.pop() != bracket or not open_ends:
                    return None  # it ended and was no JSON all the same
            case ",":
                whole, whole_ends = token.start(), "".join(reversed(open_ends))
            case _:
                in_string = token.group(1) != '"'
        if len(open_ends) > MAX_DEPTH or number > _MOST_TOKENS:
            return None
    rest = text[start:]
    if in_string:
        rest = rest[: _half_escape(rest)] + '"'
    for candidate in (rest + "".join(reversed(open_ends)), text[start:whole] + whole_ends):
        try:
            value: object = _decoder(candidate, 0).decode(candidate)
        except (ValueError, RecursionError):
            continue
        return Blob(value, len(text), cut_off=True)
    return None


def _half_escape(text: str) -> int:
    """Where an escape sequence that was cut off begins, `len(text)` when there is none."""
    tail = max(0, len(text) - 13)
    found = _HALF_ESCAPE.search(text, tail)
    if found is None:
        return len(text)
    slashes = found.start() - len(text[: found.start()].rstrip("\\"))
    return found.start() if slashes % 2 == 0 else len(text)


def decision(value: object, text: str) -> AgentAction | AgentFinish | ParseError:
    """What a blob says: `{"action", "action_input"}`, or a list whose first element says it.

    Refused as unreadable: another shape, and values that cannot be kept (U+0000, halves of characters, numbers beyond 64 bits).
    """
    if isinstance(value, list) and value:
        value = cast("list[object]", value)[0]
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    action = fields.get("action")
    if not isinstance(action, str) or not _can_be_kept(fields, text):
        return unreadable(text)
    given = fields.get("action_input")
    if action == FINAL_ACTION:
        return AgentFinish({"output": given}, text) if "action_input" in fields else unreadable(text)
    if given is None:
        given = {}
    if isinstance(given, dict):
        return AgentAction(action, cast("dict[str, object]", given), text)
    return AgentAction(action, given if isinstance(given, str) else encode_text(given), text)


def unreadable(text: str) -> ParseError:
    """LangChain's words for it."""
    return ParseError(f"Could not parse LLM output: {text}")


def _can_be_kept(fields: dict[str, object], text: str) -> bool:
    """Whether the value can be journaled as it is: looked at closely only where the text gives a reason."""
    if not any(odd.search(text) for odd in _ODD):
        return _depth_is_kept(fields)
    try:
        check_value(fields)
        encode(fields)
    except (InvalidRequest, TypeError, ValueError):
        return False
    return True


def _depth_is_kept(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for item in level
            for inner in (
                cast("dict[str, object]", item).values() if isinstance(item, dict) else cast("list[object]", item)
            )
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False
