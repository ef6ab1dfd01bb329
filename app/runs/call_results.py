"""What became of calls, afterwards: whole results that were too long, and the truth about a call of unknown outcome."""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from app.agent.ports import PlannedCall, ToolOutcome, WholeResult
from app.core.actions import AgentAction
from app.core.clock import now_ms
from app.core.errors import Conflict, NotFound
from app.core.ids import IdFactory
from app.core.json import encode
from app.core.principal import Principal
from app.core.values import immutable
from app.runs.audit import AuditService
from app.runs.loop_parts import ToolBinder, principal_of
from app.runs.records import CallRecord, RunRecord
from app.runs.service import RunService
from app.tools.dispatch import Dispatch
from app.tools.run_context import ToolRunContext

ASK_S = 30.0
"""Longest wait for a `status_url` that a caller has asked for."""


class CallResultStore(Protocol):
    """Another tenant's calls are absent."""

    async def whole(self, tenant: str, tool_call_id: str) -> WholeResult | None: ...

    async def kept_bytes(self, run_id: str) -> int:
        """Of all whole results of a run, together."""
        ...

    async def reconcile(self, tenant: str, tool_call_id: str, found: Mapping[str, object]) -> Mapping[str, object]:
        """Record what was found out about a call that ended `unknown`, once; what is recorded now."""
        ...


@immutable
class Reconciliation:
    call: CallRecord
    found: Mapping[str, object] | None
    """As recorded: `{"at","status","observation","error","envelope"}`; `None` while nobody can tell."""


class CallResults:
    def __init__(
        self, runs: RunService, audit: AuditService, store: CallResultStore, tools: ToolBinder, new_id: IdFactory
    ) -> None:
        self._runs = runs
        self._audit = audit
        self._store = store
        self._tools = tools
        self._new_id = new_id

    async def whole(self, principal: Principal, run_id: str, step: int) -> WholeResult:
        """The result of a step as its tool gave it, as far as it is kept.

        Raises `NotFound` (`run_not_found`, `step_not_found`, `result_not_found`: it has none, or none yet).
        """
        call = await self._runs.step(principal, run_id, step)
        kept = await self._store.whole(principal.tenant, call.id)
        if kept is not None:
            return kept
        if call.status != "success":
            raise NotFound(f"Step {step} has no result.", code="result_not_found")
        return WholeResult(encode(call.observation), "", "application/json", complete=True)

    async def reconcile(self, principal: Principal, tool_call_id: str) -> Reconciliation:
        """Ask the tool's `status_url` what became of a call that ended `unknown`, and record the answer beside it.

        What the model was told is not rewritten. Asked again, the recorded answer comes back. Raises `NotFound`
        (`tool_call_not_found`), `Conflict` (`not_unknown`: the call has another outcome, or there is nobody to ask).
        """
        call = (await self._audit.get(principal, tool_call_id)).call
        if call.reconciled is not None:
            return Reconciliation(call, call.reconciled)
        if call.status != "unknown":
            raise Conflict("Only a call that ended unknown can be reconciled.", code="not_unknown")
        outcome = await self._asked(await self._runs.get(principal, call.run_id), call)
        if outcome is None:
            return Reconciliation(call, None)
        found = {
            "at": now_ms(),
            "status": outcome.status,
            "observation": outcome.observation,
            "error": outcome.error,
            "envelope": outcome.envelope,
        }
        return Reconciliation(call, await self._store.reconcile(principal.tenant, call.id, found))

    async def _asked(self, run: RunRecord, call: CallRecord) -> ToolOutcome | None:
        pins = cast("Sequence[Mapping[str, object]]", run.spec["tools"])
        context = ToolRunContext(
            principal=principal_of(run),
            run_id=run.id,
            thread_id=run.thread_id,
            record_dispatch=_nothing_is_sent,
            context=run.context,
            new_id=self._new_id,
        )
        bound = await self._tools.bind([pin for pin in pins if pin["name"] == call.tool], context)
        if not bound.can_ask(call.tool):
            raise Conflict("The call's tool is gone, or has no status_url to be asked.", code="not_unknown")
        action = AgentAction(call.tool, call.tool_input, call.log)
        planned = PlannedCall(call.step, call.iteration, call.id, action, dispatched=tuple(call.attempt_log))
        return await bound.ask(planned, ASK_S)


async def _nothing_is_sent(_: Dispatch, /) -> None:
    raise AssertionError("a reconciliation only asks")
