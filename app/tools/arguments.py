"""The arguments of a call: what the model said, as the tool's schema wants it, or what is wrong with it."""

import hashlib
from typing import cast

import orjson

from app.core.errors import FieldError
from app.tools.compiled import CompiledTool

Arguments = dict[str, object]
NOTHING: tuple[str, ...] = ()
NO_FAULTS: list[FieldError] = []

POLLUTING = "__proto__"
"""A property of this name changes what every object is, in a receiver in JavaScript that merges what it is sent."""


def said(tool: CompiledTool, given: str | Arguments) -> Arguments:
    """What the model said (or a person in its place), without what the server fills in itself."""
    if isinstance(given, str):
        return {tool.text_key: given}
    if tool.constants:
        return {name: value for name, value in given.items() if name not in tool.constants}
    return given


def fitted(tool: CompiledTool, given: str | Arguments) -> tuple[Arguments, tuple[str, ...]]:
    """What was said, coerced where the tool takes that, and JSON pointers to what was changed."""
    arguments = said(tool, given)
    return (arguments, NOTHING) if tool.coercion is None else tool.coercion.fit(arguments)


def faults(tool: CompiledTool, arguments: Arguments) -> list[FieldError]:
    """What is wrong with the arguments, by place; empty if they fit."""
    try:
        if _pollutes(arguments):
            return [FieldError("", f"a property may not be named {POLLUTING}")]
        return NO_FAULTS if tool.schema.is_valid(arguments) else tool.schema.faults(arguments)
    except ValueError:  # a lone surrogate, or nested beyond any schema
        return [FieldError("", "they hold text or nesting that JSON cannot carry")]


def faults_of(tool: CompiledTool, arguments: Arguments) -> str | None:
    """What is wrong with the arguments, in words; `None` if they fit."""
    found = faults(tool, arguments)
    return in_words(found) if found else None


def _pollutes(arguments: Arguments) -> bool:
    left: list[object] = [arguments]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            if POLLUTING in item:
                return True
            left.extend(cast("Arguments", item).values())
        elif isinstance(item, list):
            left.extend(cast("list[object]", item))
    return False


def in_words(faults: list[FieldError]) -> str:
    return "; ".join(f"at {fault.pointer or 'the top'}: {fault.detail}" for fault in faults)


def completed(tool: CompiledTool, arguments: Arguments) -> Arguments:
    """The arguments as they are sent: with the constants, which override what the model says."""
    return {**arguments, **tool.constants} if tool.constants else arguments


def changed_input(tool: CompiledTool, asked: str | Arguments, arguments: Arguments) -> Arguments | None:
    """The input that is sent with these arguments, where it is not the one that was asked for. Constants are in neither."""
    if arguments is asked:
        return None
    sent = {name: value for name, value in arguments.items() if name not in tool.constants}
    original: Arguments = {tool.text_key: asked} if isinstance(asked, str) else asked
    return None if digest(sent) == digest(original) else sent


def digest(arguments: Arguments) -> str:
    """SHA-256, hexadecimal, of the arguments as JSON with sorted keys."""
    try:
        data = orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):  # such a call is refused before it is sent
        data = b""
    return hashlib.sha256(data).hexdigest()
