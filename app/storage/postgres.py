"""The Postgres database: one writing connection with group commit on its own thread, reading connections on a few more.

psycopg is used without its async side: a group is one job on the writer's thread, so a busy event loop is left once for a
group and not once for a statement. Answers nobody needs are not waited for (pipeline mode).
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import psycopg
from psycopg import Connection
from psycopg.abc import QueryNoTemplate
from psycopg.conninfo import conninfo_to_dict

from app.core.errors import Unavailable
from app.storage import migrate
from app.storage.database import Tx, switch_soon, unavailable, with_constants
from app.storage.group import Flushed, Write, WriteQueue, apply, apply_apart, unwatched
from app.storage.statement import DialectName, Params, Row, Statement

T = TypeVar("T")

READERS = 4
CONNECT_S = 5
LOCK_MS = 3000
"""How long a server waits for the lock: Postgres notices the end of the one before with a delay."""

_LOCK = 0x72756E77697265
"""Key of the advisory lock that one server holds on its database: "runwire"."""


def is_address(url: str) -> bool:
    """Whether libpq can read it. Nothing is connected to."""
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return False
    return True


class PostgresTx:
    """A transaction of one psycopg connection in autocommit mode; BEGIN and COMMIT are sent by its owner."""

    def __init__(self, connection: Connection[Row]) -> None:
        self.connection = connection
        self.wrote = False

    def run(self, statement: Statement, params: Params) -> None:
        sql, constants = statement.on("postgresql")
        self.wrote = self.wrote or statement.write
        self.connection.execute(cast("QueryNoTemplate", sql), with_constants(params, constants))

    def many(self, statement: Statement, params: Sequence[Params]) -> None:
        for item in params:
            self.run(statement, item)

    def one(self, statement: Statement, params: Params) -> Row | None:
        rows = self.all(statement, params)
        return rows[0] if rows else None

    def all(self, statement: Statement, params: Params) -> list[Row]:
        sql, constants = statement.on("postgresql")
        self.wrote = self.wrote or statement.write
        return self.connection.execute(cast("QueryNoTemplate", sql), with_constants(params, constants)).fetchall()

    def savepoint(self) -> None:
        self.connection.execute("SAVEPOINT one")

    def release(self) -> None:
        self.connection.execute("RELEASE one")

    def rollback_to(self) -> None:
        self.connection.execute("ROLLBACK TO one")
        self.connection.execute("RELEASE one")

    def restart(self) -> None:
        raise _Again

    def alive(self) -> bool:
        return not self.connection.closed and not self.connection.broken

    def is_driver_error(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.Error)


class _Again(Exception):
    """A pipeline whose statement failed cannot go on: leave it, roll back, and run the group without one."""


class PostgresDatabase:
    """`url` is a libpq address; it may hold a password and is in no message."""

    dialect: DialectName = "postgresql"

    def __init__(self, url: str, flushed: Flushed = unwatched) -> None:
        self._url = url
        self._flushed = flushed
        self._writer: Connection[Row] | None = None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="postgres-write")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="postgres-read")
        self._local = threading.local()
        self._reader_connections: set[Connection[Row]] = set()
        self._queue = WriteQueue(
            self._start_group, lambda error: isinstance(error, psycopg.OperationalError), self._flushed
        )
        try:
            await self._loop.run_in_executor(self._thread, self._open)
        except BaseException:
            self._thread.shutdown(wait=False)
            self._readers.shutdown(wait=False)
            raise
        self._switching = switch_soon()

    def _open(self) -> None:
        try:
            writer = self._connect_writer()
            migrate.upgrade_postgres(self._url)
        except psycopg.Error as error:
            raise unavailable(error) from error
        self._writer = writer

    def _connect_writer(self) -> Connection[Row]:
        """A connection that holds the lock: no second server writes to this database."""
        connection = self._connect()
        try:
            connection.execute(cast("QueryNoTemplate", f"SET lock_timeout = {LOCK_MS}"))
            connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
            connection.execute("SET lock_timeout = 0")
        except psycopg.errors.LockNotAvailable as error:
            connection.close()
            raise Unavailable(
                "Another Runwire server uses this database; stop it or choose another database.", code="database_in_use"
            ) from error
        return connection

    def _connect(self) -> Connection[Row]:
        return psycopg.connect(
            self._url, autocommit=True, connect_timeout=CONNECT_S, keepalives_idle=10, keepalives_interval=5
        )

    async def stop(self) -> None:
        await self._queue.drain()
        await asyncio.to_thread(self._close)
        self._switching.close()

    def _close(self) -> None:
        self._thread.shutdown()
        self._readers.shutdown()
        for connection in self._reader_connections:
            connection.close()
        if self._writer is not None:
            self._writer.close()

    async def write(self, fn: Callable[[Tx], T]) -> T:
        return await self._queue.submit(self._loop, fn)

    def _start_group(self, group: list[Write]) -> None:
        self._thread.submit(self._run, group)

    def _run(self, group: list[Write]) -> None:
        failure: BaseException | None = None
        try:
            self._transact(group)
        except Exception as error:  # noqa: BLE001 - handed to every caller of the group
            failure = error
        self._loop.call_soon_threadsafe(self._queue.finished, group, failure)

    def _transact(self, group: list[Write]) -> None:
        writer = self._writer
        if writer is None or writer.closed:
            writer = self._writer = self._connect_writer()
        try:
            try:
                with writer.pipeline():
                    writer.execute("BEGIN")
                    apply(PostgresTx(writer), group)
                    writer.execute("COMMIT")
            except (_Again, psycopg.IntegrityError, psycopg.DataError, psycopg.errors.PipelineAborted):
                # Nothing was committed: a failed statement voids the transaction, and COMMIT then rolls back.
                _roll_back(writer)
                writer.execute("BEGIN")
                apply_apart(PostgresTx(writer), group)
                writer.execute("COMMIT")
        except BaseException:
            _give_up(writer)
            raise

    async def read(self, fn: Callable[[Tx], T]) -> T:
        return await self._loop.run_in_executor(self._readers, self._read, fn)

    async def look(self, fn: Callable[[Tx], T]) -> T:
        return await self._loop.run_in_executor(self._readers, self._read, fn, False)

    def _read(self, fn: Callable[[Tx], T], one_view: bool = True) -> T:
        connection = self._reader()
        try:
            # One short statement is its own transaction: BEGIN and COMMIT would triple its round trips.
            with connection.transaction() if one_view else contextlib.nullcontext():
                return fn(PostgresTx(connection))
        except psycopg.Error as error:
            if connection.closed:
                self._reader_connections.discard(connection)
                self._local.connection = None
            raise unavailable(error) from error

    def _reader(self) -> Connection[Any]:
        connection: Connection[Row] | None = getattr(self._local, "connection", None)
        if connection is None or connection.closed:
            try:
                connection = self._connect()
                connection.execute("SET default_transaction_read_only = on")
                connection.execute("SET default_transaction_isolation = 'repeatable read'")
            except psycopg.Error as error:
                raise unavailable(error) from error
            self._reader_connections.add(connection)
            self._local.connection = connection
        return connection

    async def ping(self) -> None:
        await self._loop.run_in_executor(self._readers, self._ping)

    def _ping(self) -> None:
        try:
            rows = self._reader().execute(migrate.VERSION_QUERY).fetchall()
        except psycopg.Error as error:
            raise unavailable(error) from error
        migrate.check_version(rows)


def _roll_back(connection: Connection[Any]) -> None:
    if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        connection.execute("ROLLBACK")


def _give_up(connection: Connection[Any]) -> None:
    """Leave no transaction open; a connection that cannot say so is closed and made anew by the next group."""
    try:
        _roll_back(connection)
    except psycopg.Error:
        with contextlib.suppress(psycopg.Error):
            connection.close()
