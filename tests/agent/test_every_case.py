"""Every recorded case of AgentExecutor is run by a test that names it, or has a reason why there is none."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.agent.cases import CASES
from tests.agent.parsers.test_cases import CASES as PARSED
from tests.agent.prompts.test_prompts import REACT
from tests.agent.test_executor_cases import AS_THE_PEER, DIFFERENT, NO_COUNTERPART
from tests.support.syntax import parsed

TESTS = Path(__file__).resolve().parents[1]
DOCS = TESTS.parent / "docs"

_CASE = re.compile(r"A[-_]([A-Z]?\d{2,3})(?![0-9])")


def named_by_tests() -> Iterator[str]:
    """The cases that the code, the name or the documentation of a test names. A comment does not count."""
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(parsed(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield from (f"A-{found}" for found in _CASE.findall(ast.unparse(node)))


def test_every_case_has_its_test_or_the_reason_why_not() -> None:
    tables = {*AS_THE_PEER, *DIFFERENT, *PARSED, *REACT}
    named = set(named_by_tests())
    assert CASES.keys() - tables - named - NO_COUNTERPART.keys() == set()
    assert NO_COUNTERPART.keys() & (tables | named) == set()
    assert NO_COUNTERPART.keys() <= CASES.keys()


def test_every_case_that_is_decided_differently_stands_in_the_documentation() -> None:
    """With the case's id, so that the list can be checked line by line. All the peer's known faults are among them."""
    page = (DOCS / "differences.md").read_text(encoding="utf-8")
    listed = {f"A-{found}" for found in _CASE.findall(page)}
    faults = {name for name, case in CASES.items() if "peer_flaw" in case} - {"A-R03"}  # as the peer: it is told
    assert {*DIFFERENT, *NO_COUNTERPART, *faults} - listed == set()
    assert listed <= CASES.keys()
