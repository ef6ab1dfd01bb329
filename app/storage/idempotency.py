"""Idempotency keys in storage: which resource a key made, for 24 hours."""

from sqlalchemy import bindparam, delete, insert, select, tuple_

from app.core.errors import InvalidRequest
from app.core.idempotency import KEPT_MS, IdempotencyKey
from app.storage.database import Tx
from app.storage.statement import Statement
from app.storage.tables import idempotency

MOST_FORGOTTEN = 200
"""Keys that one call of `forget_old` deletes at most."""

_KEY = (idempotency.c.tenant, idempotency.c.route, idempotency.c.key)
_SAME_KEY = (
    (idempotency.c.tenant == bindparam("tenant"))
    & (idempotency.c.route == bindparam("route"))
    & (idempotency.c.key == bindparam("key"))
)
_FIND = Statement(
    select(idempotency.c.body_sha256, idempotency.c.resource_id, idempotency.c.created_at).where(_SAME_KEY)
)
_FORGET = Statement(delete(idempotency).where(_SAME_KEY))
_KEEP = Statement(insert(idempotency))
_FORGET_OLD = Statement(
    delete(idempotency)
    .where(
        tuple_(*_KEY).in_(select(*_KEY).where(idempotency.c.created_at < bindparam("before_ms")).limit(MOST_FORGOTTEN))
    )
    .returning(idempotency.c.created_at)
)


def find(tx: Tx, key: IdempotencyKey, now: int) -> str | None:
    """The id of what this key made in the last 24 h. Raises `InvalidRequest` (`idempotency_mismatch`) for another body."""
    row = tx.one(_FIND, {"tenant": key.tenant, "route": key.route, "key": key.key})
    if row is None or row[2] <= now - KEPT_MS:
        return None
    if row[0] != key.body_sha256:
        raise InvalidRequest(
            "This Idempotency-Key was used with another body; use a new key for a new request.",
            code="idempotency_mismatch",
        )
    return row[1]


def keep(tx: Tx, key: IdempotencyKey, resource_id: str, now: int) -> None:
    """Remember what a key made, in place of what it made longer ago."""
    scope = {"tenant": key.tenant, "route": key.route, "key": key.key}
    tx.run(_FORGET, scope)
    tx.run(_KEEP, {**scope, "body_sha256": key.body_sha256, "resource_id": resource_id, "created_at": now})


def forget_old(tx: Tx, now: int) -> int:
    """Delete keys that count as absent, at most `MOST_FORGOTTEN`; how many."""
    return len(tx.all(_FORGET_OLD, {"before_ms": now - KEPT_MS}))
