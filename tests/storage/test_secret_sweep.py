"""Where references to secrets may stand: a column that the sweep does not know would cost live secrets."""

from sqlalchemy import Text

from app.storage.secret_sweep import WITHOUT_SECRETS
from app.storage.tables import SCHEMA, runs

OF_RUNS = {
    "id", "tenant", "thread_id", "agent", "spec", "input", "context", "metadata", "subject", "scopes", "on_disconnect",
    "status", "stop_reason", "output", "error", "interrupts", "owner", "base_checkpoint_id", "checkpoint_id", "usage",
    "traceparent", "tracestate", "parked", "queued", "displaced",
}  # fmt: skip
"""Texts of a run. Of these only `spec` is searched for references; a new one that may hold any has to be searched, too."""


def test_every_text_of_a_run_is_known_to_hold_no_reference_or_is_searched() -> None:
    assert {column.name for column in runs.c if isinstance(column.type, Text)} - OF_RUNS == set()


def test_a_table_that_is_not_searched_has_no_specs() -> None:
    for name in WITHOUT_SECRETS:
        assert "spec" not in SCHEMA.tables[name].c
