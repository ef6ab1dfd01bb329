"""Lists in the documents against the code's own: fields, statuses, reasons."""

import re
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from app.agent.ports import StepStatus
from app.agent.records import StopReason
from app.cli.options import RUN_STATUSES
from app.core.events import EventType
from app.main import bare_app
from app.runs.status import RunStatus
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


STATUSES = set(get_args(RunStatus))


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", text))


def between(text: str, begin: str, end: str) -> str:
    """What a page says between two marks, each of which it must have."""
    assert begin in text, begin
    rest = text.partition(begin)[2]
    assert end in rest, end
    return rest.partition(end)[0]


def test_every_status_of_a_run_is_told_wherever_they_are_listed() -> None:
    api = section("api.md", "Posting a run")
    (noun,) = re.findall(r"^\| \*\*Run\*\* \| (.*) \|$", section("concepts.md", "The nouns"), re.MULTILINE)
    listed = cast("dict[str, Any]", bare_app().openapi()["components"]["schemas"]["Run"])["properties"]["status"][
        "enum"
    ]
    assert quoted(between(api, "`status` is", "`stop_reason` is")) == STATUSES
    assert quoted(noun) == STATUSES
    assert set(listed) == STATUSES
    assert set(RUN_STATUSES) == STATUSES


def test_every_reason_to_stop_is_told() -> None:
    told = quoted(between(section("api.md", "Posting a run"), "`stop_reason` is", "A run stopped"))
    assert told == set(get_args(StopReason))
    agents = (DOCS / "agents.md").read_text(encoding="utf-8")
    limits = {"max_iterations", "max_execution_time", "usage_limit", "max_repeats"}
    assert limits <= set(re.findall(r"^\| .*\| `success` \| `(\w+)` \|", agents, re.MULTILINE))


def test_every_status_of_a_step_is_told() -> None:
    told = quoted(between(section("api.md", "The audit"), "`outcome` is a step's status", "; a call without one"))
    assert told == set(get_args(StepStatus))


def test_every_type_of_event_is_told() -> None:
    assert set(get_args(EventType)) <= quoted(section("streaming.md", "Events"))
