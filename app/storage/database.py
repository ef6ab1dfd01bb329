"""The database: where transactions run. Two adapters, `app.storage.sqlite` and `app.storage.postgres`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol, TypeVar

from app.core.errors import Unavailable
from app.storage.statement import DialectName, Params, Row, Statement

T = TypeVar("T")


class Tx(Protocol):
    """An open transaction. It belongs to the function it is given to and ends with it."""

    def run(self, statement: Statement, params: Params) -> None:
        """Execute, without an answer."""
        ...

    def many(self, statement: Statement, params: Sequence[Params]) -> None:
        """Execute once for each set of values, without an answer."""
        ...

    def one(self, statement: Statement, params: Params) -> Row | None:
        """The first row."""
        ...

    def all(self, statement: Statement, params: Params) -> list[Row]: ...


class Database(Protocol):
    """Transactions on one database. Functions must not block on anything else and must be safe to run twice."""

    @property
    def dialect(self) -> DialectName: ...

    async def start(self) -> None:
        """Take the database for this server alone, bring the schema up to date, open the connections.

        Raises `Unavailable`: `database_in_use` (another server has it), `storage_unavailable`, `schema_unknown`.
        """
        ...

    async def stop(self) -> None:
        """Finish the writes that wait, close the connections, give the database free."""
        ...

    async def write(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` in a transaction; durable when this returns.

        Functions that wait at the same time share one transaction. One that raises leaves nothing behind and does not
        disturb the others; it may be run a second time. Raises what `fn` raised, or `Unavailable`
        (`storage_unavailable`) when the transaction could not be committed: then nothing of it was written.
        """
        ...

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` on one consistent view of committed rows, on a thread. It cannot write."""
        ...

    async def look(self, fn: Callable[[Tx], T]) -> T:
        """Like `read`, for one short look-up by key: where the database is in this process it runs at once, without a thread."""
        ...

    async def ping(self) -> None:
        """Raises `Unavailable` when the database does not answer."""
        ...


def unavailable(error: BaseException | None = None) -> Unavailable:
    """The error for a database that cannot do its work now. The driver's text stays in `__cause__`: it may hold addresses."""
    failure = Unavailable("The database cannot take the request now; try again.", code="storage_unavailable")
    failure.__cause__ = error
    return failure


def with_constants(params: Params, constants: Params) -> Mapping[str, Any]:
    return {**constants, **params} if constants else params


SWITCH_INTERVAL_S = 50e-6
"""How soon a database thread gets the GIL from a busy event loop. With the default of 5 ms it starves: a loop that enters
the kernel more often than that starts the wait again each time (5 appends a second, measured in ADR 2)."""


def switch_soon() -> ExitStack:
    """Set `SWITCH_INTERVAL_S` for the process; closing the answer sets back what was before."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_INTERVAL_S))
    undo = ExitStack()
    undo.callback(sys.setswitchinterval, before)
    return undo
