"""The demo tools: right answers, and hostile input that ends at once."""

from contextlib import suppress
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tools.demo import calculator, current_time, text_length
from app.tools.plugin_api import ToolError

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("expression", "result"),
    [("2 + 3 * 4", 14), ("(2+3)*4", 20), ("7 // 2 % 2", 1), ("-2 ** 2", -4), ("2**0.5", 2**0.5), (" 1/4 ", 0.25), ("2**64", 2**64)],
)  # fmt: skip
async def test_the_calculator_calculates(expression: str, result: float) -> None:
    assert await calculator(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9**9", "1" * 10_000_000, "(" * 999, "-" * 1000, "1/0", "1%0", "'a'*9", "[1]*9", "__import__('os')", "x",
        "True+1", "1j", "2**-0.5j", "1e308*10", "1e308-1e309", "(-8)**0.5", "", "1;2", "lambda: 1", "1 if 1 else 2",
        "f'{1}'", "10**400/3", "0**-1", "2.0**9999", "\x00", "9**999*9**999*9**999*9**999*9**999",
    ],
)  # fmt: skip
async def test_the_calculator_refuses_everything_else_at_once(expression: str) -> None:
    with pytest.raises(ToolError):
        await calculator(expression)


@given(st.text(alphabet="0123456789.+-*/%() e", max_size=40))
async def test_no_text_makes_the_calculator_fail_otherwise(expression: str) -> None:
    with suppress(ToolError):
        assert isinstance(await calculator(expression), int | float)


async def test_the_time_has_a_zone() -> None:
    assert datetime.fromisoformat(await current_time("UTC")).utcoffset() is not None
    for wrong in ("Mars/Olympus", "../../etc/passwd", "", "a" * 5000, "UTC\x00"):
        with pytest.raises(ToolError):
            await current_time(wrong)


async def test_text_length_counts_characters() -> None:
    assert await text_length("héllo") == 5
