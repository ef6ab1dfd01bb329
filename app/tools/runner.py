"""The tools of one run: each call goes validate → authorize → execute, and comes back as one honest outcome."""

import asyncio
import hashlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import orjson
import structlog

from app.agent.ports import CutReason, PlannedCall, ToolDefinition, ToolOutcome
from app.core.clock import now_ms
from app.core.errors import ToolDisabled, ToolWithdrawn
from app.core.ids import new_id
from app.core.principal import Principal
from app.core.values import immutable
from app.tools.attempt import Attempt, Send, Sending, backoff_s, may_repeat
from app.tools.compiled import CompiledTool
from app.tools.ending import End, Live, disabled, lost_attempt, outcome_of, settled, unknown, withdrawn
from app.tools.signing import idempotency_key

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

PLUGIN_RESTARTS = 2
"""How often an idempotent in-process call that a crash interrupted is run again. It has no `retry` to say so itself."""


class RecordDispatch(Protocol):
    """Journals an attempt; durable when it returns, and only then is the attempt sent.

    Raises `RunCancelled`, `Fenced` (the runner lets them out), or `ToolWithdrawn`, `ToolDisabled` (the call is denied).
    """

    def __call__(self, tool_call_id: str, attempt: int, tool: str, registered: bool, /) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRunContext:
    """What the calls of one run share."""

    principal: Principal
    run_id: str | None
    thread_id: str | None
    record_dispatch: RecordDispatch
    context: Mapping[str, object] = field(default_factory=dict[str, object])
    handle_tool_errors: bool | str = True
    """What a tool's error does: the model reads its text, reads this text instead, or (false) the run ends."""
    new_id: Callable[[], str] = new_id


@immutable
class CallFacts:
    """What is known of a call before it is sent, for its row."""

    tool_version: int | None
    effect: str | None
    idempotency_key: str | None
    arguments_sha256: str | None


class BoundTools:
    """The `ToolRunner` of one run (see `app.agent.ports`)."""

    __slots__ = ("_definitions", "_jitter", "_live", "_run", "_sleep", "_tools", "_withdrawn")

    def __init__(
        self,
        tools: Mapping[str, CompiledTool],
        run: ToolRunContext,
        *,
        withdrawn: frozenset[str] = frozenset(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`withdrawn`: names that were pinned and can no longer be called."""
        self._tools = tools
        self._run = run
        self._withdrawn = withdrawn
        self._sleep = sleep
        self._jitter = jitter
        self._definitions = [tool.definition for tool in tools.values()]
        self._live: dict[str, Live] = {}

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        return self._definitions

    def find(self, name: str) -> CompiledTool | None:
        """A tool of this run by its name."""
        return self._tools.get(name)

    def facts(self, call: PlannedCall) -> CallFacts:
        """What the call's row should say before anything is sent. The hash is over the arguments, sorted, as JSON."""
        tool = self._tools.get(call.action.tool)
        if tool is None:
            return CallFacts(None, None, None, None)
        try:
            data = orjson.dumps(_arguments(tool, call), option=orjson.OPT_SORT_KEYS)
        except (TypeError, ValueError):  # such a call is refused before it is sent
            data = b""
        return CallFacts(tool.version, tool.effect, self._key(tool, call), hashlib.sha256(data).hexdigest())

    async def run(self, call: PlannedCall, *, sent_before: int = 0) -> ToolOutcome:
        """See `ToolRunner.run`. Raises only cancellation, `RunCancelled` and `Fenced`."""
        call_id = call.tool_call_id
        live = self._live[call_id] = Live(
            now_ms(),
            time.perf_counter(),
            sent_before > 0,
            [{"stage": "intent", "verdict": "ok", "at": call_time_ms(call_id), "detail": None}],
            [lost_attempt(number + 1) for number in range(sent_before)],
        )
        tool = self._tools.get(call.action.tool)
        end = self._refusal(call, tool, live, sent_before)
        if end is None:
            assert tool is not None
            end = await self._execute(call, tool, live, sent_before)
            live.note("execution", end.status, end.code or None)
        del self._live[call_id]
        return self._outcome(call, tool, end, live)

    def cut(self, call: PlannedCall, reason: CutReason) -> ToolOutcome:
        """See `ToolRunner.cut`. `lost` means: sent by a process that is gone."""
        tool = self._tools.get(call.action.tool)
        live = self._live.pop(call.tool_call_id, None)
        sent = reason == "lost" or (live is not None and live.sent)
        if live is None:
            live = Live(now_ms(), time.perf_counter(), sent, [])
        name = call.action.tool
        if sent and (tool is None or not tool.idempotent):
            end = unknown(name, "it was stopped before its result came")
        elif sent and reason == "time_limit":
            end = End("timeout", f"{name} was stopped: the run's time is over.", "time_limit")
        elif sent:
            end = End("cancelled", f"{name} was cancelled before its result came.", "cancelled")
        else:
            end = End("cancelled", f"{name} was cancelled before it was sent; it did nothing.", "cancelled")
        live.note("execution", end.status, reason)
        return self._outcome(call, tool, replace(end, meta={**end.meta, "cut": reason}), live)

    def _refusal(self, call: PlannedCall, tool: CompiledTool | None, live: Live, sent_before: int) -> End | None:
        """Everything that ends a call before it is sent; `None` lets it go on."""
        name = call.action.tool
        if call.refusal is not None:
            live.note("validation", "failed", call.refusal)
            return End("error", call.refusal, "call_refused")
        if tool is None:
            if name in self._withdrawn:
                live.note("authorization", "denied", "withdrawn")
                return withdrawn(name)
            text = f"{name} is not a valid tool, try one of [{', '.join(self._tools)}]."
            live.note("validation", "failed", "unknown tool")
            return End("error", text, "unknown_tool")
        if sent_before and not tool.idempotent:
            for stage in ("validation", "authorization"):
                live.note(stage, "ok", "before the restart")
            live.note("execution", "unknown", "sent before the restart")
            return unknown(name, "the server stopped before its result came")
        arguments = _arguments(tool, call)
        text = _faults(tool, arguments)
        if text is not None:
            live.note("validation", "failed", text)
            return End(
                "error", f"{name} was not called, its arguments do not fit its schema: {text}", "invalid_arguments"
            )
        live.note("validation", "ok")
        missing = [scope for scope in tool.scopes if not self._run.principal.may(scope)]
        if missing:
            live.note("authorization", "denied", f"missing scope {', '.join(missing)}")
            return End("denied", f"{name} was not called: the caller is not allowed to use it.", "missing_scope")
        live.note("authorization", "ok")
        return None

    async def _execute(self, call: PlannedCall, tool: CompiledTool, live: Live, sent_before: int) -> End:
        try:
            send = tool.executor.prepare(self._sending(call, tool))
        except (TypeError, ValueError):  # a whole number beyond 64 bits, a lone surrogate
            text = f"{tool.name} was not called, its arguments hold a value that cannot be sent as JSON."
            return End("error", text, "invalid_arguments")
        ends = live.started + tool.deadline_s
        limit = tool.max_attempts
        if sent_before:
            limit = max(limit, PLUGIN_RESTARTS + 1) if tool.source == "plugin" else limit
            ends -= max(0, now_ms() - call_time_ms(call.tool_call_id)) / 1000
            if sent_before >= limit or time.perf_counter() >= ends:
                text = "the server stopped before its result came, and it may not be sent again"
                return settled(tool, Attempt("uncertain", code="outcome_unknown", message=text))
        number = sent_before
        while True:
            number += 1
            try:
                await self._run.record_dispatch(call.tool_call_id, number, tool.name, tool.source == "registered")
            except ToolWithdrawn:
                return self._stopped(tool, live, withdrawn(tool.name))
            except ToolDisabled as stop:
                live.note("authorization", "denied", stop.message)
                return self._stopped(tool, live, disabled(tool.name))
            left = ends - time.perf_counter()
            attempt = await self._attempt(call, send, number, min(tool.timeout_s, max(left, 0.001)), live)
            if attempt.kind == "output":
                return End("success", attempt.output, meta=attempt.meta)
            if number >= limit or not may_repeat(attempt, tool.idempotent):
                return settled(tool, attempt)
            pause = backoff_s(number - sent_before, self._jitter())
            pause = pause if attempt.retry_after_s is None else max(attempt.retry_after_s, 0.0)
            if pause >= ends - time.perf_counter():
                return settled(tool, attempt)
            await self._sleep(pause)

    def _stopped(self, tool: CompiledTool, live: Live, denied: End) -> End:
        """A call that may not be sent (again). One that may have been sent before is no denial: it may have taken effect."""
        if not live.sent:
            return denied
        text = "it was sent before, its result did not come, and it may not be sent again"
        return settled(tool, Attempt("uncertain", code=denied.code, message=text))

    async def _attempt(self, call: PlannedCall, send: Send, number: int, timeout_s: float, live: Live) -> Attempt:
        at, begun, sent_before, outcome, http_status = now_ms(), time.perf_counter(), live.sent, "cut", None
        live.sent = True
        try:
            attempt = await self._guarded(call, send, number, timeout_s)
            outcome, http_status = ("success" if attempt.kind == "output" else attempt.code), attempt.http_status
        finally:
            live.attempts.append(
                {
                    "attempt": number,
                    "at": at,
                    "duration_ms": round((time.perf_counter() - begun) * 1000, 3),
                    "http_status": http_status,
                    "outcome": outcome,
                }
            )
        if attempt.kind in ("failed", "not_executed"):
            live.sent = sent_before
        return attempt

    async def _guarded(self, call: PlannedCall, send: Send, number: int, timeout_s: float) -> Attempt:
        """The boundary to executors: a fault of ours there must not end the run, and nobody knows what was sent."""
        try:
            return await send(number, timeout_s)
        except Exception:  # noqa: BLE001  # the named boundary to executors
            request_id = self._run.new_id()
            _log.exception(
                "tool_attempt_broke", run_id=self._run.run_id, tool_call_id=call.tool_call_id, request_id=request_id
            )
            text = f"the server failed while it called the tool (request {request_id})"
            return Attempt("uncertain", code="internal_error", message=text, request_id=request_id)

    def _sending(self, call: PlannedCall, tool: CompiledTool) -> Sending:
        arguments = _arguments(tool, call)
        if tool.constants:
            arguments = {**arguments, **tool.constants}
        made = call_time_ms(call.tool_call_id)
        run = self._run
        return Sending(
            tool.name,
            call.tool_call_id,
            self._key(tool, call),
            arguments,
            run.principal,
            run.run_id,
            run.thread_id,
            run.context,
            made,
            made + int(tool.deadline_s * 1000),
            run.new_id,
        )

    def _key(self, tool: CompiledTool, call: PlannedCall) -> str:
        return idempotency_key(self._run.principal.tenant, self._run.thread_id or "", call.tool_call_id, tool.name)

    def _outcome(self, call: PlannedCall, tool: CompiledTool | None, end: End, live: Live) -> ToolOutcome:
        return outcome_of(
            call,
            end,
            live,
            return_direct=tool is not None and tool.return_direct,
            handle_tool_errors=self._run.handle_tool_errors,
            new_id=self._run.new_id,
        )


def call_time_ms(tool_call_id: str) -> int:
    """When a call was made, milliseconds since the epoch: read from its UUIDv7, so it is the same after a restart."""
    if len(tool_call_id) == 36 and tool_call_id[14] == "7":
        try:
            return int(tool_call_id[:8] + tool_call_id[9:13], 16)
        except ValueError:
            pass
    return now_ms()


def _arguments(tool: CompiledTool, call: PlannedCall) -> dict[str, object]:
    """What the model said, without what the server fills in itself."""
    given = call.action.tool_input
    if isinstance(given, str):
        return {tool.text_key: given}
    if tool.constants:
        return {name: value for name, value in given.items() if name not in tool.constants}
    return given


def _faults(tool: CompiledTool, arguments: dict[str, object]) -> str | None:
    """What is wrong with the arguments, in words; `None` if they fit."""
    try:
        if tool.schema.is_valid(arguments):
            return None
        faults = tool.schema.faults(arguments)
    except ValueError:  # a lone surrogate, or nested beyond any schema
        return "they hold text or nesting that JSON cannot carry"
    return "; ".join(f"at {fault.pointer or 'the top'}: {fault.detail}" for fault in faults)
