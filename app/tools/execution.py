"""The execution of one call whose arguments fit: its turn, its authorization, its attempts, and the end that they come to."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from app.agent.ports import PlannedCall, Resumed, Waiting
from app.core.clock import now_ms
from app.core.errors import ApprovalVoid, ToolDisabled, ToolWithdrawn
from app.tools.approval import ApprovalRule, asking
from app.tools.arguments import Arguments, digest
from app.tools.attempt import Attempt, Send, Sending, backoff_s, may_repeat
from app.tools.authority import Call, Ruling
from app.tools.compiled import CompiledTool
from app.tools.dispatch import Dispatch
from app.tools.ending import NO_ROOM, End, Live, denied, disabled, output_end, running_attempt, settled, withdrawn
from app.tools.inputs import answers_of, needs_input
from app.tools.late import called_back
from app.tools.questions import Question
from app.tools.reconcile import Pace, ask
from app.tools.run_context import ToolRunContext
from app.tools.signing import idempotency_key
from app.tools.waits import answered_ms, asked, deferred, handed_over, void

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

PLUGIN_RESTARTS = 2
"""How often an idempotent in-process call that a crash interrupted is run again. It has no `retry` to say so itself."""


LOST = Attempt(
    "uncertain",
    code="outcome_unknown",
    message="the server stopped before its result came, and it may not be sent again",
)
"""What is known of an attempt whose process is gone."""


class Execution:
    __slots__ = ("_arguments", "_call", "_changed", "_jitter", "_live", "_resumed", "_run", "_sleep", "_tool")

    def __init__(
        self,
        call: PlannedCall,
        tool: CompiledTool,
        arguments: Arguments,
        live: Live,
        run: ToolRunContext,
        sleep: Callable[[float], Awaitable[None]],
        jitter: Callable[[], float],
        resumed: Resumed | None = None,
        changed: Arguments | None = None,
    ) -> None:
        """`arguments`: as they will be sent, the constants in. `resumed`: a person allowed the call.

        `changed`: the input that is sent, where that is not the one that was asked for.
        """
        self._call = call
        self._tool = tool
        self._arguments = arguments
        self._live = live
        self._run = run
        self._sleep = sleep
        self._jitter = jitter
        self._resumed = resumed
        self._changed = changed

    async def run(self, sent_before: int) -> End | Waiting:
        """Wait for the call's turn, then authorize and send it, or say whose answer it waits for. Raises only cancellation, `RunCancelled` and `Fenced`.

        The place in the line is taken before anything is awaited, so that turns come in call order. Waiting counts
        against the run's time, not against the call's own. A call that a person is asked about takes its place when
        it was allowed; a deferred one keeps its turn until it has its result.
        """
        line, live = self._tool.line, self._live
        if line is None or (self._run.may_wait and self._rule(self._is_fresh(sent_before)) is not None):
            return await self._act(sent_before)
        async with line.turn(self._run.principal.tenant, self._arguments, self._call.tool_call_id) as turn:
            live.started_at, live.started = now_ms(), time.perf_counter()
            end = await self._act(sent_before)
            if isinstance(end, Waiting) and end.reason == "deferred" and self._run.run_id is not None:
                line.turns.keep(turn, self._run.run_id, end.until_ms)
                end = replace(end, facts={**end.facts, "turns": turn.shared})
            return end

    async def ask_once(self, timeout_s: float) -> End | None:
        """What the tool's `status_url` says now; `None` when it does not tell, or there is none."""
        tool = self._tool
        if tool.status is None:
            return None
        pace = Pace(min(timeout_s, tool.timeout_s), time.perf_counter(), self._sleep, self._jitter)
        found = await ask(tool.name, tool.status.prepare(self._sending(self._began_ms())), pace)
        if found is None:
            return None
        return output_end(tool, found) if found.kind == "output" else settled(tool, found)

    async def _act(self, sent_before: int) -> End | Waiting:
        ruling = await self._ruling()
        self._live.note("authorization", ruling.verdict, ruling.detail)
        if ruling.code:
            return self._denied(ruling)
        waiting = self._question(ruling, fresh=self._is_fresh(sent_before))
        if waiting is not None:
            return waiting
        if self._tool.by_caller:
            return await self._handed_over()
        end = await self._send_until_it_ends(sent_before)
        if isinstance(end, End):
            self._live.note("execution", end.status, end.code or None)
        return end

    def _question(self, ruling: Ruling, *, fresh: bool) -> End | Waiting | None:
        """What the call waits for before it is made. `fresh`: nobody was asked yet."""
        call, tool, run, live, arguments = self._call, self._tool, self._run, self._live, self._arguments
        if not run.may_wait:
            if tool.by_caller:
                text = f"{tool.name} is run by the caller of a run; it cannot be called here."
                return End("error", text, "client_tool")
            if ruling.ask:
                text = (
                    f"{tool.name} was not called: a person would have to approve it, and outside a run nobody is asked."
                )
                return End("denied", text, "approval_unavailable")
            return None
        rule = ApprovalRule() if ruling.ask and fresh else self._rule(fresh)
        if rule is not None:
            return asked(call, tool, rule, live, arguments, run.new_id(), ruling.why)
        return None

    async def _handed_over(self) -> End | Waiting:
        """The call goes to the caller, unless it may not leave: what stops a dispatch stops it."""
        end = await self._recorded(())
        if end is not None:
            return end
        return handed_over(self._call, self._tool, self._live, self._arguments, self._run.new_id())

    def _is_fresh(self, sent_before: int) -> bool:
        """Nobody was asked about the call yet."""
        return self._resumed is None and not sent_before

    def _rule(self, fresh: bool) -> ApprovalRule | None:
        """The tool's or the agent's own rule by which a person is asked."""
        if not fresh:
            return None
        return asking((*self._tool.approval, *self._run.approvals.get(self._tool.name, ())), self._arguments)

    async def _ruling(self) -> Ruling:
        """Scopes and policy; after a restart and after an approval again."""
        run, call = self._run, self._call
        return await run.authority.rule(
            Call(
                tool=self._tool,
                tool_call_id=call.tool_call_id,
                arguments=self._arguments,
                principal=run.principal,
                run_id=run.run_id,
                thread_id=run.thread_id,
                agent=run.agent,
                context=run.context,
            )
        )

    async def _send_until_it_ends(self, sent_before: int) -> End | Waiting:
        tool, live = self._tool, self._live
        began_ms = self._began_ms()
        sending = self._sending(began_ms)
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
        answers = sending.answers
        limit += answers.sent
        number = before = answers.sent + sent_before
        while True:
            if attempt is not None:
                if attempt.whole is not None or attempt.kind == "uncertain":
                    await self._run.keeping.load()
                if attempt.kind == "uncertain":
                    said = await called_back(tool, self._run, self._call, result_place(self._run, self._call))
                    if said is not None:
                        return said
                if attempt.kind == "uncertain" and tool.status is not None and not (tool.idempotent and number < limit):
                    attempt = await self._reconciled(tool.status.prepare(sending), attempt, ends)
                if attempt.kind == "output":
                    return output_end(tool, attempt, result_place(self._run, self._call))
                if attempt.kind == "deferred" and self._run.may_wait:
                    return deferred(tool, live, began_ms + int(tool.deadline_s * 1000))
                if attempt.question is not None:
                    return self._asking(attempt.question, answers.given, number)
                pause = self._pause(attempt, number - before)
                over = number >= limit or pause >= ends - time.perf_counter()
                if over or not may_repeat(attempt, tool.idempotent):
                    return settled(tool, attempt)
                if pause:
                    await self._sleep(pause)
            number += 1
            if number > before + 1:  # time has passed since it was authorized
                ruling = await self._run.authority.scopes(tool, self._run.principal)
                if ruling.code:
                    live.note("authorization", ruling.verdict, ruling.detail)
                    return self._denied(ruling)
            at = began_ms if number == 1 and tool.line is not None else now_ms()
            end = await self._recorded((*live.attempts, running_attempt(number, at)))
            if end is not None:
                return end
            left = ends - time.perf_counter()
            attempt = await self._attempt(send, number, at, min(tool.timeout_s, max(left, 0.001)))

    async def _recorded(self, log: tuple[Mapping[str, object], ...]) -> End | None:
        """Journal that the call is about to leave; its end where it may not. `log`: its attempts, this one last."""
        tool, live = self._tool, self._live
        try:
            await self._run.record_dispatch(
                Dispatch(
                    self._call.tool_call_id,
                    log,
                    tool.name,
                    registered=tool.source == "registered",
                    approved=self._resumed is not None and self._resumed.waiting.reason == "tool_approval",
                    sent_input=self._changed,
                    arguments_sha256=None if self._changed is None else digest(self._changed),
                )
            )
            live.sent_input = self._changed
        except ToolWithdrawn:
            return self._stopped(withdrawn(tool.name))
        except ApprovalVoid:
            return self._stopped(void(tool.name, live))
        except ToolDisabled as stop:
            live.note("authorization", "denied", stop.message)
            return self._stopped(disabled(tool.name))
        return None

    def _asking(self, question: Question, given: Sequence[object], number: int) -> End | Waiting:
        """The tool stopped at a question in its attempt `number`; `given`: the answers before that."""
        call, tool, run = self._call, self._tool, self._run
        if run.may_wait:
            return needs_input(call, tool, self._live, question, given, number, run.new_id())
        text = f"{tool.name} did not go on: it asks a person, and outside a run nobody is asked."
        return End("denied", text, "interrupt_unavailable")

    def _denied(self, ruling: Ruling) -> End:
        return self._stopped(denied(self._tool.name, ruling.code, ruling.told))

    def _stopped(self, end: End) -> End:
        """A call that may not be sent (again). One that may have been sent before is no denial: it may have taken effect."""
        if not self._live.sent:
            return end
        text = "it was sent before, its result did not come, and it may not be sent again"
        return settled(self._tool, Attempt("uncertain", code=end.code, message=text))

    def _pause(self, attempt: Attempt, tries: int) -> float:
        """Seconds before the call is sent again. `tries`: how often this process has sent it."""
        if attempt is LOST:
            return 0.0
        return backoff_s(tries, self._jitter()) if attempt.retry_after_s is None else max(attempt.retry_after_s, 0.0)

    async def _reconciled(self, send: Send, attempt: Attempt, ends: float) -> Attempt:
        """What the tool's `status_url` says became of an uncertain attempt; the attempt itself where it cannot tell."""
        live, tool = self._live, self._tool
        found = await ask(tool.name, send, Pace(tool.timeout_s, ends, self._sleep, self._jitter))
        if found is None:
            live.note("execution", "uncertain", "status_url did not tell")
            return attempt
        if found.kind != "output":
            live.sent = False
        live.note("execution", "reconciled", "success" if found.kind == "output" else found.code)
        return replace(found, meta={**found.meta, "reconciled": True})

    async def _attempt(self, send: Send, number: int, at: int, timeout_s: float) -> Attempt:
        live = self._live
        begun, sent_before, outcome, http_status = time.perf_counter(), live.sent, "cut", None
        live.sent = True
        try:
            attempt = await self._guarded(send, number, timeout_s)
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
        if attempt.kind in ("failed", "not_executed", "asks"):
            live.sent = sent_before
        return attempt

    async def _guarded(self, send: Send, number: int, timeout_s: float) -> Attempt:
        """The boundary to executors: a fault of ours there must not end the run, and nobody knows what was sent."""
        try:
            return await send(number, timeout_s)
        except Exception:  # noqa: BLE001  # the named boundary to executors
            run = self._run
            request_id = run.new_id()
            _log.exception(
                "tool_attempt_broke",
                run_id=run.run_id,
                tool_call_id=self._call.tool_call_id,
                request_id=request_id,
            )
            text = f"the server failed while it called the tool (request {request_id})"
            return Attempt("uncertain", code="internal_error", message=text, request_id=request_id)

    def _sending(self, began_ms: int) -> Sending:
        run, tool, call = self._run, self._tool, self._call
        return Sending(
            tool.name,
            call.tool_call_id,
            key_of_call(run, tool, call),
            self._arguments,
            run.principal,
            run.run_id,
            run.thread_id,
            run.context,
            call_time_ms(call.tool_call_id),
            began_ms + int(tool.deadline_s * 1000),
            run.new_id,
            run.view,
            run.store,
            answers_of(self._resumed),
        )

    def _began_ms(self) -> int:
        """From when the deadline counts, the same after a crash: when the call was made, allowed, or its turn first came."""
        call = self._call
        if self._tool.line is None:
            allowed = answered_ms(self._resumed)
            return call_time_ms(call.tool_call_id) if allowed is None else allowed
        first = call.dispatched[0].get("at") if call.dispatched else self._live.started_at
        return first if isinstance(first, int) else call_time_ms(call.tool_call_id)


def result_place(run: ToolRunContext, call: PlannedCall) -> str | None:
    """Where the whole result is read when it is too long to be shown; outside a run nothing is kept.

    `run.keeping` must be loaded where there is such a result.
    """
    if run.run_id is None:
        return None
    return NO_ROOM if run.keeping.full else f"/runs/{run.run_id}/steps/{call.step}/result"


def key_of_call(run: ToolRunContext, tool: CompiledTool, call: PlannedCall) -> str:
    """The call's idempotency key (see docs/tools.md): the same on each attempt, after a restart too."""
    return idempotency_key(run.principal.tenant, run.thread_id or "", call.tool_call_id, tool.name)


def call_time_ms(tool_call_id: str) -> int:
    """When a call was made, milliseconds since the epoch: read from its UUIDv7, so it is the same after a restart."""
    if len(tool_call_id) == 36 and tool_call_id[14] == "7":
        try:
            return int(tool_call_id[:8] + tool_call_id[9:13], 16)
        except ValueError:
            pass
    return now_ms()
