"""Switches in storage: `SqlSwitchStore`, the adapter of the port `SwitchStore`."""

from collections.abc import Callable, Sequence

from sqlalchemy import bindparam, insert, or_, select, update

from app.core.ids import new_id
from app.storage.database import Database, Tx
from app.storage.statement import Row, Statement
from app.storage.tables import tool_switches
from app.tools.port import ALL_TOOLS, Switch

_s = tool_switches.c
_COLUMNS = (_s.name, _s.reason, _s.disabled_by, _s.disabled_at, _s.lifted_by, _s.lifted_at)
_OF_TENANT = _s.tenant == bindparam("tenant", type_=_s.tenant.type)
_OF_NAME = _s.name == bindparam("name", type_=_s.name.type)
_IN_FORCE = _s.lifted_at.is_(None)
STOPS = (_OF_TENANT, or_(_OF_NAME, _s.name == ALL_TOOLS), _IN_FORCE)
"""Of the switches that stop a dispatch: parameters `tenant` and `name`."""

_INSERT = Statement(insert(tool_switches))
_LIFT = Statement(
    update(tool_switches)
    .values(
        lifted_by=bindparam("by", type_=_s.lifted_by.type),
        lifted_at=bindparam("at", type_=_s.lifted_at.type),
    )
    .where(_OF_TENANT, _OF_NAME, _IN_FORCE)
    .returning(_s.id)
)
_OWN = Statement(select(*_COLUMNS).where(_OF_TENANT, _OF_NAME, _IN_FORCE))
_STOPPING = Statement(select(*_COLUMNS).where(*STOPS).order_by(_s.name).limit(1))
_ALL_IN_FORCE = Statement(select(*_COLUMNS).where(_OF_TENANT, _IN_FORCE).order_by(_s.name))
_HISTORY = Statement(
    select(*_COLUMNS)
    .where(_OF_TENANT, _OF_NAME)
    .order_by(_s.id.desc())
    .limit(bindparam("most", type_=_s.disabled_at.type))
)


def stopping(tx: Tx, tenant: str, name: str) -> Switch | None:
    """The switch that stops a tool's calls now, if there is one."""
    row = tx.one(_STOPPING, {"tenant": tenant, "name": name})
    return None if row is None else _switch(row)


class SqlSwitchStore:
    """`clock` gives milliseconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._db = database
        self._clock = clock

    async def disable(self, tenant: str, name: str, reason: str, subject: str) -> Switch:
        now = self._clock()
        return await self._db.write(lambda tx: _disable(tx, tenant, Switch(name, reason, subject, now)))

    async def lift(self, tenant: str, name: str, subject: str) -> bool:
        values = {"tenant": tenant, "name": name, "by": subject, "at": self._clock()}
        return await self._db.write(lambda tx: tx.one(_LIFT, values) is not None)

    async def stopping(self, tenant: str, name: str) -> Switch | None:
        return await self._db.look(lambda tx: stopping(tx, tenant, name))

    async def in_force(self, tenant: str) -> Sequence[Switch]:
        return [_switch(row) for row in await self._db.look(lambda tx: tx.all(_ALL_IN_FORCE, {"tenant": tenant}))]

    async def history(self, tenant: str, name: str, *, limit: int) -> Sequence[Switch]:
        values = {"tenant": tenant, "name": name, "most": limit}
        return [_switch(row) for row in await self._db.read(lambda tx: tx.all(_HISTORY, values))]


def _disable(tx: Tx, tenant: str, switch: Switch) -> Switch:
    own = {"tenant": tenant, "name": switch.name}
    row = tx.one(_OWN, own)
    if row is not None:
        there = _switch(row)
        if there.reason == switch.reason:
            return there
        tx.one(_LIFT, {**own, "by": switch.disabled_by, "at": switch.disabled_at})
    tx.run(
        _INSERT,
        {
            **own,
            "id": new_id(),
            "reason": switch.reason,
            "disabled_by": switch.disabled_by,
            "disabled_at": switch.disabled_at,
            "lifted_by": None,
            "lifted_at": None,
        },
    )
    return switch


def _switch(row: Row) -> Switch:
    return Switch(*row)
