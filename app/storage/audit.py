"""The audit in storage: `SqlAuditStore`, the adapter of the port `AuditStore`."""

from sqlalchemy import bindparam, select, text

from app.runs.audit import AuditedCall, AuditFilter
from app.storage.database import Database
from app.storage.rows import CALL_COLUMNS, call_record
from app.storage.statement import Params, Row, Statement
from app.storage.tables import UNSUCCESSFUL, runs, tool_calls

SLACK_MS = 3600 * 1000
"""An id is made a little before its row is written, and clocks jump: a range of times is a wider range of ids, cut exactly."""

_k = tool_calls.c
_AUDITED = select(*CALL_COLUMNS, runs.c.subject, runs.c.agent).join(runs, runs.c.id == _k.run_id)
_TENANT = _k.tenant == bindparam("of_tenant", type_=_k.tenant.type)
_GET = Statement(_AUDITED.where(_TENANT, _k.id == bindparam("call_id", type_=_k.id.type)))

_cursor = tool_calls.alias("cursor")
_CONDITIONS = {
    "tool": _k.tool == bindparam("of_tool", type_=_k.tool.type),
    "outcome": _k.status == bindparam("of_outcome", type_=_k.status.type),
    "unsuccessful": text(f"tool_calls.{UNSUCCESSFUL}"),
    "thread": _k.thread_id == bindparam("of_thread", type_=_k.thread_id.type),
    "run": _k.run_id == bindparam("of_run", type_=_k.run_id.type),
    "before_step": _k.step
    < select(_cursor.c.step)
    .where(_cursor.c.id == bindparam("older_than", type_=_k.id.type), _cursor.c.run_id == bindparam("of_run"))
    .scalar_subquery(),
    "after": _k.id < bindparam("older_than", type_=_k.id.type),
    "from": (_k.id >= bindparam("from_id", type_=_k.id.type))
    & (_k.created_at >= bindparam("from_ms", type_=_k.created_at.type)),
    "to": (_k.id < bindparam("to_id", type_=_k.id.type))
    & (_k.created_at < bindparam("to_ms", type_=_k.created_at.type)),
}

_pages: dict[tuple[str, ...], Statement] = {}


class SqlAuditStore:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, tenant: str, where: AuditFilter, *, after: str | None, limit: int) -> list[AuditedCall]:
        statement, values = page_query(tenant, where, after=after, limit=limit)
        return [_audited(row) for row in await self._db.read(lambda tx: tx.all(statement, values))]

    async def get(self, tenant: str, tool_call_id: str) -> AuditedCall | None:
        row = await self._db.look(lambda tx: tx.one(_GET, {"of_tenant": tenant, "call_id": tool_call_id}))
        return None if row is None else _audited(row)


def page_query(tenant: str, where: AuditFilter, *, after: str | None, limit: int) -> tuple[Statement, Params]:
    """The statement of a page and its values. One statement for each combination of filters that is asked for."""
    values: dict[str, object] = {"of_tenant": tenant, "most": limit}
    names: list[str] = []
    if where.tool is not None:
        names.append("tool")
        values["of_tool"] = where.tool
    if where.outcome is not None:
        names += ["outcome"] if where.outcome == "success" else ["outcome", "unsuccessful"]
        values["of_outcome"] = where.outcome
    if where.thread_id is not None:
        names.append("thread")
        values["of_thread"] = where.thread_id
    if where.run_id is not None:
        names.append("run")
        values["of_run"] = where.run_id
    if after is not None:
        names.append("after" if where.run_id is None else "before_step")
        values["older_than"] = after
    if where.from_ms is not None:
        names.append("from")
        values |= {"from_ms": where.from_ms, "from_id": _first_id(where.from_ms - SLACK_MS)}
    if where.to_ms is not None:
        names.append("to")
        values |= {"to_ms": where.to_ms, "to_id": _first_id(where.to_ms + SLACK_MS)}
    key = tuple(names)
    statement = _pages.get(key)
    if statement is None:
        conditions = [_CONDITIONS[name] for name in names]
        # The calls of one run are in the order of their steps, which has an index of its own.
        order = _k.id.desc() if where.run_id is None else _k.step.desc()
        query = _AUDITED.where(_TENANT, *conditions).order_by(order)
        statement = _pages[key] = Statement(query.limit(bindparam("most", type_=_k.step.type)))
    return statement, values


def _first_id(ms: int) -> str:
    """The least UUIDv7 of a moment (milliseconds since the epoch): ids are in the order of their times."""
    digits = f"{max(0, ms):012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"


def _audited(row: Row) -> AuditedCall:
    return AuditedCall(call_record(row[:-2]), row[-2], row[-1])
