"""Answers of people and callers: whether an input or an output of theirs fits a tool, and what becomes of an output."""

from collections.abc import Mapping
from typing import cast

import orjson

from app.core.errors import FieldError
from app.tools.arguments import Arguments, completed, faults, fitted
from app.tools.compiled import CompiledTool
from app.tools.ending import End, placed
from app.tools.faults import escape
from app.tools.result import as_json

NO_FAULTS: list[FieldError] = []
MAX_OUTPUT_BYTES = 1 << 20
"""How much the model sees of an output in the place of a tool that is gone: the default of `max_result_bytes`."""


def input_faults(tool: CompiledTool | None, given: object) -> list[FieldError]:
    """What is wrong with an edited input, by place: it is judged as the model's own would be when the call is made.

    A constant that was shown may come back as it was.
    """
    if tool is None:
        return [FieldError("", "the tool was withdrawn")]
    if not isinstance(given, dict | str):
        return [FieldError("", "must be an object with the tool's arguments")]
    given = cast("Arguments | str", given)
    if isinstance(given, dict):
        fixed = [name for name, value in tool.constants.items() if name in given and given[name] != value]
        if fixed:
            return [FieldError(f"/{escape(name)}", "is a constant of the tool and cannot be changed") for name in fixed]
    arguments, _ = fitted(tool, given)
    found = faults(tool, arguments)
    if not found:
        try:
            orjson.dumps(completed(tool, arguments))
        except (TypeError, ValueError):
            found = [FieldError("", "it holds a value that cannot be sent as JSON")]
    if isinstance(given, str):  # there are no places within it
        return [FieldError("", fault.detail) for fault in found[:1]]
    return found


def output_faults(tool: CompiledTool | None, output: object) -> list[FieldError]:
    """What is wrong with an output given in a tool's place, by place."""
    if tool is None or tool.output is None:
        return NO_FAULTS
    try:
        return NO_FAULTS if tool.output.is_valid(output) else tool.output.faults(output)
    except ValueError:
        return [FieldError("", "it holds text or nesting that cannot be checked")]


def given_end(tool: CompiledTool | None, answer: Mapping[str, object], place: str | None) -> End:
    """The end of a call that a person or the caller answered in the tool's place; it was checked when it was taken.

    What is too long is cut for the model and kept whole at `place`, as the tool's own answer would be.
    """
    given = answer["output"] if "output" in answer else answer.get("message", "")
    output, meta, whole = as_json(given, MAX_OUTPUT_BYTES if tool is None else tool.max_result_bytes)
    output, whole = placed(output, whole, place)
    return End("success", output, meta={"answered_by": "caller", **meta}, whole=whole)
