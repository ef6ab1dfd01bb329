"""The life of a run: one table, and a journal that holds to it."""

from typing import cast, get_args

import pytest

from app.runs.hub import Hub
from app.runs.journal import RunJournal
from app.runs.records import RunRecord, Transition
from app.runs.status import TERMINAL, TRANSITIONS, RunStatus, may_follow
from app.storage.open import build_stores, open_database

STATUSES = cast("tuple[RunStatus, ...]", get_args(RunStatus))


def test_every_status_has_its_place_and_only_an_end_has_nothing_after_it() -> None:
    assert set(TRANSITIONS) == set(STATUSES)
    assert {status for status in STATUSES if not TRANSITIONS[status]} == TERMINAL


@pytest.mark.parametrize("old", STATUSES)
@pytest.mark.parametrize("new", STATUSES)
def test_a_journal_takes_the_changes_of_the_table_and_no_other(old: RunStatus, new: RunStatus) -> None:
    store = build_stores(open_database("sqlite:///unused.db"), "k" * 16).runs
    run = RunRecord("r", "default", "t", None, {}, "x", {}, {}, "me", None, status=old)
    journal = RunJournal(store, Hub(), run)
    change = Transition(new, None, None, None, None)
    if may_follow(old, new):
        journal.set_transition(change)
    else:
        with pytest.raises(ValueError, match=f"{old} cannot become {new}"):
            journal.set_transition(change)
