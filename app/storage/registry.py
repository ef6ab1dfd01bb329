"""Registries in storage: `SqlRegistry`, the adapter of the port `Registry` on a table of versions (tools, agents)."""

from collections.abc import Callable, Sequence
from typing import Literal

import orjson
from sqlalchemy import Table, bindparam, func, insert, select, update

from app.core.errors import Conflict
from app.core.idempotency import IdempotencyKey
from app.core.registry import Versioned
from app.storage import idempotency
from app.storage.database import Database, Tx
from app.storage.rows import text
from app.storage.statement import Row, Statement

DELETED = -1
"""`live` of the version at which a name was deleted: a run that pinned it or an older one may not call it any more."""

Kind = Literal["tool", "agent"]


class _Queries:
    """The statements of one registry table."""

    def __init__(self, table: Table) -> None:
        c = table.c
        columns = select(c.tenant, c.name, c.version, c.spec, c.created_at)
        own = (c.tenant == bindparam("of_tenant"), c.name == bindparam("of_name"))
        self.live = Statement(columns.where(*own, c.live == 1))
        self.version = Statement(columns.where(*own, c.version == bindparam("of_version")))
        self.newest = Statement(select(func.max(c.version)).where(*own))
        self.page = Statement(
            columns.where(c.tenant == bindparam("of_tenant"), c.live == 1, c.name > bindparam("after"))
            .order_by(c.name)
            .limit(bindparam("limit"))
        )
        retired = update(table).where(*own, c.live == 1).returning(c.version)
        self.retire = Statement(retired.values(live=0))
        self.delete = Statement(retired.values(live=DELETED))
        self.insert = Statement(insert(table))
        self.names = Statement(select(c.name).where(c.live == 1).distinct())


class SqlRegistry:
    """`kind` names the resource in error codes; `clock` gives milliseconds since the epoch."""

    def __init__(self, database: Database, table: Table, kind: Kind, clock: Callable[[], int]) -> None:
        self._db = database
        self._q = _Queries(table)
        self._kind = kind
        self._clock = clock

    async def create(
        self, tenant: str, name: str, spec: dict[str, object], idempotency: IdempotencyKey | None
    ) -> tuple[Versioned, int | None]:
        now = self._clock()
        return await self._db.write(lambda tx: self._create(tx, tenant, name, spec, idempotency, now))

    async def put(self, tenant: str, name: str, spec: dict[str, object]) -> tuple[Versioned, bool]:
        now = self._clock()
        return await self._db.write(lambda tx: self._add(tx, tenant, name, spec, now))

    async def get(self, tenant: str, name: str) -> Versioned | None:
        return await self._db.look(lambda tx: self._live(tx, tenant, name))

    async def version(self, tenant: str, name: str, version: int) -> Versioned | None:
        return await self._db.look(lambda tx: self._version(tx, tenant, name, version))

    async def page(self, tenant: str, *, after: str | None, limit: int) -> Sequence[Versioned]:
        values = {"of_tenant": tenant, "after": after or "", "limit": limit}
        return [_versioned(row) for row in await self._db.read(lambda tx: tx.all(self._q.page, values))]

    async def delete(self, tenant: str, name: str) -> bool:
        values = {"of_tenant": tenant, "of_name": name}
        return await self._db.write(lambda tx: tx.one(self._q.delete, values) is not None)

    async def names_in_use(self) -> Sequence[str]:
        return [row[0] for row in await self._db.read(lambda tx: tx.all(self._q.names, {}))]

    def _create(
        self, tx: Tx, tenant: str, name: str, spec: dict[str, object], key: IdempotencyKey | None, now: int
    ) -> tuple[Versioned, int | None]:
        if key is not None:
            made = idempotency.find(tx, key, now)
            if made is not None:
                # As it is now; where it was deleted since, the key counts as unused, as it does for runs.
                first, _, version = made.rpartition(":")
                found = self._live(tx, tenant, first)
                if found is not None:
                    return found, int(version)
        if self._live(tx, tenant, name) is not None:
            raise Conflict(
                f"The {self._kind} {name} exists already; replace it with PUT or choose another name.",
                code=f"{self._kind}_exists",
            )
        created, _ = self._add(tx, tenant, name, spec, now)
        if key is not None:
            idempotency.keep(tx, key, f"{name}:{created.version}", now)
        return created, None

    def _add(self, tx: Tx, tenant: str, name: str, spec: dict[str, object], now: int) -> tuple[Versioned, bool]:
        """Insert the next version as the live one; whether no other was live."""
        own = {"of_tenant": tenant, "of_name": name}
        newest = tx.one(self._q.newest, own)
        version = 1 + int((newest[0] if newest is not None else None) or 0)
        new = tx.one(self._q.retire, own) is None
        tx.run(
            self._q.insert,
            {"tenant": tenant, "name": name, "version": version, "spec": text(spec), "created_at": now, "live": 1},
        )
        return Versioned(tenant, name, version, spec, now), new

    def _live(self, tx: Tx, tenant: str, name: str) -> Versioned | None:
        row = tx.one(self._q.live, {"of_tenant": tenant, "of_name": name})
        return None if row is None else _versioned(row)

    def _version(self, tx: Tx, tenant: str, name: str, version: int) -> Versioned | None:
        row = tx.one(self._q.version, {"of_tenant": tenant, "of_name": name, "of_version": version})
        return None if row is None else _versioned(row)


def _versioned(row: Row) -> Versioned:
    return Versioned(row[0], row[1], row[2], orjson.loads(row[3]), row[4])
