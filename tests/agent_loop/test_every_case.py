"""Every recorded case of `create_agent` that HTTP can show is run by a test that names it, or stands in a list with the reason."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.syntax import parsed

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "langchain.md"

_CASE = re.compile(r"B[-_](\d{3})(?![0-9])")


def ids(text: str) -> set[str]:
    return {f"B-{number}" for number in text.split()}


CASES = ids(
    """
    001 002 004 005 006 008 011 012 013 014 015 016 018 019 021 022 024 028 029 030 032 034 035 036 037 038 039 040
    044 045
    201 203 204 205 206 211 212 214 215 216 217 220 221 232 233 235 236 241 243 245 247 251 252 262
    302 303 304 305 307 308 313 314 315 316 318 319 320 321 322 323 325 326 327 328 330 333
    501 502 505 507 508 509 513 514 515 521 522 531 533 541 542 543 551 552 553 554 555 557
    """
)
"""The loop, limits and retries, approvals, and what else was seen. Those of middleware and structured answers are elsewhere."""

FAULTS = ids("019 021 022 035 220 313 315 325 326 327 328 333 522 531 533 541 542 552 553")
"""Cases in which the peer is wrong."""

NO_COUNTERPART = {
    "B-507": "a tool node outside an agent",
    "B-508": "the apology of an older prebuilt loop",
}
"""Cases that Runwire has no place for, and why."""


def named_by_tests() -> Iterator[str]:
    """The cases that the code, the name or the documentation of a test names. A comment does not count."""
    for path in TESTS.rglob("test_*.py"):
        if path == Path(__file__).resolve():
            continue
        for node in ast.walk(parsed(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield from (f"B-{found}" for found in _CASE.findall(ast.unparse(node)))


def test_every_case_has_its_test_or_the_reason_why_not() -> None:
    named = set(named_by_tests())
    assert sorted(CASES - named - NO_COUNTERPART.keys()) == []
    assert sorted(NO_COUNTERPART.keys() & named) == []
    assert {*FAULTS, *NO_COUNTERPART} <= CASES


def test_every_case_that_is_decided_differently_stands_in_the_documentation() -> None:
    """With the case's id. All the peer's known faults are among them, and no id that there is not."""
    listed = {f"B-{found}" for found in _CASE.findall(PAGE.read_text(encoding="utf-8"))}
    assert sorted({*FAULTS, *NO_COUNTERPART} - listed) == []
    assert sorted(listed - CASES) == []


def test_no_case_is_both_without_a_counterpart_and_among_the_decisions() -> None:
    decisions, _, without = PAGE.read_text(encoding="utf-8").partition("**What has no counterpart**")
    there = {f"B-{found}" for found in _CASE.findall(decisions)}
    assert {f"B-{found}" for found in _CASE.findall(without)} == set(NO_COUNTERPART)
    assert sorted(there & set(NO_COUNTERPART)) == []
