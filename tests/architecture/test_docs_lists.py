"""Lists in the documents against the code's own: fields, statuses, reasons."""

import re
from pathlib import Path
from typing import Any, cast

import pytest

from app.main import bare_app
from app.tools.envelope import Envelope, EnvelopeError

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def section(page: str, heading: str) -> str:
    """The text under a heading, up to the next one of its level or above."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,6}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no heading {heading!r}"
    return found[2]


def test_every_field_of_the_envelope_is_told() -> None:
    rows = set(re.findall(r"^\| `([\w.]+)`", section("tools.md", "The envelope"), re.MULTILINE))
    assert rows == {*Envelope.__annotations__, *(f"error.{name}" for name in EnvelopeError.__annotations__)} - {"error"}


@pytest.mark.parametrize(("of", "fields"), [((), Envelope), (("error",), EnvelopeError)])
def test_the_contract_has_the_same_envelope(of: tuple[str, ...], fields: type) -> None:
    schema = cast("dict[str, Any]", bare_app().openapi()["components"]["schemas"]["Envelope"])
    for name in of:
        schema = schema["properties"][name]
    assert set(schema["required"]) == set(fields.__annotations__)
    assert set(schema["properties"]) - {"status"} == set(fields.__annotations__)
