"""Text agents in process: a react run of 1,000 steps whose model sees the last ten, and one that sees them all.

With trimming a step at the end must cost what a step at the beginning does. Without it the prompt itself grows, and copying
it is all that may grow with it. The model's side is measured as far as the request's bytes. Times are of CPU.
"""

import statistics
import time
from collections.abc import AsyncGenerator
from itertools import pairwise

import uvloop

from app.agent.executor import execute
from app.agent.ports import Delta, ModelAnswer, ModelRequest, TextDelta
from app.agent.records import Finished
from app.agent.settings import AgentSettings
from app.agent.state import LoopState
from app.agent.text_formats import text_format
from app.agent.text_planner import TextPlanner
from app.agent.trimming import Trimmer
from app.core.ids import new_id
from app.core.messages import Message
from app.core.principal import Principal
from app.models.openai_wire import encode_request
from app.tools.plugins import PluginSet
from app.tools.runner import BoundTools, ToolRunContext
from benchmarks.options import Options
from benchmarks.plugin import lookup
from benchmarks.report import Report

STEPS = 1000
EDGE = 200
"""Steps at each end that are compared."""


class _Speaker:
    """A model that answers at once, and notes the time at each question."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.last_request = 0

    async def __call__(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]:
        self.last_request = len(encode_request("m", request, {}))
        self.asked.append(time.process_time())
        step = request.call_index
        text = f"Thought: on\nAction: lookup\nAction Input: {step}" if step < STEPS else "Final Answer: It is 42."
        for at in range(0, len(text), 16):
            yield TextDelta(text[at : at + 16])
        yield ModelAnswer(text)


async def _unrecorded(*_: object) -> None:
    """Nothing is journaled: the loop is measured, not the storage."""


async def run_once(plugins: PluginSet, trim: int) -> _Speaker:
    settings = AgentSettings(type="react", max_iterations=None, trim_intermediate_steps=trim)
    tool = plugins.get("lookup")
    assert tool is not None
    context = ToolRunContext(
        principal=Principal("default", "bench"), run_id="run", thread_id="thread", record_dispatch=_unrecorded
    )
    tools = BoundTools({"lookup": tool}, context)
    model = _Speaker()
    planner = TextPlanner(settings, model, text_format(settings, tools.definitions, {}), Trimmer(trim))
    last: object = None
    async for records in execute(
        LoopState([Message("user", "Look up x.")], 1), settings, planner, tools, new_id=new_id
    ):
        last = records[-1]
    assert isinstance(last, Finished)
    assert last.finish.return_values == {"output": "It is 42."}
    return model


async def measure(options: Options) -> Report:
    plugins = PluginSet([lookup])
    await run_once(plugins, 10)
    steps: list[float] = []
    ratios: list[float] = []
    whole: list[float] = []
    size = 0
    for _ in range(options.rounds):
        asked = (await run_once(plugins, 10)).asked
        # The first ten steps, whose prompts still grow, are left out; medians, for the collector runs now and then.
        gaps = [later - earlier for earlier, later in pairwise(asked[10:])]
        ratios.append(statistics.median(gaps[-EDGE:]) / statistics.median(gaps[:EDGE]))
        steps.append((asked[-1] - asked[0]) / STEPS)
        model = await run_once(plugins, -1)
        whole.append(model.asked[-1] - model.asked[0])
        size = model.last_request
    plugins.close()
    report = Report("text_agents: a react run of 1,000 steps in process")
    report.at_most("a step, the last ten shown", statistics.median(steps) * 1e6, 250, "µs")
    report.at_most("a step at the end : at the beginning", statistics.median(ratios), 1.25, "x")
    report.add("the same run, all steps shown", f"{statistics.median(whole) * 1e3:.0f} ms")
    report.add("its last request", f"{size / 1024:.0f} KB")
    return report


def run(options: Options) -> Report:
    return uvloop.run(measure(options))
