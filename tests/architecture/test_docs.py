"""The documents against the code: settings, error codes, routes, links and sources."""

import ast
import re
from pathlib import Path

import pytest

from app.core.errors import RunwireError
from app.main import bare_app
from app.models.failures import MODEL_ERROR_CODES
from app.settings import Settings
from tests.support.syntax import parsed

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

STOPS = {"stopped", "fenced", "run_cancelled", "journal_broken"}
"""Control flow between parts; no caller sees them (`tool_withdrawn` is a step's code too)."""

PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").glob("*/README.md")])


def quoted_in(path: Path) -> set[str]:
    """What stands in backquotes, alone."""
    return set(re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8")))


def test_every_setting_is_documented() -> None:
    names = {str(field.validation_alias or f"RUNWIRE_{name.upper()}") for name, field in Settings.model_fields.items()}
    assert names - quoted_in(DOCS / "configuration.md") == set()


def test_no_documented_setting_is_unknown() -> None:
    rows = re.findall(
        r"^\| `((?:RUNWIRE|OPENAI|ANTHROPIC)_\w+)`", (DOCS / "configuration.md").read_text("utf-8"), re.MULTILINE
    )
    known = {str(field.validation_alias or f"RUNWIRE_{name.upper()}") for name, field in Settings.model_fields.items()}
    assert set(rows) - known == set()


def classes(base: type[RunwireError]) -> set[str]:
    return {base.code}.union(*(classes(child) for child in base.__subclasses__()))


def codes_in(source: str) -> set[str]:
    """Codes given in calls: `code="…"`, and the first or third text of the values that hold one."""
    found: set[str] = set()
    for node in ast.walk(parsed(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
        if name in ("Failed", "_Refused"):
            given += node.args[:1]
        if name in ("_End", "End"):
            given += node.args[2:3]
        if name in ("problem",):
            given += node.args[2:3]
        for value in given:
            found |= {
                item.value for item in ast.walk(value) if isinstance(item, ast.Constant) and isinstance(item.value, str)
            }
    return {code for code in found if re.fullmatch(r"[a-z]+(_[a-z]+)*", code)}


def test_every_error_code_is_documented() -> None:
    raised: set[str] = set()
    for path in (ROOT / "app").rglob("*.py"):
        raised |= codes_in(path.read_text(encoding="utf-8"))
    everything = (raised | classes(RunwireError) | MODEL_ERROR_CODES) - STOPS
    assert len(everything) > 60
    assert everything - quoted_in(DOCS / "api.md") == set()


def test_every_route_is_documented() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    for path, operations in bare_app().openapi()["paths"].items():
        shown = re.escape(path.replace("{run_id}", "{id}").replace("{step}", "{n}"))
        for method in operations:
            assert re.search(rf"`{method.upper()} {shown}[`?]", page), f"{method} {path}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sources_by_number_are_given_and_used(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    given = set(re.findall(r"^\[(\d+)\]: https://\S+$", text, re.MULTILINE))
    used = set(re.findall(r"\[(\d+)\](?!:)", re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)))
    assert given == used


@pytest.mark.parametrize("record", sorted((DOCS / "adr").glob("*.md")), ids=lambda path: path.name)
def test_a_decision_record_is_short_and_whole(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert text.count("\n") <= 40
    for part in ("Context", "Decision", "Consequences", "Alternatives"):
        assert re.search(rf"^(## |\*\*){part}", text, re.MULTILINE), part
