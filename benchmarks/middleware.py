"""Middleware that does nothing, in process: what each of its hooks adds to a run, in Python sync and async.

The same run as in `loop`, without and with a middleware of which every hook is overridden: a step has a call of the
model and one of a tool, and so two hooks around and two between. Times are of CPU.
"""

import statistics
import time
from collections.abc import Mapping
from typing import cast

import uvloop

from app.agent.executor import execute
from app.agent.middleware import NO_HOOKS, Hooks
from app.agent.planners import ToolCallingPlanner
from app.agent.ports import ModelCall
from app.agent.records import Finished
from app.agent.settings import AgentSettings
from app.agent.state import LoopState
from app.agent.trimming import CountTokens, estimate_tokens
from app.core.ids import new_id
from app.core.messages import Message
from app.core.principal import Principal
from app.models.scripted import ScriptedModel
from app.runs.live_view import LiveView
from app.runs.middleware.api import CallModel, CallTool, Middleware, MiddlewareContext, ToolRequest, ToolResult
from app.runs.middleware.kinds import Scope
from app.runs.middleware.registry import MiddlewareSet
from app.runs.records import RunRecord
from app.tools.plugins import PluginSet
from app.tools.runner import BoundTools, ToolRunContext
from benchmarks.loop import Script, script_of
from benchmarks.options import Options
from benchmarks.plugin import lookup
from benchmarks.report import Report
from runwire import ModelAnswer, ModelRequest

STEPS = 200
State = Mapping[str, object]


class Between(Middleware):
    """Hooks between the calls only."""

    name = "between"

    async def before_model(self, state: State, context: MiddlewareContext) -> None:
        return None

    async def after_model(self, state: State, context: MiddlewareContext) -> None:
        return None


class BetweenSync(Middleware):
    name = "between_sync"

    def before_model(self, state: State, context: MiddlewareContext) -> None:
        return None

    def after_model(self, state: State, context: MiddlewareContext) -> None:
        return None


class AroundTool(Middleware):
    name = "around_tool"

    async def wrap_tool_call(self, request: ToolRequest, call_next: CallTool, context: MiddlewareContext) -> ToolResult:
        return await call_next(request)


class AroundModel(Middleware):
    name = "around_model"

    async def wrap_model_call(
        self, request: ModelRequest, call_next: CallModel, context: MiddlewareContext
    ) -> ModelAnswer:
        return await call_next(request)


KINDS = (Between(), BetweenSync(), AroundTool(), AroundModel())
CALLS = {"between": 2, "between_sync": 2, "around_tool": 1, "around_model": 1}
"""Of each a step."""


async def run_once(plugins: PluginSet, script: Script, middleware: MiddlewareSet, names: list[str]) -> None:
    settings = AgentSettings(max_iterations=None)
    tool = plugins.get("lookup")
    assert tool is not None
    principal = Principal("default", "bench")
    tools = BoundTools(
        {"lookup": tool},
        ToolRunContext(principal=principal, run_id="run", thread_id="thread", record_dispatch=_unrecorded),
    )
    view = LiveView(lambda event, data: False)
    run = cast("RunRecord", _Run())
    scope = Scope(
        run=run, principal=principal, settings=settings, view=view, tools=tools,
        model=_no_model, count_tokens=_no_tokens,
    )  # fmt: skip
    pins: list[dict[str, object]] = [{"name": name, "label": name, "config": {}} for name in names]
    hooks: Hooks = await middleware.bind(pins, scope) if names else NO_HOOKS
    planner = ToolCallingPlanner(settings, hooks.model(ScriptedModel(script).stream), tools.definitions)
    state = view.state = LoopState([Message("user", "Look up x.")], 1)
    last: object = None
    async for records in execute(state, settings, planner, hooks.tools(tools), new_id=new_id, hooks=hooks):
        last = records[-1]
    assert isinstance(last, Finished)


class _Run:
    """What middleware asks of a run."""

    id = thread_id = "run"
    agent = None
    context: Mapping[str, object] = {}


async def _unrecorded(*_: object) -> None:  # pyright: ignore[reportUnusedParameter]
    """Nothing is journaled: the loop is measured, not the storage."""


async def _no_model(_: Mapping[str, object]) -> ModelCall:
    raise AssertionError("there is no other model here")


async def _no_tokens() -> CountTokens:
    return estimate_tokens


async def measure(options: Options) -> Report:
    plugins, middleware = PluginSet([lookup]), MiddlewareSet((), KINDS)
    script = script_of(STEPS)
    figures: dict[str, list[float]] = {name: [] for name in ("", *CALLS)}
    await run_once(plugins, script, middleware, list(CALLS))
    for _ in range(options.rounds):
        for name, values in figures.items():
            begun = time.process_time()
            for _ in range(3):
                await run_once(plugins, script, middleware, [name] if name else [])
            values.append((time.process_time() - begun) / 3)
    plugins.close()
    report = Report("middleware: hooks that do nothing")
    for name, times in CALLS.items():
        more = statistics.median(
            (with_it - without) / (STEPS * times) for with_it, without in zip(figures[name], figures[""], strict=True)
        )
        report.at_most(f"a call of {name}", more * 1e6, 10, "µs")
    return report


def run(options: Options) -> Report:
    return uvloop.run(measure(options))
