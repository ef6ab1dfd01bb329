"""The use cases of a deferred tool's callback: its result, and its progress meanwhile."""

from collections.abc import Mapping
from typing import Annotated, Protocol

import stamina
from pydantic import Field

from app.core.errors import Conflict, Gone, NotFound, Unauthenticated
from app.runs.hub import Hub
from app.runs.ports import Dispatcher
from app.runs.records import CallRecord
from app.runs.spec import Spec
from app.runs.validation import check
from app.runs.waiting import WaitStore
from app.tools.progress import ReportsOfCalls
from app.tools.runner import call_time_ms
from app.tools.turns import Turns

HANDS_S = 2.0
"""How long a run may take to change hands (to be parked, or woken) before who tells of it is sent away."""


class Tokens(Protocol):
    def fits(self, tool_call_id: str, token: str) -> bool: ...


class ProgressSpec(Spec):
    """The body of `POST /tool-calls/{id}/progress`."""

    progress: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    message: Annotated[str, Field(max_length=2000)] | None = None


class CallbackService:
    def __init__(self, waits: WaitStore, dispatcher: Dispatcher, hub: Hub, tokens: Tokens, turns: Turns) -> None:
        self._waits = waits
        self._dispatcher = dispatcher
        self._hub = hub
        self._tokens = tokens
        self._turns = turns
        self._reports = ReportsOfCalls()

    async def result(self, tool_call_id: str, token: str | None, body: object) -> None:
        """Keep a result. Raises `Unauthenticated`, `NotFound`, `Conflict` (`result_exists`), `Gone` (`call_over`)."""
        self._check(tool_call_id, token)
        run_id = await self._waits.deliver(tool_call_id, {"body": body})
        self._turns.release(tool_call_id)  # now: its run may have to wait for a place that calls behind it hold
        self._dispatcher.wake(run_id)

    async def progress(self, tool_call_id: str, token: str | None, body: object) -> None:
        """Tell the run's readers, unless they were told enough just now. Raises as `result`."""
        self._check(tool_call_id, token)
        spec = check(ProgressSpec, body)
        data = {"tool_call_id": tool_call_id, "progress": spec.progress, "message": spec.message}
        reports = self._reports.of(tool_call_id, call_time_ms(tool_call_id))
        if not reports.take():
            return
        try:
            await self._keep(tool_call_id, data)
        except BaseException:
            reports.give_back()
            raise

    async def _keep(self, tool_call_id: str, data: Mapping[str, object]) -> None:
        async for attempt in stamina.retry_context(Conflict, attempts=None, timeout=HANDS_S, wait_initial=0.01):
            with attempt:
                await self._tell(tool_call_id, data)

    async def _tell(self, tool_call_id: str, data: Mapping[str, object]) -> None:
        call = await self._waits.call(tool_call_id)
        if call is None:
            raise NotFound("There is no such tool call.", code="tool_call_not_found")
        if call.state not in ("dispatched", "waiting") or call.late_result is not None:
            raise Gone("The call is over.", code="call_over")
        if not await self._told(call, data):
            raise Conflict("The run is just changing hands; send the progress again.", code="run_busy")

    async def _told(self, call: CallRecord, data: Mapping[str, object]) -> bool:
        """By the run's driver where it has one here, else straight into the journal of the parked run."""
        if self._dispatcher.tell(call.run_id, "progress", data):
            return True
        batch = await self._waits.tell(call.run_id, "progress", data)
        if batch is None:
            return False
        self._hub.publish(call.run_id, batch)
        return True

    def _check(self, tool_call_id: str, token: str | None) -> None:
        """The token alone is the permission; whether there is such a call is told to its holder only."""
        if token is None or not self._tokens.fits(tool_call_id, token):
            raise Unauthenticated("Send the call's own callback_token as Authorization: Bearer.")
