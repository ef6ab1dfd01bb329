"""The SQLite database: failures of the disk and of the lock, the single-server guard, group commit."""

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import insert

from app.core.errors import Conflict, Unavailable
from app.storage import sqlite
from app.storage.database import Tx
from app.storage.group import MAX_GROUP
from app.storage.open import build_stores
from app.storage.sqlite import SqliteDatabase
from app.storage.statement import Statement
from app.storage.tables import secrets
from tests.contracts.samples import Driver, new_run, started

pytestmark = pytest.mark.anyio

ALL = 1 << 30
_INSERT = Statement(insert(secrets))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "runwire.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[SqliteDatabase]:
    opened = SqliteDatabase(path)
    await opened.start()
    yield opened
    await opened.stop()


def counted(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    finally:
        connection.close()


async def test_the_folder_and_files_are_for_this_user_alone(database: SqliteDatabase, path: Path) -> None:
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


async def test_every_commit_is_on_disk_before_it_counts(database: SqliteDatabase) -> None:
    connection = sqlite.connect(database.path)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


async def test_a_second_server_is_told_that_the_database_is_in_use(database: SqliteDatabase, path: Path) -> None:
    with pytest.raises(Unavailable) as failure:
        await SqliteDatabase(path).start()
    assert failure.value.code == "database_in_use"


async def test_a_stopped_server_gives_the_database_free(path: Path) -> None:
    for _ in range(2):
        database = SqliteDatabase(path)
        await database.start()
        await database.ping()
        await database.stop()


async def test_a_full_disk_fails_the_append_and_leaves_nothing_half_written(
    database: SqliteDatabase, path: Path
) -> None:
    stores = build_stores(database, None)
    drivers = [await started(stores.runs) for _ in range(3)]
    writer = database._writer
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count={pages}")
    rows = counted(path, "journal")
    big = ("output", {"text": "x" * 200_000})
    outcomes = await asyncio.gather(*(driver.append(big) for driver in drivers), return_exceptions=True)
    assert [getattr(outcome, "code", None) for outcome in outcomes] == ["storage_unavailable"] * 3
    assert counted(path, "journal") == rows
    for driver in drivers:
        assert await stores.runs.get("acme", driver.run.id) == driver.run

    writer.execute("PRAGMA max_page_count=1000000")
    for driver in drivers:
        again = Driver(stores.runs, driver.run)
        assert not (await again.append(big)).fenced


async def test_a_lock_held_by_another_process_fails_the_append_or_delays_it(
    database: SqliteDatabase, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = build_stores(database, None)
    driver = await started(stores.runs)
    append = driver.next(("output", {}))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(sqlite, "BUSY_S", 0.05)
    with pytest.raises(Unavailable) as failure:
        await stores.runs.append(append)
    assert failure.value.code == "storage_unavailable"
    assert await stores.runs.get("acme", driver.run.id) == driver.run, "reading goes on"

    monkeypatch.setattr(sqlite, "BUSY_S", 30.0)
    waiting = asyncio.ensure_future(stores.runs.append(append))
    await asyncio.sleep(0)
    other.execute("ROLLBACK")
    other.close()
    async with asyncio.timeout(20):
        assert not (await waiting).fenced
    assert len(await stores.runs.events(driver.run.id, after=0, max_bytes=ALL)) == 2


async def test_a_commit_that_fails_fails_the_whole_group(database: SqliteDatabase, path: Path) -> None:
    """A deferred constraint is only looked at by COMMIT."""
    database._writer.executescript(
        "PRAGMA foreign_keys=ON; CREATE TABLE parent (id INTEGER PRIMARY KEY);"
        "CREATE TABLE child (id INTEGER REFERENCES parent(id) DEFERRABLE INITIALLY DEFERRED);"
    )
    stores = build_stores(database, None)
    driver = await started(stores.runs)

    def orphan(tx: Tx) -> None:
        database._writer.execute("INSERT INTO child VALUES (1)")

    outcomes = await asyncio.gather(driver.append(("output", {})), database.write(orphan), return_exceptions=True)
    assert all(isinstance(outcome, Exception) for outcome in outcomes)
    assert counted(path, "child") == 0
    assert await stores.runs.get("acme", driver.run.id) == driver.run
    assert not (await Driver(stores.runs, driver.run).append(("output", {}))).fenced


async def test_a_waiter_that_is_cancelled_does_not_disturb_its_group(database: SqliteDatabase) -> None:
    stores = build_stores(database, None)
    drivers = [await started(stores.runs) for _ in range(3)]
    tasks = [asyncio.ensure_future(driver.append(("output", {}))) for driver in drivers]
    await asyncio.sleep(0)
    tasks[1].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert [getattr(outcomes[index], "fenced", None) for index in (0, 2)] == [False, False]


async def test_a_refusal_in_a_group_rolls_back_itself_alone(database: SqliteDatabase, path: Path) -> None:
    stores = build_stores(database, None)

    def half_way(tx: Tx) -> None:
        database._tx.wrote = True
        database._writer.execute("INSERT INTO secrets VALUES ('1', 't', x'00', 1)")
        raise Conflict("no")

    runs = [new_run() for _ in range(4)]
    outcomes = await asyncio.gather(
        stores.runs.create(runs[0], None),
        database.write(half_way),
        stores.runs.create(runs[1], None),
        database.write(half_way),
        return_exceptions=True,
    )
    assert [isinstance(outcome, Conflict) for outcome in outcomes] == [False, True, False, True]
    assert counted(path, "secrets") == 0
    assert counted(path, "runs") == 2
    assert counted(path, "threads") == 2


async def test_more_writes_than_a_group_holds_are_all_written(database: SqliteDatabase, path: Path) -> None:
    stores = build_stores(database, None)
    await asyncio.gather(*(stores.secrets.put("acme", "x") for _ in range(MAX_GROUP + 10)))
    assert counted(path, "secrets") == MAX_GROUP + 10


async def test_stop_finishes_what_waits_and_takes_no_more(path: Path) -> None:
    database = SqliteDatabase(path)
    await database.start()
    stores = build_stores(database, "x" * 16)
    writes = [asyncio.ensure_future(stores.secrets.put("acme", str(number))) for number in range(20)]
    await asyncio.sleep(0)
    await database.stop()
    await asyncio.gather(*writes)
    assert counted(path, "secrets") == 20
    with pytest.raises(Unavailable):
        await stores.secrets.put("acme", "late")


async def test_readers_cannot_write(database: SqliteDatabase) -> None:
    for run in (database.read, database.look):
        with pytest.raises(Unavailable):
            await run(lambda tx: tx.run(_INSERT, {"id": "1", "tenant": "t", "ciphertext": b"", "created_at": 1}))


async def test_the_key_file_is_made_at_the_first_secret_and_kept(database: SqliteDatabase, path: Path) -> None:
    key = Path(f"{path}.key")
    stores = build_stores(database, None)
    assert key.name not in os.listdir(path.parent)
    ref = await stores.secrets.put("acme", "x")
    assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
    assert await build_stores(database, None).secrets.get("acme", ref) == "x"
    assert os.listdir(path.parent).count("runwire.db.key") == 1
