"""The tools of one run: each call goes validate → authorize → execute, and comes back as one honest outcome."""

import asyncio
import hashlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, cast

import orjson
import structlog

from app.agent.ports import CutReason, PlannedCall, Resumed, ToolDefinition, ToolOutcome, Waiting
from app.core.clock import now_ms
from app.core.errors import ToolDisabled, ToolWithdrawn
from app.core.ids import new_id
from app.core.principal import Principal
from app.core.values import immutable
from app.tools.approval import ApprovalRule, asking
from app.tools.arguments import Arguments, completed, faults_of, fitted
from app.tools.attempt import Attempt, Send, Sending, backoff_s, may_repeat
from app.tools.authority import DEFAULT, Authority, Call, Ruling
from app.tools.callbacks import late_attempt
from app.tools.compiled import CompiledTool
from app.tools.ending import (
    End,
    Live,
    denied,
    disabled,
    earlier_attempts,
    outcome_of,
    output_end,
    running_attempt,
    settled,
    unknown,
    withdrawn,
)
from app.tools.reconcile import Pace, ask
from app.tools.signing import idempotency_key
from app.tools.waits import answered_ms, asked, begin_live, decided, deferred, handed_over, is_as_asked

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

PLUGIN_RESTARTS = 2
"""How often an idempotent in-process call that a crash interrupted is run again. It has no `retry` to say so itself."""


LOST = Attempt(
    "uncertain",
    code="outcome_unknown",
    message="the server stopped before its result came, and it may not be sent again",
)
"""What is known of an attempt whose process is gone."""

Attempts = Sequence[Mapping[str, object]]
"""As in `ToolOutcome.attempts`; one that has not come back has the outcome `running`."""


class RecordDispatch(Protocol):
    """Journals an attempt; durable when it returns, and only then is the attempt sent.

    Raises `RunCancelled`, `Fenced` (the runner lets them out), or `ToolWithdrawn`, `ToolDisabled` (the call is denied).
    """

    def __call__(self, tool_call_id: str, log: Attempts, tool: str, registered: bool, /) -> Awaitable[None]:
        """`log`: the call's attempts so far, this one last (its number and time are there)."""
        ...


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
    may_wait: bool = True
    """Whether a call may wait for an answer: in a run. Outside one nobody would be there to be asked."""
    approvals: Mapping[str, Sequence[ApprovalRule]] = field(default_factory=dict[str, Sequence[ApprovalRule]])
    """By tool: when the agent asks a person first, besides the tool's own rules."""
    authority: Authority = DEFAULT
    agent: str | None = None
    """The registered agent's name."""


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
            data = orjson.dumps(fitted(tool, call)[0], option=orjson.OPT_SORT_KEYS)
        except (TypeError, ValueError):  # such a call is refused before it is sent
            data = b""
        return CallFacts(tool.version, tool.effect, self._key(tool, call), hashlib.sha256(data).hexdigest())

    def input_faults(self, name: str, tool_input: object) -> list[tuple[str, str]]:
        """What is wrong with an input for one of the tools: (pointer, detail)."""
        tool = self._tools.get(name)
        if tool is None:
            return [("", "the tool was withdrawn")]
        if not isinstance(tool_input, dict):
            return [("", "must be an object with the tool's arguments")]
        given = cast("dict[str, object]", tool_input)
        return [(fault.pointer, fault.detail) for fault in tool.schema.faults(given)]

    async def run(
        self, call: PlannedCall, *, sent_before: int = 0, resumed: Resumed | None = None
    ) -> ToolOutcome | Waiting:
        """See `ToolRunner.run`. Raises only cancellation, `RunCancelled` and `Fenced`."""
        call_id = call.tool_call_id
        live = self._live[call_id] = begin_live(call, call_time_ms(call_id), sent_before, resumed)
        tool = self._tools.get(call.action.tool)
        end = await self._end(call, tool, live, sent_before, resumed)
        del self._live[call_id]
        return end if isinstance(end, Waiting) else self._outcome(call, tool, end, live)

    async def _end(
        self, call: PlannedCall, tool: CompiledTool | None, live: Live, sent_before: int, resumed: Resumed | None
    ) -> End | Waiting:
        name = call.action.tool
        if resumed is not None and resumed.waiting.reason == "deferred":
            return withdrawn(name) if tool is None else _late(tool, live, resumed)
        if resumed is not None:
            call, end = decided(call, name, live, resumed)
            if end is not None:
                return end
        arguments = self._checked(call, tool, live, sent_before)
        if isinstance(arguments, End):
            return arguments
        assert tool is not None
        if resumed is not None and not is_as_asked(resumed, tool):
            live.note("approval", "void", "the tool has changed since it was asked for")
            return End("denied", f"{name} was not called: it has changed since it was approved.", "approval_void")
        ruling = await self._ruling(call, tool, arguments)
        live.note("authorization", ruling.verdict, ruling.detail)
        if ruling.code:
            return self._stopped(tool, live, denied(name, ruling.code, ruling.told))
        waiting = self._question(call, tool, arguments, live, fresh=resumed is None and not sent_before, ask=ruling.ask)
        if waiting is not None:
            return waiting
        began_ms = answered_ms(resumed) or _began_ms(call, tool, live)
        executed = await self._in_turn(call, tool, arguments, live, sent_before, began_ms)
        if isinstance(executed, End):
            live.note("execution", executed.status, executed.code or None)
        return executed

    def _question(
        self, call: PlannedCall, tool: CompiledTool, arguments: Arguments, live: Live, *, fresh: bool, ask: bool
    ) -> End | Waiting | None:
        """What the call waits for before it is made. `fresh`: nobody was asked yet; `ask`: the policy wants a person."""
        name, run = tool.name, self._run
        if not run.may_wait:
            if tool.by_caller:
                return End("error", f"{name} is run by the caller of a run; it cannot be called here.", "client_tool")
            if ask:
                text = f"{name} was not called: a person would have to approve it, and outside a run nobody is asked."
                return End("denied", text, "approval_unavailable")
            return None
        if fresh:
            rule = ApprovalRule() if ask else asking((*tool.approval, *run.approvals.get(name, ())), arguments)
            if rule is not None:
                return asked(call, tool, rule, live, arguments, run.new_id())
        return handed_over(call, tool, live, arguments, run.new_id()) if tool.by_caller else None

    async def ask(self, call: PlannedCall, timeout_s: float) -> ToolOutcome | None:
        """Ask once what became of a call of unknown outcome. `None`: nobody can tell (yet), or there is nobody to ask."""
        tool = self._tools.get(call.action.tool)
        if tool is None or tool.status is None:
            return None
        live = Live(now_ms(), time.perf_counter(), True, [], list(call.dispatched))
        arguments = completed(tool, fitted(tool, call)[0])
        pace = Pace(min(timeout_s, tool.timeout_s), live.started, self._sleep, self._jitter)
        sending = self._sending(call, tool, arguments, call_time_ms(call.tool_call_id))
        answer = await ask(tool.name, tool.status.prepare(sending), pace)
        if answer is None:
            return None
        end = output_end(tool, answer) if answer.kind == "output" else settled(tool, answer)
        return self._outcome(call, tool, end, live)

    def cut(self, call: PlannedCall, reason: CutReason) -> ToolOutcome:
        """See `ToolRunner.cut`. `lost` means: sent by a process that is gone."""
        tool = self._tools.get(call.action.tool)
        live = self._live.pop(call.tool_call_id, None)
        sent = reason == "lost" or (live is not None and live.sent)
        if live is None:
            live = Live(now_ms(), time.perf_counter(), sent, [], earlier_attempts(call, 0))
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

    def _checked(self, call: PlannedCall, tool: CompiledTool | None, live: Live, sent_before: int) -> End | Arguments:
        """Everything about the call itself that ends it before it is sent; else the arguments to send."""
        name = call.action.tool
        if call.refusal is not None:
            live.note("validation", "failed", call.refusal)
            return End("error", call.refusal, "call_refused")
        if tool is None:
            return self._missing(name, live, sent_before)
        if sent_before and not tool.idempotent and tool.status is None:
            return _lost(name, live)
        arguments, coerced = fitted(tool, call)
        text = faults_of(tool, arguments)
        if text is not None:
            live.note("validation", "failed", text)
            return End(
                "error", f"{name} was not called, its arguments do not fit its schema: {text}", "invalid_arguments"
            )
        live.note("validation", "ok", f"coerced: {', '.join(coerced)}" if coerced else None)
        return completed(tool, arguments)

    async def _ruling(self, call: PlannedCall, tool: CompiledTool, arguments: Arguments) -> Ruling:
        """Scopes and policy; after a restart and after an approval again."""
        run = self._run
        return await run.authority.rule(
            Call(
                tool=tool,
                tool_call_id=call.tool_call_id,
                arguments=arguments,
                principal=run.principal,
                run_id=run.run_id,
                thread_id=run.thread_id,
                agent=run.agent,
                context=run.context,
            )
        )

    def _missing(self, name: str, live: Live, sent_before: int) -> End:
        if name not in self._withdrawn:
            text = f"{name} is not a valid tool, try one of [{', '.join(self._tools)}]."
            live.note("validation", "failed", "unknown tool")
            return End("error", text, "unknown_tool")
        if sent_before:
            return _lost(name, live)
        live.note("authorization", "denied", "withdrawn")
        return withdrawn(name)

    async def _in_turn(
        self, call: PlannedCall, tool: CompiledTool, arguments: Arguments, live: Live, sent_before: int, began_ms: int
    ) -> End | Waiting:
        """Execute when it is the call's turn. Waiting for it counts against the run's time, not against the call's own."""
        if tool.line is None:
            return await self._execute(call, tool, arguments, live, sent_before, began_ms)
        async with tool.line.turn(self._run.principal.tenant, arguments):
            live.started_at, live.started = now_ms(), time.perf_counter()
            began_ms = max(began_ms, _began_ms(call, tool, live))
            return await self._execute(call, tool, arguments, live, sent_before, began_ms)

    async def _execute(
        self, call: PlannedCall, tool: CompiledTool, arguments: Arguments, live: Live, sent_before: int, began_ms: int
    ) -> End | Waiting:
        sending = self._sending(call, tool, arguments, began_ms)
        try:
            send = tool.executor.prepare(sending)
        except (TypeError, ValueError):  # a whole number beyond 64 bits, a lone surrogate
            text = f"{tool.name} was not called, its arguments hold a value that cannot be sent as JSON."
            return End("error", text, "invalid_arguments")
        ends = live.started + tool.deadline_s
        limit = tool.max_attempts
        attempt: Attempt | None = None
        if sent_before:
            limit = max(limit, PLUGIN_RESTARTS + 1) if tool.source == "plugin" else limit
            ends -= max(0, now_ms() - began_ms) / 1000
            attempt = LOST
        number = sent_before
        while True:
            if attempt is not None:
                if attempt.kind == "uncertain" and tool.status is not None and not (tool.idempotent and number < limit):
                    attempt = await self._reconciled(tool, tool.status.prepare(sending), attempt, ends, live)
                if attempt.kind == "output":
                    return output_end(tool, attempt)
                if attempt.kind == "deferred" and self._run.may_wait:
                    return deferred(tool, live, began_ms + int(tool.deadline_s * 1000))
                pause = self._pause(attempt, number - sent_before)
                over = number >= limit or pause >= ends - time.perf_counter()
                if over or not may_repeat(attempt, tool.idempotent):
                    return settled(tool, attempt)
                if pause:
                    await self._sleep(pause)
            number += 1
            if number > sent_before + 1 or tool.line is not None:  # time has passed since it was authorized
                ruling = await self._run.authority.scopes(tool, self._run.principal)
                if ruling.code:
                    live.note("authorization", ruling.verdict, ruling.detail)
                    return self._stopped(tool, live, denied(tool.name, ruling.code, ruling.told))
            at = began_ms if number == 1 and tool.line is not None else now_ms()
            log = (*live.attempts, running_attempt(number, at))
            try:
                await self._run.record_dispatch(call.tool_call_id, log, tool.name, tool.source == "registered")
            except ToolWithdrawn:
                return self._stopped(tool, live, withdrawn(tool.name))
            except ToolDisabled as stop:
                live.note("authorization", "denied", stop.message)
                return self._stopped(tool, live, disabled(tool.name))
            left = ends - time.perf_counter()
            attempt = await self._attempt(call, send, number, at, min(tool.timeout_s, max(left, 0.001)), live)

    def _pause(self, attempt: Attempt, tries: int) -> float:
        """Seconds before the call is sent again. `tries`: how often this process has sent it."""
        if attempt is LOST:
            return 0.0
        return backoff_s(tries, self._jitter()) if attempt.retry_after_s is None else max(attempt.retry_after_s, 0.0)

    async def _reconciled(self, tool: CompiledTool, send: Send, attempt: Attempt, ends: float, live: Live) -> Attempt:
        """What the tool's `status_url` says became of an uncertain attempt; the attempt itself where it cannot tell."""
        found = await ask(tool.name, send, Pace(tool.timeout_s, ends, self._sleep, self._jitter))
        if found is None:
            live.note("execution", "uncertain", "status_url did not tell")
            return attempt
        if found.kind != "output":
            live.sent = False
        live.note("execution", "reconciled", "success" if found.kind == "output" else found.code)
        return replace(found, meta={**found.meta, "reconciled": True})

    def _stopped(self, tool: CompiledTool, live: Live, end: End) -> End:
        """A call that may not be sent (again). One that may have been sent before is no denial: it may have taken effect."""
        if not live.sent:
            return end
        text = "it was sent before, its result did not come, and it may not be sent again"
        return settled(tool, Attempt("uncertain", code=end.code, message=text))

    async def _attempt(
        self, call: PlannedCall, send: Send, number: int, at: int, timeout_s: float, live: Live
    ) -> Attempt:
        begun, sent_before, outcome, http_status = time.perf_counter(), live.sent, "cut", None
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

    def _sending(self, call: PlannedCall, tool: CompiledTool, arguments: Arguments, began_ms: int) -> Sending:
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
            call_time_ms(call.tool_call_id),
            began_ms + int(tool.deadline_s * 1000),
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


def _late(tool: CompiledTool, live: Live, resumed: Resumed) -> End:
    """A deferred call's end: what the tool called back with, or that it never did."""
    answer = resumed.answer
    if answer.get("decision") == "expired":
        text = f"{tool.name} said that it would answer later, and did not in time"
        attempt = Attempt("uncertain", code="tool_timeout", message=text, timed_out=True)
    else:
        attempt = late_attempt(tool.name, answer, tool.max_result_bytes)
    end = output_end(tool, attempt) if attempt.kind == "output" else settled(tool, attempt)
    live.note("execution", end.status, end.code or None)
    return end


def _began_ms(call: PlannedCall, tool: CompiledTool, live: Live) -> int:
    """From when a call's deadline counts, the same after a crash: when it was made, or when its turn first came."""
    if tool.line is None:
        return call_time_ms(call.tool_call_id)
    first = call.dispatched[0].get("at") if call.dispatched else live.started_at
    return first if isinstance(first, int) else call_time_ms(call.tool_call_id)


def _lost(name: str, live: Live) -> End:
    for stage in ("validation", "authorization"):
        live.note(stage, "ok", "before the restart")
    live.note("execution", "unknown", "sent before the restart")
    return unknown(name, "the server stopped before its result came")
