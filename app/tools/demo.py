"""Three demo tools, written as a plugin author would write them: calculator, current_time, text_length."""

import ast
import math
from collections.abc import Callable
from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import Field

from app.tools.plugin_api import ToolError, tool

MAX_EXPRESSION = 1000
"""Longest expression, in characters."""
MAX_BITS = 4096
"""Largest whole number on the way to a result, in bits."""

Number = int | float

_UNARY: dict[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: lambda a: +a, ast.USub: lambda a: -a}
_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: _power(a, b),
}


@tool(effect="pure")
async def calculator(
    expression: Annotated[str, Field(description="Numbers, + - * / // % ** and parentheses, e.g. (2 + 3) * 4")],
) -> int | float:
    """Work out an arithmetic expression exactly."""
    if len(expression) > MAX_EXPRESSION:
        raise ToolError(f"The expression is longer than {MAX_EXPRESSION} characters.")
    try:
        result = _value(ast.parse(expression.strip(), mode="eval").body)
    except ZeroDivisionError as error:
        raise ToolError("Division by zero.") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError("This is not an arithmetic expression I can read.") from error
    except OverflowError as error:
        raise ToolError("The result is too large.") from error
    if isinstance(result, float) and not math.isfinite(result):
        raise ToolError("The result is too large.")
    return result


@tool(effect="read")
async def current_time(
    timezone: Annotated[str, Field(description="IANA name, e.g. Europe/Berlin")] = "UTC",
) -> str:
    """Tell the current date and time (ISO 8601) in a time zone."""
    try:
        zone = ZoneInfo(timezone)
    except (KeyError, ValueError, OSError) as error:
        raise ToolError(f"There is no time zone {timezone[:64]!r}; use an IANA name such as Europe/Berlin.") from error
    return datetime.now(zone).isoformat(timespec="seconds")


@tool(effect="pure")
async def text_length(text: str) -> int:
    """Count the characters of a text."""
    return len(text)


DEMO_TOOLS = (calculator, current_time, text_length)


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _checked(number)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _checked(_BINARY[type(op)](_value(left), _value(right)))
        case _:
            raise ToolError("Only numbers, + - * / // % ** and parentheses are allowed.")


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0 and base.bit_length() * exponent > MAX_BITS:
        raise ToolError("The result is too large.")
    result: object = base**exponent
    if not isinstance(result, int | float):
        raise ToolError("The result is not a real number.")
    return result


def _checked(number: Number) -> Number:
    if isinstance(number, int) and number.bit_length() > MAX_BITS:
        raise ToolError("The result is too large.")
    return number
