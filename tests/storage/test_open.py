"""Addresses of databases."""

from pathlib import Path

import pytest

from app.core.errors import InvalidRequest
from app.storage.database import Database
from app.storage.open import build_stores, open_database
from app.storage.sqlite import SqliteDatabase


def test_sqlite_paths_are_relative_or_absolute() -> None:
    for url, path in (("sqlite:///./.runwire/x.db", ".runwire/x.db"), ("sqlite:////var/x.db", "/var/x.db")):
        database = open_database(url)
        assert isinstance(database, SqliteDatabase)
        assert database.path == Path(path)


def test_a_postgres_address_gives_a_postgres_database() -> None:
    database: Database = open_database("postgresql://user:secret@host/db")
    assert database.dialect == "postgresql"
    assert "secret" not in repr(database)


@pytest.mark.parametrize(
    "url", ["", "x.db", "mysql://me:hunter2@host/db", "sqlite://x.db", "sqlite:///", "sqlite:///:memory:"]
)
def test_other_addresses_are_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(InvalidRequest) as failure:
        open_database(url)
    assert failure.value.code == "invalid_database_url"
    assert "hunter2" not in failure.value.message


def test_a_short_secret_key_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequest) as failure:
        build_stores(open_database("sqlite:///x.db"), "short")
    assert failure.value.code == "invalid_secret_key"
