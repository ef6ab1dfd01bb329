"""A scripted planner and tools for the loop's tests: the loop and the tool boundary themselves are the real ones."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from app.agent.executor import execute
from app.agent.ports import Decision, Delta, ParseError, PlannedCall, ProposedAction, ToolOutcome, Turn
from app.agent.records import Failed, Finished, Record, StepDone
from app.agent.settings import AgentSettings
from app.agent.state import LoopState
from app.core.actions import AgentAction, AgentFinish, observation_text
from app.core.ids import new_id
from app.core.messages import Message
from app.core.principal import Principal
from app.tools.dispatch import Dispatch
from app.tools.plugin_api import ToolError, tool
from app.tools.plugins import PluginSet
from app.tools.runner import BoundTools, ToolRunContext

Json = Mapping[str, object]


class ScriptedPlanner:
    """Plays turns: an action, a list of actions, a finish, or a parse error. Remembers what it was shown."""

    def __init__(self, turns: Sequence[object], *, multi: bool, repeat_last: bool = False, delay_s: float = 0) -> None:
        self.multi_action = multi
        self.calls = 0
        self.seen: list[list[dict[str, object]]] = []
        self._turns = turns
        self._repeat_last = repeat_last
        self._delay_s = delay_s

    async def plan(self, turn: Turn) -> AsyncGenerator[Delta | Decision]:
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        self.seen.append(
            [
                {"tool": call.action.tool, "observation": outcome.observation}
                for done in turn.rounds
                for call, outcome in done.results
            ]
        )
        index = min(self.calls, len(self._turns) - 1) if self._repeat_last else self.calls
        self.calls += 1
        yield Decision(_outcome(self._turns[index]))

    async def conclude(self, turn: Turn) -> AsyncGenerator[Delta | Decision]:
        """Plays its next turn, whatever it is."""
        async for item in self.plan(turn):
            yield item

    def messages(self, turn: Turn) -> Sequence[Message]:
        return turn.messages

    def observe(self, call: PlannedCall, outcome: ToolOutcome) -> Message:
        return Message("user", observation_text(outcome.observation), tool_call_id=call.provider_call_id)


def _outcome(turn: object) -> tuple[ProposedAction, ...] | AgentFinish | ParseError:
    if isinstance(turn, list):
        return tuple(_action(cast("Json", item)) for item in cast("list[object]", turn))
    body = cast("Json", turn)
    if "finish" in body:
        finish = cast("Json", body["finish"])
        return AgentFinish(dict(cast("Json", finish["return_values"])), str(finish["log"]))
    if "parse_error" in body:
        error = cast("dict[str, str]", body["parse_error"])
        return ParseError(
            error["message"], error.get("llm_output", ""), error.get("observation", ""), bool(error.get("send_to_llm"))
        )
    return (_action(body),)


def _action(body: Json) -> ProposedAction:
    action = cast("Json", body["action"])
    return ProposedAction(
        AgentAction(str(action["tool"]), cast("str | dict[str, object]", action["tool_input"]), str(action["log"]))
    )


@dataclass(slots=True)
class Ledger:
    """What the tools did, in order."""

    events: list[list[str]] = field(default_factory=list[list[str]])


def make_tools(specs: Sequence[Json], ledger: Ledger, settings: AgentSettings) -> BoundTools:
    """The cases' tools as real plugins: `{name, delay_ms, returns, return_direct, tool_exception, raises}`."""
    plugins = PluginSet([_plugin(spec, ledger) for spec in specs])
    compiled = {name: found for name in [str(spec["name"]) for spec in specs] if (found := plugins.get(name))}
    context = ToolRunContext(
        principal=Principal("default", "tests"),
        run_id="run",
        thread_id="thread",
        record_dispatch=_no_record,
        handle_tool_errors=settings.handle_tool_errors,
    )
    return BoundTools(compiled, context)


async def _no_record(_: Dispatch, /) -> None:
    return


def _plugin(spec: Json, ledger: Ledger):
    name = str(spec["name"])

    async def run(text: str) -> object:
        ledger.events.append(["start", name, text])
        try:
            await asyncio.sleep(cast("float", spec.get("delay_ms", 0)) / 1000)
        except asyncio.CancelledError:
            ledger.events.append(["cancelled", name, text])
            raise
        if "tool_exception" in spec:
            raise ToolError(str(spec["tool_exception"] or ""))
        if "raises" in spec:
            kind, message = cast("list[str]", spec["raises"])
            errors: dict[str, Callable[[str], Exception]] = {
                "ValueError": ValueError, "RuntimeError": RuntimeError, "TimeoutError": TimeoutError,
            }  # fmt: skip
            raise errors[kind](message)
        ledger.events.append(["end", name, text])
        return spec.get("returns", f"{name}:{text}")

    return tool(name=name, return_direct=bool(spec.get("return_direct")), effect="read")(run)


@dataclass(slots=True)
class Ended:
    """How a loop ended, and everything it told on the way."""

    records: list[Record]
    end: Finished | Failed
    state: LoopState

    @property
    def steps(self) -> list[StepDone]:
        """In the order in which they were told."""
        return [record for record in self.records if isinstance(record, StepDone)]

    def intermediate_steps(self) -> list[object]:
        """(action, observation) of the steps that finished, in call order."""
        done = sorted(self.steps, key=lambda step: step.call.step)
        return [
            [
                {"tool": step.call.action.tool, "tool_input": step.call.action.tool_input, "log": step.call.action.log},
                step.outcome.observation,
            ]
            for step in done
            if "cut" not in cast("Json", step.outcome.envelope.get("meta") or {})
        ]


async def run_loop(planner: ScriptedPlanner, tools: BoundTools, settings: AgentSettings) -> Ended:
    state = LoopState([Message("user", "q")], 1)
    records = [record async for group in execute(state, settings, planner, tools, new_id=new_id) for record in group]
    end = records[-1]
    assert isinstance(end, Finished | Failed)
    return Ended(records, end, state)
