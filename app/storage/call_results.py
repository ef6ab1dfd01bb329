"""Results of calls in storage: `SqlCallResultStore`, the adapter of the port `CallResultStore`."""

from collections.abc import Mapping

import orjson
from sqlalchemy import bindparam, func, insert, select, update

from app.agent.ports import WholeResult
from app.storage.database import Database, Tx
from app.storage.rows import text
from app.storage.statement import Row, Statement
from app.storage.tables import tool_calls, tool_results

_k, _w = tool_calls.c, tool_results.c
_CALL = (_k.id == bindparam("call_id", type_=_k.id.type), _k.tenant == bindparam("of_tenant", type_=_k.tenant.type))
_RECONCILE = Statement(
    update(tool_calls)
    .values(reconciled=bindparam("found", type_=_k.reconciled.type))
    .where(*_CALL, _k.status == "unknown", _k.reconciled.is_(None))
    .returning(_k.id)
)
_RECONCILED = Statement(select(_k.reconciled).where(*_CALL))
_WHOLE = Statement(
    select(_w.data, _w.sha256, _w.content_type, _w.complete).where(
        _w.tool_call_id == bindparam("call_id", type_=_w.tool_call_id.type),
        _w.tenant == bindparam("of_tenant", type_=_w.tenant.type),
    )
)
_KEPT_BYTES = Statement(
    select(func.coalesce(func.sum(func.length(_w.data)), 0)).where(
        _w.run_id == bindparam("of_run", type_=_w.run_id.type)
    )
)
_KEEP = Statement(insert(tool_results))


class SqlCallResultStore:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def whole(self, tenant: str, tool_call_id: str) -> WholeResult | None:
        row = await self._db.read(lambda tx: tx.one(_WHOLE, {"call_id": tool_call_id, "of_tenant": tenant}))
        return None if row is None else WholeResult(bytes(row[0]), row[1], row[2], bool(row[3]))

    async def kept_bytes(self, run_id: str) -> int:
        """Of all long results of a run, together."""
        row = await self._db.look(lambda tx: tx.one(_KEPT_BYTES, {"of_run": run_id}))
        return 0 if row is None else int(row[0])

    async def reconcile(self, tenant: str, tool_call_id: str, found: Mapping[str, object]) -> Mapping[str, object]:
        return await self._db.write(lambda tx: _reconcile(tx, tenant, tool_call_id, found))


def keep_whole(tx: Tx, tool_call_id: str, tenant: str, run_id: str, whole: WholeResult) -> None:
    """In the transaction of the call's result."""
    tx.run(
        _KEEP,
        {
            "tool_call_id": tool_call_id,
            "tenant": tenant,
            "run_id": run_id,
            "sha256": whole.sha256,
            "content_type": whole.content_type,
            "complete": int(whole.complete),
            "data": whole.data,
        },
    )


def _reconcile(tx: Tx, tenant: str, tool_call_id: str, found: Mapping[str, object]) -> Mapping[str, object]:
    own = {"call_id": tool_call_id, "of_tenant": tenant}
    if tx.one(_RECONCILE, {**own, "found": text(found)}) is not None:
        return found
    row: Row | None = tx.one(_RECONCILED, own)
    return found if row is None or row[0] is None else orjson.loads(row[0])
