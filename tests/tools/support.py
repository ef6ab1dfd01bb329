"""Builders and in-memory stores for the tests of tools."""

import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field

from app.agent.ports import PlannedCall, ToolOutcome, Waiting
from app.core.actions import AgentAction
from app.core.errors import Conflict, InvalidRequest
from app.core.idempotency import IdempotencyKey
from app.core.ids import new_id
from app.core.principal import Principal
from app.core.registry import Versioned
from app.tools.dispatch import Dispatch
from app.tools.egress import EgressGuard
from app.tools.http_callback import HttpToolClient
from app.tools.plugins import PluginSet
from app.tools.runner import BoundTools, ToolRunContext
from app.tools.service import ToolService

ME = Principal("acme", "key-1")


class MemoryRegistry:
    """`Registry` in memory."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], list[Versioned]] = {}
        self.deleted: set[tuple[str, str]] = set()
        self.replays: dict[tuple[str, str], tuple[str, Versioned]] = {}

    async def create(
        self, tenant: str, name: str, spec: dict[str, object], idempotency: IdempotencyKey | None
    ) -> tuple[Versioned, int | None]:
        if idempotency is not None and (tenant, idempotency.key) in self.replays:
            body, made = self.replays[tenant, idempotency.key]
            if body != idempotency.body_sha256:
                raise InvalidRequest("Another body.", code="idempotency_mismatch")
            return made, made.version
        if await self.get(tenant, name) is not None:
            raise Conflict("It exists.", code="tool_exists")
        row, _ = await self.put(tenant, name, spec)
        if idempotency is not None:
            self.replays[tenant, idempotency.key] = (idempotency.body_sha256, row)
        return row, None

    async def put(self, tenant: str, name: str, spec: dict[str, object]) -> tuple[Versioned, bool]:
        new = await self.get(tenant, name) is None
        rows = self.rows.setdefault((tenant, name), [])
        rows.append(Versioned(tenant, name, len(rows) + 1, spec, time.time_ns() // 1_000_000))
        self.deleted.discard((tenant, name))
        return rows[-1], new

    async def get(self, tenant: str, name: str) -> Versioned | None:
        rows = self.rows.get((tenant, name))
        return rows[-1] if rows and (tenant, name) not in self.deleted else None

    async def version(self, tenant: str, name: str, version: int) -> Versioned | None:
        rows = self.rows.get((tenant, name), [])
        return rows[version - 1] if version <= len(rows) else None

    async def page(self, tenant: str, *, after: str | None, limit: int) -> Sequence[Versioned]:
        names = sorted(name for of, name in self.rows if of == tenant and (after is None or name > after))
        found = [await self.get(tenant, name) for name in names]
        return [row for row in found if row is not None][:limit]

    async def delete(self, tenant: str, name: str) -> bool:
        known = await self.get(tenant, name) is not None
        self.deleted.add((tenant, name))
        return known

    async def names_in_use(self) -> Sequence[str]:
        return sorted({name for tenant, name in self.rows if (tenant, name) not in self.deleted})


class MemorySecrets:
    """`SecretStore` in memory."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], str] = {}

    async def put(self, tenant: str, value: str) -> str:
        ref = new_id()
        self.values[tenant, ref] = value
        return ref

    async def get(self, tenant: str, ref: str) -> str | None:
        return self.values.get((tenant, ref))

    async def delete(self, tenant: str, ref: str) -> None:
        self.values.pop((tenant, ref), None)


@dataclass(slots=True)
class Journal:
    """Remembers dispatches, `(call, attempt, tool, registered)`, attempt 0 for a call handed to the caller; raises `refuse` instead where one is set."""

    dispatches: list[tuple[str, int, str, bool]] = field(default_factory=list[tuple[str, int, str, bool]])
    refuse: Exception | None = None

    async def record(self, dispatch: Dispatch, /) -> None:
        if self.refuse is not None:
            raise self.refuse
        number = dispatch.attempt if dispatch.log else 0
        self.dispatches.append((dispatch.tool_call_id, number, dispatch.tool, dispatch.registered))


@dataclass(slots=True)
class Bench:
    """A service over in-memory stores, and what it takes to call one of its tools."""

    service: ToolService
    registry: MemoryRegistry
    secrets: MemorySecrets
    http: HttpToolClient
    journal: Journal

    @classmethod
    def make(cls, *, plugins: PluginSet | None = None, allow: Sequence[str] = ("127.0.0.0/8",)) -> "Bench":
        guard = EgressGuard(allow)
        http = HttpToolClient(guard)
        registry, secrets = MemoryRegistry(), MemorySecrets()
        service = ToolService(registry, secrets, plugins or PluginSet(), guard, http)
        return cls(service, registry, secrets, http, Journal())

    def context(self, principal: Principal = ME, *, handle_tool_errors: bool | str = True) -> ToolRunContext:
        return ToolRunContext(
            principal=principal,
            run_id="run-1",
            thread_id="thread-1",
            record_dispatch=self.journal.record,
            context={"locale": "de"},
            handle_tool_errors=handle_tool_errors,
        )

    async def bound(self, *tools: str | dict[str, object], context: ToolRunContext | None = None) -> BoundTools:
        pins = await self.service.pin(ME, tools, pointer="/tools")
        return await self.service.bind(pins, context or self.context())


def call(tool: str, tool_input: str | dict[str, object], *, refusal: str | None = None) -> PlannedCall:
    return PlannedCall(1, 1, new_id(), AgentAction(tool, tool_input), refusal=refusal)


def spec(name: str = "lookup", url: str = "https://tools.example.com/x", **more: object) -> dict[str, object]:
    """A ToolSpec as a caller would send it."""
    return {"name": name, "description": "For tests.", "http": {"url": url}, **more}


async def ran(running: Awaitable[ToolOutcome | Waiting]) -> ToolOutcome:
    """The outcome of a call that waits for nobody."""
    outcome = await running
    assert isinstance(outcome, ToolOutcome)
    return outcome
