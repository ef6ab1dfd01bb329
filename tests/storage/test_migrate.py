"""The schema's version."""

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.script import ScriptDirectory

from app.core.errors import Unavailable
from app.storage import migrate, retention, secret_sweep
from app.storage.statement import Statement
from tests.contracts.postgres import PostgresServer

_COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns
WHERE table_schema = 'public' ORDER BY 1, 2
"""
_INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"


def test_head_is_the_newest_revision() -> None:
    script = ScriptDirectory.from_config(migrate.alembic_config("sqlite://"))
    assert script.get_heads() == [migrate.HEAD] == [migrate.head()]


def test_a_new_sqlite_database_is_the_one_the_revisions_make(tmp_path: Path) -> None:
    made, migrated = tmp_path / "a" / "made.db", tmp_path / "migrated.db"
    assert migrate.current(f"sqlite:///{made}") is None
    migrate.upgrade(f"sqlite:///{made}")
    command.upgrade(migrate.alembic_config(f"sqlite:///{migrated}"), "head")
    assert _sqlite_schema(made) == _sqlite_schema(migrated)
    for path in (made, migrated):
        assert migrate.current(f"sqlite:///{path}") == migrate.HEAD
        migrate.upgrade(f"sqlite:///{path}")


def test_a_new_postgres_database_is_the_one_the_revisions_make(postgres_server: PostgresServer) -> None:
    made, migrated = postgres_server.new_database(), postgres_server.new_database()
    assert migrate.current(made) is None
    migrate.upgrade(made)
    migrate.upgrade(made)
    command.upgrade(migrate.alembic_config(migrated.replace("postgresql:", "postgresql+psycopg:")), "head")
    assert migrate.current(made) == migrate.current(migrated) == migrate.HEAD
    for query in (_COLUMNS, _INDEXES):
        assert _postgres_rows(made, query) == _postgres_rows(migrated, query) != []


def test_a_database_of_an_unknown_version_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    migrate.upgrade(url)
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'later'")
    connection.close()
    with pytest.raises(Unavailable) as failure:
        migrate.upgrade(url)
    assert failure.value.code == "schema_unknown"
    assert migrate.current(url) == "later"


def test_starting_on_sqlite_imports_neither_alembic_nor_psycopg(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
from app.storage.open import open_database, build_stores
async def main():
    for _ in range(2):
        database = open_database("sqlite:///{tmp_path}/x.db")
        await database.start()
        build_stores(database, None)
        await database.stop()
asyncio.run(main())
print([name for name in ("alembic", "psycopg", "mako") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _sqlite_schema(path: Path) -> dict[str, Any]:
    connection = sqlite3.connect(path)
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    schema: dict[str, Any] = {}
    for name in names:
        indexes = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? ORDER BY name", (name,)
        ).fetchall()
        schema[name] = (connection.execute(f"PRAGMA table_info({name})").fetchall(), indexes)
    connection.close()
    return schema


def _postgres_rows(url: str, query: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def test_retention_finds_what_is_due_by_indexes(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    migrate.upgrade(f"sqlite:///{path}")
    connection = sqlite3.connect(path)
    for kind, index in ((retention._RUNS, "ix_runs_finished"), (retention._THREADS, "ix_threads_unlisted")):
        assert index in _plan(connection, kind.old, before=1)
    pages = {table.name: statement for table, statement in secret_sweep._PAGES["sqlite"]}
    assert "ix_runs_secrets" in _plan(connection, pages["runs"], after_0="")
    connection.close()


def _plan(connection: sqlite3.Connection, statement: Statement, **values: object) -> str:
    sql, constants = statement.on("sqlite")
    return str(connection.execute(f"EXPLAIN QUERY PLAN {sql}", {**constants, **values}).fetchall())
