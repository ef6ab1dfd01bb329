"""Hooked tools: a run's tools with its middleware around each call, and the ledger's rules beneath it.

A middleware may change what a call says, answer in the tool's place, look at what came of it, and ask again. What is
asked again is sent again only where that can do no harm.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from app.agent.ports import (
    CutReason,
    PlannedCall,
    Resumed,
    ToolCallNext,
    ToolDefinition,
    ToolMiddleware,
    ToolOutcome,
    ToolRunner,
    Waiting,
)
from app.core.clock import now_ms
from app.core.json import encode_text

KEPT_INPUT = "middleware_input"
"""The fact of a waiting call under which the input is kept that a middleware made: what is approved is what is sent."""

MAX_NOTE = 2000
"""Characters of a changed input that the call's chain tells."""


class HookedTools:
    """A `ToolRunner` around another."""

    def __init__(
        self,
        inner: ToolRunner,
        wraps: Sequence[ToolMiddleware],
        repeatable: Callable[[str], bool],
        answer_tool: str | None = None,
    ) -> None:
        """`repeatable`: whether a tool may be sent the same call again. `answer_tool`: it takes the structured answer, and is none."""
        self._inner = inner
        self._answer_tool = answer_tool
        self._wraps = wraps
        self._repeatable = repeatable
        self._ran: dict[str, ToolOutcome] = {}
        """What calls came to whose middleware is still at work."""

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        return self._inner.definitions

    async def run(
        self, call: PlannedCall, *, sent_before: int = 0, resumed: Resumed | None = None
    ) -> ToolOutcome | Waiting:
        """See `ToolRunner.run`. Raises what a middleware ends the run with, too (`RunwireError`)."""
        if call.action.tool == self._answer_tool:
            return await self._inner.run(call, sent_before=sent_before, resumed=resumed)
        sending = _Sending(self, call, sent_before, resumed)
        wrapped: ToolCallNext = sending
        for wrap in reversed(self._wraps):
            wrapped = _around(wrap, wrapped)
        result = await wrapped(call)
        answered = resumed is not None and resumed.waiting.reason != "tool_approval"
        if sending.result is None and (sent_before or answered):
            result = await sending(call)  # it was under way already: what the tool says of it counts
        self._ran.pop(call.tool_call_id, None)
        return result

    def cut(self, call: PlannedCall, reason: CutReason) -> ToolOutcome:
        """A call that ran, and was cut before its middleware had seen its result, did run; the result stays unseen."""
        ran = self._ran.pop(call.tool_call_id, None)
        if ran is None:
            return self._inner.cut(call, reason)
        text = f"{call.action.tool} ran, and the run was stopped before its result was looked at: it is not shown."
        error = {**(ran.error or {"retryable": False, "state": "failed"}), "code": "result_withheld", "message": text}
        envelope = {
            "ok": False,
            "data": None,
            "error": {"code": "result_withheld", "retryable": False, "state": error.get("state"),
                      "tool_call_id": call.tool_call_id, "user_message": text},
            "meta": {**cast("dict[str, object]", ran.envelope.get("meta") or {}), "cut": reason},
        }  # fmt: skip
        status = "cancelled" if ran.status == "success" else ran.status
        return replace(
            ran, status=status, observation=text, error=error, envelope=envelope, return_direct=False, whole=None,
            update=None, goto=None,
        )  # fmt: skip


class _Sending:
    """The innermost call: to the tool itself, as often as it may be sent."""

    __slots__ = ("_call", "_resumed", "_sent_as", "_sent_before", "_tools", "result")

    def __init__(self, tools: HookedTools, call: PlannedCall, sent_before: int, resumed: Resumed | None) -> None:
        self._tools = tools
        self._call = call
        self._sent_before = sent_before
        self._resumed = resumed
        self._sent_as: PlannedCall | None = None
        self.result: ToolOutcome | Waiting | None = None

    async def __call__(self, call: PlannedCall) -> ToolOutcome | Waiting:
        if self.result is None:
            return await self._first(call)
        before = self.result
        if isinstance(before, Waiting) or not self._may_repeat(call, before):
            return before
        result = await self._tools._inner.run(call)
        if isinstance(result, ToolOutcome):
            result = replace(result, attempts=_numbered((*before.attempts, *result.attempts)))
        return self._take(result)

    async def _first(self, call: PlannedCall) -> ToolOutcome | Waiting:
        resumed = self._resumed
        if resumed is not None:
            kept = resumed.waiting.facts.get(KEPT_INPUT, self._call.action.tool_input)
            call = _with_input(self._call, cast("str | dict[str, object]", kept))
        self._sent_as = call
        result = await self._tools._inner.run(call, sent_before=self._sent_before, resumed=resumed)
        if call.action.tool_input != self._call.action.tool_input:
            result = _noted(result, call.action.tool_input)
        return self._take(result)

    def _take(self, result: ToolOutcome | Waiting) -> ToolOutcome | Waiting:
        self.result = result
        if isinstance(result, ToolOutcome):
            self._tools._ran[self._call.tool_call_id] = result
        return result

    def _may_repeat(self, call: PlannedCall, before: ToolOutcome) -> bool:
        """Never a second dispatch of a call that is not idempotent, nor other arguments under the key of the first."""
        if before.status in ("denied", "cancelled"):
            return False
        if not before.attempts:
            return True
        sent_as = self._sent_as
        same = sent_as is not None and sent_as.action.tool_input == call.action.tool_input
        return same and self._tools._repeatable(call.action.tool)


def _around(wrap: ToolMiddleware, call_next: ToolCallNext) -> ToolCallNext:
    async def call(planned: PlannedCall) -> ToolOutcome | Waiting:
        return await wrap(planned, call_next)

    return call


def _with_input(call: PlannedCall, tool_input: str | dict[str, object]) -> PlannedCall:
    if tool_input == call.action.tool_input:
        return call
    return replace(call, action=replace(call.action, tool_input=tool_input))


def _noted(result: ToolOutcome | Waiting, tool_input: object) -> ToolOutcome | Waiting:
    """The result with the changed input in it: in the chain, and where the call waits, to be sent as it was asked for."""
    if isinstance(result, Waiting):
        return replace(result, facts={**result.facts, KEPT_INPUT: tool_input})
    note = {"stage": "middleware", "verdict": "changed", "at": now_ms(), "detail": encode_text(tool_input)[:MAX_NOTE]}
    return replace(result, chain=(*result.chain[:1], note, *result.chain[1:]))


def _numbered(attempts: Sequence[object]) -> tuple[dict[str, object], ...]:
    return tuple(
        {**cast("dict[str, object]", attempt), "attempt": number} for number, attempt in enumerate(attempts, start=1)
    )
