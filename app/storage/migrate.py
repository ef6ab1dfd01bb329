"""The schema's version: making it, bringing it up to date.

Alembic costs 200 ms to import. A database already at `HEAD` needs none of it, and a new one is made from `tables` at
once; a test holds both ways to the same schema and `HEAD` to the newest revision.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, LiteralString, cast

from sqlalchemy.schema import CreateIndex, CreateTable

from app.core.errors import InvalidRequest, Unavailable
from app.storage.statement import DialectName, ddl
from app.storage.tables import SCHEMA

HEAD = "0010"

_VERSION_TABLE = "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"


def head() -> str:
    """The revision this version of the server works with."""
    return HEAD


def creation(dialect: DialectName) -> list[str]:
    """The statements that make the whole schema at `HEAD`."""
    statements: list[str] = []
    for table in SCHEMA.sorted_tables:
        statements.append(ddl(CreateTable(table), dialect))
        statements += [ddl(CreateIndex(index), dialect) for index in sorted(table.indexes, key=lambda i: str(i.name))]
    return [*statements, _VERSION_TABLE, f"INSERT INTO alembic_version VALUES ('{HEAD}')"]


VERSION_QUERY: LiteralString = "SELECT version_num FROM alembic_version"


def check_version(rows: Sequence[Sequence[object]]) -> None:
    """Raises `Unavailable` (`schema_unknown`) when the answer to `VERSION_QUERY` is another schema than `HEAD`."""
    if [row[0] for row in rows] != [HEAD]:
        raise Unavailable(
            "The database's schema is another version's: it was migrated while this server ran.", code="schema_unknown"
        )


def upgrade(url: str) -> None:
    """Bring the schema to `HEAD`. Not beside a running server of another version. Raises `Unavailable` (`schema_unknown`)."""
    if url.startswith("sqlite:"):
        path = sqlite_path(url)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        upgrade_sqlite(path)
    else:
        upgrade_postgres(url)


def current(url: str) -> str | None:
    """The revision of a database; `None` when it has no schema."""
    if url.startswith("sqlite:"):
        path = sqlite_path(url)
        if not path.exists():
            return None
        connection = sqlite3.connect(path)
        try:
            return _sqlite_version(connection)
        finally:
            connection.close()
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        return _postgres_version(connection)


def sqlite_path(url: str) -> Path:
    """`sqlite:///relative` or `sqlite:////absolute`. Raises `InvalidRequest` (`invalid_database_url`)."""
    path = url.removeprefix("sqlite:///")
    if path == url or not path or path == ":memory:":
        raise InvalidRequest(
            "A SQLite address is sqlite:///relative/path or sqlite:////absolute/path.", code="invalid_database_url"
        )
    return Path(path)


def upgrade_sqlite(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        version = _sqlite_version(connection)
        if version is None:
            connection.execute("BEGIN IMMEDIATE")
            for statement in creation("sqlite"):
                connection.execute(statement)
            connection.execute("COMMIT")
    finally:
        connection.close()
    path.chmod(0o600)
    if version is not None and version != HEAD:
        _alembic(f"sqlite:///{path}")


def upgrade_postgres(url: str) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        version = _postgres_version(connection)
        if version is None:
            for statement in creation("postgresql"):
                connection.execute(cast("LiteralString", statement))
    if version is not None and version != HEAD:
        _alembic("postgresql+psycopg://" + url.partition("://")[2])


def _sqlite_version(connection: sqlite3.Connection) -> str | None:
    table = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
    row: tuple[str] | None = table and connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return row[0] if row else None


def _postgres_version(connection: Any) -> str | None:
    table = connection.execute("SELECT to_regclass('alembic_version')").fetchone()
    row = table[0] and connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return row[0] if row else None


def _alembic(sqlalchemy_url: str) -> None:
    from alembic import command
    from alembic.util import CommandError

    try:
        command.upgrade(alembic_config(sqlalchemy_url), "head")
    except CommandError as error:
        raise Unavailable(
            "The database was written by another version of Runwire; start that version, or a newer one.",
            code="schema_unknown",
        ) from error


def alembic_config(sqlalchemy_url: str) -> Any:
    """Alembic's configuration for our revisions."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("sqlalchemy.url", sqlalchemy_url.replace("%", "%%"))
    return config
