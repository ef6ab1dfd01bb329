"""Unused secrets: stored ones that no row refers to.

A secret is stored before the row that refers to it, and stays behind when that row is then refused or deleted later. So
what is looked for is every reference there is, wherever it may stand; a secret that is older than any request under way
and has none is deleted. References are only ever copied from rows that stay (versions of tools and agents), or made fresh.
"""

import re
from collections.abc import Iterator

from sqlalchemy import Table, Text, bindparam, delete, select, text, tuple_

from app.storage.database import Database
from app.storage.statement import DialectName, Params, Row, Statement
from app.storage.tables import HOLDS_SECRETS, SCHEMA, runs, secrets

PAGE = 200
"""Rows of one read, and secrets of one transaction."""

WITHOUT_SECRETS = frozenset(
    (
        "threads",
        "thread_metadata",
        "checkpoints",
        "run_metadata",
        "journal",
        "interrupts",
        "tool_calls",
        "tool_results",
        "tool_switches",
        "secrets",
        "idempotency",
    )
)
"""Tables that are not searched: no row of theirs holds a spec. Every other table is, in all its text."""

_REFERENCE = re.compile(r'"secret_ref":"([^"\\]+)"')


def _pages_of(table: Table, dialect: DialectName) -> Statement:
    """A page of a table's texts, beyond the key `after_0`, `after_1`, …; first the key, then the texts.

    Of runs only those with a secret of their own are read, which are few.
    """
    key = list(table.primary_key.columns)
    texts = [runs.c.spec] if table is runs else [c for c in table.c if isinstance(c.type, Text) and c not in key]
    beyond = tuple_(*key) > tuple_(*(bindparam(f"after_{n}", type_=c.type) for n, c in enumerate(key)))
    query = select(*key, *texts).order_by(*key).limit(PAGE)
    if table is runs:
        return Statement(
            query.where(runs.c.id > bindparam("after_0", type_=runs.c.id.type), text(HOLDS_SECRETS[dialect]))
        )
    return Statement(query.where(beyond))


_SEARCHED = [table for table in SCHEMA.sorted_tables if table.name not in WITHOUT_SECRETS]
_PAGES = {dialect: [(table, _pages_of(table, dialect)) for table in _SEARCHED] for dialect in ("sqlite", "postgresql")}
_OLD = Statement(
    select(secrets.c.id)
    .where(secrets.c.created_at < bindparam("before"), secrets.c.id > bindparam("after"))
    .order_by(secrets.c.id)
    .limit(PAGE)
)
_DELETE = Statement(delete(secrets).where(secrets.c.id == bindparam("ref")).returning(secrets.c.id))


async def delete_unused(db: Database, before_ms: int) -> int:
    """Delete the secrets stored before `before_ms` that nothing refers to; how many."""
    used: set[str] | None = None
    deleted, after = 0, ""
    while True:
        old = [str(row[0]) for row in await _read(db, _OLD, {"before": before_ms, "after": after})]
        if not old:
            return deleted
        after = old[-1]
        if used is None:
            used = await references(db)
        deleted += await _delete(db, [ref for ref in old if ref not in used])


async def references(db: Database) -> set[str]:
    """Every reference to a secret, read page by page."""
    found: set[str] = set()
    for table, statement in _PAGES[db.dialect]:
        width = len(table.primary_key.columns)
        key: list[object] | None = [0 if not isinstance(c.type, Text) else "" for c in table.primary_key.columns]
        while key is not None:
            rows = await _read(db, statement, {f"after_{n}": value for n, value in enumerate(key)})
            found.update(_references_in(rows, width))
            key = list(rows[-1][:width]) if len(rows) == PAGE else None
    return found


async def _read(db: Database, statement: Statement, values: Params) -> list[Row]:
    return await db.read(lambda tx: tx.all(statement, values))


async def _delete(db: Database, refs: list[str]) -> int:
    if not refs:
        return 0
    return await db.write(lambda tx: sum(tx.one(_DELETE, {"ref": ref}) is not None for ref in refs))


def _references_in(rows: list[Row], width: int) -> Iterator[str]:
    for row in rows:
        for value in row[width:]:
            if value is not None:
                yield from _REFERENCE.findall(value)
