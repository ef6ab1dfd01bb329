"""The agent loop alone, in process: planner, scripted model, one plugin tool, nothing journaled.

Beside it a bare Python loop that keeps the same conversation and calls the same function, which is the least any loop
could cost. Times are of CPU: the loop waits for nothing, and other processes of the machine should not count.
"""

import statistics
import time
from collections.abc import Mapping, Sequence

import uvloop

from app.agent.executor import execute
from app.agent.planners import ToolCallingPlanner
from app.agent.records import Finished
from app.agent.settings import AgentSettings
from app.agent.state import LoopState
from app.core.ids import new_id
from app.core.messages import Message
from app.core.principal import Principal
from app.models.scripted import ScriptedModel
from app.tools.dispatch import Dispatch
from app.tools.plugins import PluginSet
from app.tools.runner import BoundTools, ToolRunContext
from benchmarks.options import Options
from benchmarks.plugin import lookup
from benchmarks.report import Report

Script = Sequence[Mapping[str, object]]


def script_of(steps: int) -> Script:
    """`steps` rounds with one tool call each, then an answer."""
    rounds = [{"tool_calls": [{"id": f"call_{n}", "name": "lookup", "args": {"key": str(n)}}]} for n in range(steps)]
    return [*rounds, {"content": "It is 42."}]


async def _unrecorded(_: Dispatch, /) -> None:
    """Nothing is journaled: the loop is measured, not the storage."""


async def run_once(plugins: PluginSet, script: Script) -> None:
    settings = AgentSettings(max_iterations=None)
    tool = plugins.get("lookup")
    assert tool is not None
    context = ToolRunContext(
        principal=Principal("default", "bench"), run_id="run", thread_id="thread", record_dispatch=_unrecorded
    )
    tools = BoundTools({"lookup": tool}, context)
    planner = ToolCallingPlanner(settings, ScriptedModel(script).stream, tools.definitions)
    state = LoopState([Message("user", "Look up x.")], 1)
    last: object = None
    async for records in execute(state, settings, planner, tools, new_id=new_id):
        last = records[-1]
    assert isinstance(last, Finished)
    assert last.stop_reason == "finish"


async def bare_once(script: Script) -> None:
    """The same conversation by hand."""

    async def model(messages: list[dict[str, object]]) -> Mapping[str, object]:
        return script[len(messages) // 2]

    messages: list[dict[str, object]] = [{"role": "user", "content": "Look up x."}]
    while True:
        answer = await model(messages)
        messages.append({"role": "assistant", **answer})
        calls = answer.get("tool_calls")
        if not isinstance(calls, list):
            return
        for call in calls:  # pyright: ignore[reportUnknownVariableType]
            messages.append({"role": "tool", "content": await lookup(call["args"]["key"])})  # pyright: ignore[reportUnknownArgumentType]


async def measure(options: Options) -> Report:
    plugins = PluginSet([lookup])
    figures: dict[str, list[float]] = {name: [] for name in ("short", "bare", "200", "1000")}
    short, long, longer = script_of(1), script_of(200), script_of(1000)
    await run_once(plugins, long)
    for _ in range(options.rounds):
        for name, script, times in (("short", short, 300), ("200", long, 3), ("1000", longer, 1)):
            begun = time.process_time()
            for _ in range(times):
                await run_once(plugins, script)
            figures[name].append((time.process_time() - begun) / times)
        begun = time.process_time()
        for _ in range(300):
            await bare_once(short)
        figures["bare"].append((time.process_time() - begun) / 300)
    plugins.close()
    found = {name: statistics.median(values) for name, values in figures.items()}
    report = Report("loop: the agent loop in process")
    report.at_most("model + one tool + answer", found["short"] * 1e6, 150, "µs")
    report.add("the same by hand (bare Python)", f"{found['bare'] * 1e6:.1f} µs")
    report.at_most("run of 200 steps", found["200"] * 1e3, 30, "ms")
    report.add("run of 1,000 steps", f"{found['1000'] * 1e3:.1f} ms")
    linearity = statistics.median((b / 1000) / (a / 200) for a, b in zip(figures["200"], figures["1000"], strict=True))
    report.at_most("cost of a step, 1,000 steps : 200 steps", linearity, 1.25, "x")
    return report


def run(options: Options) -> Report:
    return uvloop.run(measure(options))
