"""How the store is read: by indexes, whatever is asked."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage import migrate, store
from app.storage.statement import Statement

IDS = {f"id_{n}": "x" for n in range(20)}
VALUES: dict[str, object] = {
    "of_tenant": "acme", "now": 1, "most": 21, "from": "a.", "below": "a/", "after": "x", "name_0": "n", "value_0": "1",
    **IDS,
}  # fmt: skip


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "x.db"
    migrate.upgrade(f"sqlite:///{path}")
    opened = sqlite3.connect(path)
    yield opened
    opened.close()


def plan(connection: sqlite3.Connection, statement: Statement) -> str:
    sql, constants = statement.on("sqlite")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", {**VALUES, **constants}).fetchall()
    return "\n".join(str(row[3]) for row in rows)


@pytest.mark.parametrize("after", [False, True])
def test_a_search_reads_no_more_than_what_it_names(connection: sqlite3.Connection, after: bool) -> None:
    everything = plan(connection, store._search(False, 0, after))
    assert "ix_store_items_tenant" in everything
    assert "TEMP B-TREE" not in everything
    assert "namespace>? AND namespace<?" in plan(connection, store._search(True, 0, after))
    for prefixed in (False, True):
        filtered = plan(connection, store._search(prefixed, 1, after))
        assert "SEARCH store_items USING INDEX ix_store_items_tenant (tenant=? AND id=?)" in filtered
        assert "COVERING INDEX sqlite_autoindex_store_fields_1 (tenant=? AND name=? AND value=?" in filtered
        assert ("namespace>? AND namespace<?" in filtered) is prefixed
        assert "SCAN" not in filtered


def test_items_namespaces_and_what_is_over_are_found_by_indexes(connection: sqlite3.Connection) -> None:
    assert "ix_store_items_id (id=?)" in plan(connection, store._BY_IDS)
    assert "ix_store_items_expires" in plan(connection, store._EXPIRED)
    for first in (False, True):
        for prefixed in (False, True):
            seek = plan(connection, store._next_namespace(first, prefixed))
            assert "sqlite_autoindex_store_items_1 (tenant=? AND namespace>?" in seek
            assert "TEMP B-TREE" not in seek
