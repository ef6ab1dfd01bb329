"""Signing secrets in storage: `SqlSigningStore`, the adapter of the port `SigningStore`."""

from collections.abc import Callable, Sequence

import orjson
from sqlalchemy import bindparam, delete, insert, select, update

from app.core.idempotency import IdempotencyKey
from app.storage import idempotency
from app.storage.database import Database, Tx
from app.storage.rows import text
from app.storage.statement import Row, Statement
from app.storage.tables import secrets, tool_signing
from app.tools.port import Rotation, SigningSecret

OLD_SIGNS_MS = 24 * 3600 * 1000
"""How long the secret before the newest signs beside it (contract, section 4)."""

MOST_FORGOTTEN = 200
"""Secrets that one call of `forget_expired` deletes at most."""

_g = tool_signing.c
_FAMILY = (
    _g.tenant == bindparam("of_tenant", type_=_g.tenant.type),
    _g.family == bindparam("of_family", type_=_g.family.type),
)
_ALL = Statement(select(_g.version, _g.secret, _g.expires_at).where(*_FAMILY).order_by(_g.version.desc()))
_INSERT = Statement(insert(tool_signing))
_EXPIRE = Statement(
    update(tool_signing)
    .values(expires_at=bindparam("until", type_=_g.expires_at.type))
    .where(*_FAMILY, _g.version == bindparam("of_version", type_=_g.version.type))
)
_DELETE = Statement(delete(tool_signing).where(*_FAMILY, _g.version == bindparam("of_version", type_=_g.version.type)))
_DELETE_SECRET = Statement(
    delete(secrets).where(secrets.c.id == bindparam("ref"), secrets.c.tenant == bindparam("of_tenant"))
)
_EXPIRED = Statement(
    select(_g.tenant, _g.family, _g.version, _g.secret)
    .where(_g.expires_at <= bindparam("now", type_=_g.expires_at.type))
    .limit(MOST_FORGOTTEN)
)


class SqlSigningStore:
    """`clock` gives milliseconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._db = database
        self._clock = clock

    async def secrets_of(self, tenant: str, family: str) -> Sequence[SigningSecret]:
        now = self._clock()
        rows = await self._db.look(lambda tx: tx.all(_ALL, {"of_tenant": tenant, "of_family": family}))
        return [SigningSecret(_ref(row), row[2]) for row in rows if row[2] is None or row[2] > now]

    async def rotate(
        self, tenant: str, family: str, ref: str, idempotency: IdempotencyKey | None
    ) -> tuple[Rotation, bool]:
        now = self._clock()
        return await self._db.write(lambda tx: _rotate(tx, tenant, family, ref, idempotency, now))

    async def forget(self, tenant: str, family: str) -> None:
        await self._db.write(lambda tx: _forget(tx, tenant, family))


def forget_expired(tx: Tx, now: int) -> int:
    """Delete secrets whose time to sign is over, at most `MOST_FORGOTTEN`; how many."""
    rows = tx.all(_EXPIRED, {"now": now})
    for tenant, family, version, secret in rows:
        tx.run(_DELETE_SECRET, {"ref": orjson.loads(secret)["secret_ref"], "of_tenant": tenant})
        tx.run(_DELETE, {"of_tenant": tenant, "of_family": family, "of_version": version})
    return len(rows)


def _rotate(tx: Tx, tenant: str, family: str, ref: str, key: IdempotencyKey | None, now: int) -> tuple[Rotation, bool]:
    own = {"of_tenant": tenant, "of_family": family}
    rows = tx.all(_ALL, own)
    made = None if key is None else idempotency.find(tx, key, now)
    if made is not None:
        return _made_before(rows, made), True
    until = now + OLD_SIGNS_MS
    if rows:
        tx.run(_EXPIRE, {**own, "of_version": rows[0][0], "until": until})
        for row in rows[1:]:
            _delete(tx, tenant, family, row)
    else:
        tx.run(_INSERT, _row(tenant, family, 1, family, now, until))
    newest = rows[0][0] if rows else 1
    tx.run(_INSERT, _row(tenant, family, newest + 1, ref, now, None))
    if key is not None:
        idempotency.keep(tx, key, f"{ref}:{until}", now)
    return Rotation(ref, until), False


def _made_before(rows: Sequence[Row], made: str) -> Rotation:
    ref, _, until = made.partition(":")
    return Rotation(ref if rows and _ref(rows[0]) == ref else None, int(until))


def _forget(tx: Tx, tenant: str, family: str) -> None:
    for row in tx.all(_ALL, {"of_tenant": tenant, "of_family": family}):
        _delete(tx, tenant, family, row)
    tx.run(_DELETE_SECRET, {"ref": family, "of_tenant": tenant})


def _delete(tx: Tx, tenant: str, family: str, row: Row) -> None:
    tx.run(_DELETE_SECRET, {"ref": _ref(row), "of_tenant": tenant})
    tx.run(_DELETE, {"of_tenant": tenant, "of_family": family, "of_version": row[0]})


def _row(tenant: str, family: str, version: int, ref: str, now: int, until: int | None) -> dict[str, object]:
    """`secret` is written as a reference, so that the sweep of unused secrets finds it."""
    return {
        "tenant": tenant,
        "family": family,
        "version": version,
        "secret": text({"secret_ref": ref}),
        "created_at": now,
        "expires_at": until,
    }


def _ref(row: Row) -> str:
    return str(orjson.loads(row[1])["secret_ref"])
