"""Syntax trees of source files, for tests that look at code."""

import ast
from contextlib import suppress


def parsed(source: str | bytes) -> ast.Module:
    """The tree of a module. Raises `SyntaxError`.

    CPython 3.11 counts how deep it is for all threads together, so a parse in another thread can break one off.
    """
    while True:
        with suppress(SystemError):
            return ast.parse(source)
