"""The tools of one run: each call goes validate → authorize → execute, and comes back as one honest outcome."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from app.agent.answer import AnswerSchema
from app.agent.ports import CutReason, PlannedCall, Resumed, ToolDefinition, ToolOutcome, Waiting
from app.core.clock import now_ms
from app.core.errors import FieldError
from app.core.json import encode_text
from app.core.values import immutable
from app.tools.answers import input_faults, output_faults
from app.tools.arguments import Arguments, changed_input, completed, digest, faults_of, fitted
from app.tools.compiled import CompiledTool
from app.tools.ending import End, Live, earlier_attempts, first_sent_ms, outcome_of, unknown, withdrawn
from app.tools.execution import Execution, call_time_ms, key_of_call, result_place
from app.tools.late import late_end
from app.tools.run_context import ToolRunContext
from app.tools.waits import begin_live, decided, is_as_asked, void

__all__ = ["BoundTools", "CallFacts", "ToolRunContext", "call_time_ms"]


@immutable
class CallFacts:
    """What is known of a call before it is sent, for its row."""

    tool_version: int | None
    effect: str | None
    idempotency_key: str | None
    arguments_sha256: str | None


class BoundTools:
    """The `ToolRunner` of one run (see `app.agent.ports`)."""

    __slots__ = ("_answer", "_definitions", "_jitter", "_live", "_run", "_sleep", "_tools", "_withdrawn")

    def __init__(
        self,
        tools: Mapping[str, CompiledTool],
        run: ToolRunContext,
        *,
        withdrawn: frozenset[str] = frozenset(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        answer: AnswerSchema | None = None,
    ) -> None:
        """`withdrawn`: names that were pinned and can no longer be called. `answer`: its tool is offered beside them."""
        self._tools = tools
        self._run = run
        self._withdrawn = withdrawn
        self._sleep = sleep
        self._jitter = jitter
        self._definitions = [tool.definition for tool in tools.values()]
        self._answer = answer
        if answer is not None:
            self._definitions.append(answer.definition)
        self._live: dict[str, Live] = {}

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        return self._definitions

    def answering(self, answer: AnswerSchema) -> "BoundTools":
        """These tools, and the one that takes the agent's structured answer."""
        return BoundTools(
            self._tools, self._run, withdrawn=self._withdrawn, sleep=self._sleep, jitter=self._jitter, answer=answer
        )

    def takes_answer(self, name: str) -> bool:
        """Whether a tool of this name is the one that takes the agent's structured answer."""
        return self._answer is not None and name == self._answer.name

    def find(self, name: str) -> CompiledTool | None:
        """A tool of this run by its name."""
        return self._tools.get(name)

    def facts(self, call: PlannedCall) -> CallFacts:
        """What the call's row should say before anything is sent."""
        tool = self._tools.get(call.action.tool)
        if tool is None:
            return CallFacts(None, None, None, None)
        arguments, _ = fitted(tool, call.action.tool_input)
        return CallFacts(tool.version, tool.effect, key_of_call(self._run, tool, call), digest(arguments))

    def input_faults(self, name: str, tool_input: object) -> Sequence[FieldError]:
        """What is wrong with an edited input for one of the tools."""
        return input_faults(self._tools.get(name), tool_input)

    def output_faults(self, name: str, output: object) -> Sequence[FieldError]:
        """What is wrong with an output given in the place of one of the tools."""
        return output_faults(self._tools.get(name), output)

    async def run(
        self, call: PlannedCall, *, sent_before: int = 0, resumed: Resumed | None = None
    ) -> ToolOutcome | Waiting:
        """See `ToolRunner.run`. Raises only cancellation, `RunCancelled` and `Fenced`."""
        call_id = call.tool_call_id
        live = self._live[call_id] = begin_live(call, call_time_ms(call_id), sent_before, resumed)
        tool = self._tools.get(call.action.tool)
        if resumed is not None:
            await self._run.keeping.load()
        end = await self._end(call, tool, live, sent_before, resumed)
        if isinstance(end, Waiting):  # a call that is cut while it waits has done what it has done
            return end
        del self._live[call_id]
        if end.whole is not None:
            self._run.keeping.add(len(end.whole.data))
        return self._outcome(call, tool, end, live)

    async def _end(
        self, call: PlannedCall, tool: CompiledTool | None, live: Live, sent_before: int, resumed: Resumed | None
    ) -> End | Waiting:
        name, asked = call.action.tool, call.action.tool_input
        if resumed is not None and resumed.waiting.reason == "deferred":
            return withdrawn(name) if tool is None else late_end(tool, live, resumed, result_place(self._run, call))
        if resumed is not None:
            call, end = decided(call, tool, live, resumed, result_place(self._run, call))
            if end is not None:
                return end
        if self._answer is not None and name == self._answer.name and call.refusal is None:
            return _taken(self._answer, call, live)
        arguments = self._checked(call, tool, live, sent_before)
        if isinstance(arguments, End):
            return arguments
        assert tool is not None
        if resumed is not None and not sent_before and not is_as_asked(resumed, arguments):
            return void(name, live)
        changed = changed_input(tool, asked, arguments)
        return await self._on_its_way(call, tool, arguments, live, resumed, changed).run(sent_before)

    def can_ask(self, name: str) -> bool:
        """Whether there is somebody to ask what became of a tool's calls."""
        tool = self._tools.get(name)
        return tool is not None and tool.status is not None

    async def ask(self, call: PlannedCall, timeout_s: float) -> ToolOutcome | None:
        """Ask once what became of a call of unknown outcome. `None`: nobody can tell (yet), or there is nobody to ask."""
        tool = self._tools.get(call.action.tool)
        if tool is None or tool.status is None:
            return None
        live = Live(now_ms(), time.perf_counter(), True, [], list(call.dispatched))
        end = await self._on_its_way(call, tool, fitted(tool, call.action.tool_input)[0], live).ask_once(timeout_s)
        return None if end is None else self._outcome(call, tool, end, live)

    def _on_its_way(
        self,
        call: PlannedCall,
        tool: CompiledTool,
        arguments: Arguments,
        live: Live,
        resumed: Resumed | None = None,
        changed: Arguments | None = None,
    ) -> Execution:
        return Execution(call, tool, arguments, live, self._run, self._sleep, self._jitter, resumed, changed)

    def cut(self, call: PlannedCall, reason: CutReason) -> ToolOutcome:
        """See `ToolRunner.cut`. `lost` means: sent by a process that is gone."""
        tool = self._tools.get(call.action.tool)
        live = self._live.pop(call.tool_call_id, None)
        if tool is not None and tool.line is not None:
            tool.line.turns.release(call.tool_call_id)
        sent = reason == "lost" or (live is not None and live.sent)
        if live is None:
            log = earlier_attempts(call, 0)
            sent = sent or any(entry.get("outcome") == "lost" for entry in log)
            chain, sent_ms = list(call.noted), first_sent_ms(log)
            live = Live(now_ms(), time.perf_counter(), sent, chain, log, call.sent_input, sent_ms)
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
        arguments, coerced = fitted(tool, call.action.tool_input)
        text = faults_of(tool, arguments)
        if text is not None:
            live.note("validation", "failed", text)
            return End(
                "error", f"{name} was not called, its arguments do not fit its schema: {text}", "invalid_arguments"
            )
        live.note("validation", "ok", f"coerced: {', '.join(coerced)}" if coerced else None)
        return completed(tool, arguments)

    def _missing(self, name: str, live: Live, sent_before: int) -> End:
        if name not in self._withdrawn:
            text = f"{name} is not a valid tool, try one of [{', '.join(tool.name for tool in self._definitions)}]."
            live.note("validation", "failed", "unknown tool")
            return End("error", text, "unknown_tool")
        if sent_before:
            return _lost(name, live)
        live.note("authorization", "denied", "withdrawn")
        return withdrawn(name)

    def _outcome(self, call: PlannedCall, tool: CompiledTool | None, end: End, live: Live) -> ToolOutcome:
        return outcome_of(
            call,
            end,
            live,
            return_direct=tool is not None and tool.return_direct,
            handle_tool_errors=self._run.handle_tool_errors,
            new_id=self._run.new_id,
        )


def _taken(answer: AnswerSchema, call: PlannedCall, live: Live) -> End:
    """The structured answer. Nothing is sent, so nobody is asked; it was checked before it was planned."""
    said = answer.of_taken_call(call.action.tool_input)
    live.note("validation", "ok")
    live.note("execution", "success")
    return End("success", f"Returning structured response: {encode_text(said)}")


def _lost(name: str, live: Live) -> End:
    for stage in ("validation", "authorization"):
        live.note(stage, "ok", "before the restart")
    live.note("execution", "unknown", "sent before the restart")
    return unknown(name, "the server stopped before its result came")
