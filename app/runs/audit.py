"""The audit of tool calls: what was asked, decided, sent and answered, and for whom; newest first, over all runs of a tenant."""

from collections.abc import Sequence
from typing import Protocol

from app.agent.ports import StepStatus
from app.core.errors import NotFound
from app.core.principal import Principal
from app.core.values import immutable
from app.runs.records import CallRecord


@immutable
class AuditFilter:
    """Each that is given must hold. Times are milliseconds since the epoch, of when a call was asked for."""

    tool: str | None = None
    outcome: StepStatus | None = None
    thread_id: str | None = None
    run_id: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    """The first moment that is not included."""


@immutable
class AuditedCall:
    """A call, and whose run it was."""

    call: CallRecord
    subject: str
    """The principal that the run acts for."""
    agent: str | None


class AuditStore(Protocol):
    """Another tenant's calls are absent."""

    async def page(self, tenant: str, where: AuditFilter, *, after: str | None, limit: int) -> list[AuditedCall]:
        """Newest first, at most `limit`, older than the call `after`."""
        ...

    async def get(self, tenant: str, tool_call_id: str) -> AuditedCall | None: ...


class AuditService:
    def __init__(self, store: AuditStore) -> None:
        self._store = store

    async def page(
        self, principal: Principal, where: AuditFilter, *, after: str | None, limit: int
    ) -> Sequence[AuditedCall]:
        return await self._store.page(principal.tenant, where, after=after, limit=limit)

    async def get(self, principal: Principal, tool_call_id: str) -> AuditedCall:
        """Raises `NotFound` (`tool_call_not_found`)."""
        found = await self._store.get(principal.tenant, tool_call_id)
        if found is None:
            raise NotFound(f"There is no tool call `{tool_call_id}`.", code="tool_call_not_found")
        return found
