"""The SQLite database: one writing connection with group commit, reading connections beside it.

sqlite3 gives the GIL up at every statement. On a second thread each statement then waits for a busy loop thread to give it
back, so the statements of a group run on the loop thread (they touch memory only) and one thread does what waits for
the disk: COMMIT, and BEGIN where another process holds the lock. Figures in ADR 2.
"""

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from app.core.errors import Unavailable
from app.storage import migrate
from app.storage.database import Tx, switch_soon, unavailable, with_constants
from app.storage.group import Flushed, Write, WriteQueue, apply, unwatched
from app.storage.statement import DialectName, Params, Row, Statement

T = TypeVar("T")

READERS = 4
BUSY_S = 5.0
"""How long BEGIN waits for another process (a shell, a backup) to let go of the write lock."""


class SqliteTx:
    """A transaction of one sqlite3 connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self.connection = connection
        self.wrote = False

    def run(self, statement: Statement, params: Params) -> None:
        sql, constants = statement.on("sqlite")
        self.wrote = self.wrote or statement.write
        self._execute(sql, with_constants(params, constants))  # pyright: ignore[reportArgumentType]

    def many(self, statement: Statement, params: Sequence[Params]) -> None:
        for item in params:
            self.run(statement, item)

    def one(self, statement: Statement, params: Params) -> Row | None:
        rows = self.all(statement, params)
        return rows[0] if rows else None

    def all(self, statement: Statement, params: Params) -> list[Row]:
        # `fetchall` always: a RETURNING statement whose rows are left unread stays open and blocks the COMMIT.
        sql, constants = statement.on("sqlite")
        self.wrote = self.wrote or statement.write
        return self._execute(sql, with_constants(params, constants)).fetchall()  # pyright: ignore[reportArgumentType]

    def savepoint(self) -> None:
        self._execute("SAVEPOINT one")

    def release(self) -> None:
        self._execute("RELEASE one")

    def rollback_to(self) -> None:
        self._execute("ROLLBACK TO one")
        self._execute("RELEASE one")

    def restart(self) -> None:
        self.rollback()
        self._execute("BEGIN IMMEDIATE")

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self._execute("ROLLBACK")

    def alive(self) -> bool:
        return self.connection.in_transaction

    def is_driver_error(self, error: BaseException) -> bool:
        return isinstance(error, sqlite3.Error)


class SqliteDatabase:
    """`path` is the database file; its folder is made when missing, for this user alone."""

    dialect: DialectName = "sqlite"

    def __init__(self, path: Path, flushed: Flushed = unwatched) -> None:
        self.path = path
        self._flushed = flushed

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._open)
        self._queue = WriteQueue(
            self._start_group, lambda error: isinstance(error, sqlite3.OperationalError), self._flushed
        )
        self._switching = switch_soon()

    def _open(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unavailable(error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise Unavailable(
                f"Another Runwire server uses the database {self.path.name}; stop it or choose another database.",
                code="database_in_use",
            ) from error
        try:
            migrate.upgrade_sqlite(self.path)
            self._writer = connect(self.path)
            self._look = SqliteTx(connect(self.path, query_only=True))
        except sqlite3.Error as error:
            os.close(self._lock)
            raise unavailable(error) from error
        except BaseException:
            os.close(self._lock)
            raise
        self._tx = SqliteTx(self._writer)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-commit")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="sqlite-read")
        self._reader = threading.local()
        self._reader_connections = list[sqlite3.Connection]()

    async def stop(self) -> None:
        await self._queue.drain()
        await asyncio.to_thread(self._close)
        self._switching.close()

    def _close(self) -> None:
        self._thread.shutdown()
        self._readers.shutdown()
        for connection in (*self._reader_connections, self._look.connection, self._writer):
            connection.close()
        os.close(self._lock)

    async def write(self, fn: Callable[[Tx], T]) -> T:
        return await self._queue.submit(self._loop, fn)

    def _start_group(self, group: list[Write]) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            self._thread.submit(self._wait_for_lock, group)
        else:
            self._run_group(group)

    def _wait_for_lock(self, group: list[Write]) -> None:
        try:
            self._writer.execute(f"PRAGMA busy_timeout={int(BUSY_S * 1000)}")
            try:
                self._writer.execute("BEGIN IMMEDIATE")
            finally:
                self._writer.execute("PRAGMA busy_timeout=0")
        except sqlite3.Error as error:
            self._loop.call_soon_threadsafe(self._queue.finished, group, error)
        else:
            self._loop.call_soon_threadsafe(self._run_group, group)

    def _run_group(self, group: list[Write]) -> None:
        try:
            apply(self._tx, group)
        except Exception as error:  # noqa: BLE001 - the transaction is lost: every caller of the group is told
            self._abandon()
            self._loop.call_soon(self._queue.finished, group, error)
        else:
            self._thread.submit(self._commit, group)

    def _commit(self, group: list[Write]) -> None:
        failure: BaseException | None = None
        try:
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            failure = error
            self._abandon()
        self._loop.call_soon_threadsafe(self._queue.finished, group, failure)

    def _abandon(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._tx.rollback()

    async def read(self, fn: Callable[[Tx], T]) -> T:
        return await self._loop.run_in_executor(self._readers, self._read, fn)

    def _read(self, fn: Callable[[Tx], T]) -> T:
        try:
            tx: SqliteTx | None = getattr(self._reader, "tx", None)
            if tx is None:
                connection = connect(self.path, query_only=True)
                self._reader_connections.append(connection)
                tx = self._reader.tx = SqliteTx(connection)
            tx.connection.execute("BEGIN")
            try:
                return fn(tx)
            finally:
                tx.connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise unavailable(error) from error

    async def look(self, fn: Callable[[Tx], T]) -> T:
        try:
            return fn(self._look)
        except sqlite3.Error as error:
            raise unavailable(error) from error

    async def ping(self) -> None:
        try:
            rows = self._look.connection.execute(migrate.VERSION_QUERY).fetchall()
        except sqlite3.Error as error:
            raise unavailable(error) from error
        migrate.check_version(rows)


def connect(path: Path, *, query_only: bool = False) -> sqlite3.Connection:
    """A connection with our settings: WAL, every commit on disk before it counts (`synchronous=FULL`)."""
    connection = sqlite3.connect(
        path, timeout=BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    if query_only:
        connection.execute("PRAGMA query_only=ON")
    else:
        connection.execute("PRAGMA busy_timeout=0")
    return connection
