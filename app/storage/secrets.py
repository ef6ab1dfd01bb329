"""Secrets in storage: `SqlSecretStore`, the adapter of the port `SecretStore`."""

from collections.abc import Callable

from sqlalchemy import bindparam, delete, insert, select

from app.core.ids import new_id
from app.storage.database import Database
from app.storage.secret_box import SecretBox
from app.storage.statement import Statement
from app.storage.tables import secrets

_OWN = (secrets.c.id == bindparam("ref"), secrets.c.tenant == bindparam("of_tenant"))
_PUT = Statement(insert(secrets))
_GET = Statement(select(secrets.c.ciphertext).where(*_OWN))
_DELETE = Statement(delete(secrets).where(*_OWN))


class SqlSecretStore:
    """`box` is asked for at the first use, so that a server without secrets makes no key file."""

    def __init__(self, database: Database, box: Callable[[], SecretBox], clock: Callable[[], int]) -> None:
        self._db = database
        self._make_box = box
        self._box: SecretBox | None = None
        self._clock = clock

    async def put(self, tenant: str, value: str) -> str:
        ref = new_id()
        row = {
            "id": ref,
            "tenant": tenant,
            "ciphertext": self._open_box().seal(tenant, ref, value),
            "created_at": self._clock(),
        }
        await self._db.write(lambda tx: tx.run(_PUT, row))
        return ref

    async def get(self, tenant: str, ref: str) -> str | None:
        row = await self._db.look(lambda tx: tx.one(_GET, {"ref": ref, "of_tenant": tenant}))
        return None if row is None else self._open_box().open(tenant, ref, bytes(row[0]))

    async def delete(self, tenant: str, ref: str) -> None:
        await self._db.write(lambda tx: tx.run(_DELETE, {"ref": ref, "of_tenant": tenant}))

    def _open_box(self) -> SecretBox:
        if self._box is None:
            self._box = self._make_box()
        return self._box
