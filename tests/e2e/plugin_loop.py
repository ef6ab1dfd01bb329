"""Planners, parse policies, trimmers and tools of the text agents' tests, which the test servers load as a plugin."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, cast

from runwire import (
    AgentAction,
    AgentFinish,
    AgentStep,
    ModelError,
    OutputParserException,
    PlannerContext,
    parsing_error_handler,
    planner,
    step_trimmer,
    tool,
)

SECRET = "detail-for-the-log-only-8151"


# --- tools of the cases: one text in, `name:text` out -----------------------------------------------------------------


@tool(effect="pure")
async def search(x: str) -> str:
    """search"""
    return f"search:{x}"


@tool(effect="pure")
async def calc(x: str) -> str:
    """calc"""
    return f"calc:{x}"


@tool(effect="pure")
async def a(x: str) -> str:
    """a"""
    return f"a:{x}"


@tool(effect="pure")
async def d(x: str) -> dict[str, object]:
    """d"""
    return {"k": "值", "n": None}


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """add"""
    return a + b


@tool(effect="pure")
async def double(number: int) -> int:
    """double"""
    return number * 2


@tool(effect="pure")
async def ping() -> str:
    """ping"""
    return "pong"


# --- planners ---------------------------------------------------------------------------------------------------------


@planner("search_once", allowed_tools=["search"])
async def search_once(steps: Sequence[AgentStep], context: PlannerContext) -> AgentAction | AgentFinish:
    """Searches for the input, then answers with what was found."""
    if steps:
        return AgentFinish({"output": f"found {steps[-1].observation}"}, "done")
    return AgentAction("search", str(context.inputs["input"]), "I search")


@planner("pair")
async def pair(steps: Sequence[AgentStep], context: PlannerContext) -> list[AgentAction]:
    """Two actions each round, undeclared."""
    return [AgentAction("a", "1"), AgentAction("a", "2")]


@planner("pair_declared", multi_action=True)
async def pair_declared(steps: Sequence[AgentStep], context: PlannerContext) -> list[AgentAction]:
    """Two actions each round."""
    return [AgentAction("a", "1"), AgentAction("a", "2")]


@planner("asks")
async def asks(steps: Sequence[AgentStep], context: PlannerContext) -> AgentFinish:
    """Gives the model's words back, with what it knows of its run."""
    answer = await context.model(f"{context.instructions}: {context.inputs['input']}", stop=["END"])
    facts = f"{context.iteration} {[item.name for item in context.tools]} {len(context.messages)}"
    return AgentFinish({"output": f"{answer.content} ({facts})"}, answer.content)


@planner("answer_key")
async def answer_key(steps: Sequence[AgentStep], context: PlannerContext) -> AgentAction | AgentFinish:
    """Finishes under another key than `output`."""
    return AgentFinish({"answer": "D"})


@planner("cannot_parse")
async def cannot_parse(steps: Sequence[AgentStep], context: PlannerContext) -> AgentFinish:
    """Reads nothing at first."""
    if not steps:
        raise OutputParserException("no decision in it", observation="try again", llm_output="hm", send_to_llm=True)
    return AgentFinish({"output": f"{steps[-1].action.tool} {steps[-1].observation}"})


@planner("breaks")
async def breaks(steps: Sequence[AgentStep], context: PlannerContext) -> AgentFinish:
    """Fails in the way that the input names."""
    kind = str(context.inputs["input"])
    if kind == "raises":
        raise RuntimeError(SECRET)
    if kind == "exits":
        raise SystemExit(SECRET)
    if kind == "cancels itself":
        raise asyncio.CancelledError(SECRET)
    if kind == "asks twice":
        await context.model("1")
        await context.model("2")
    if kind == "asks twice at once":
        await asyncio.gather(context.model("1"), context.model("2"))
    return cast("Any", NONSENSE)[kind]


NONSENSE: dict[str, object] = {
    "gives nothing": None,
    "gives text": "text",
    "gives a list of text": ["x"],
    "gives a finish of text": AgentFinish(cast("Any", "text")),
    "gives a finish of a list": AgentFinish(cast("Any", ["output"])),
    "gives a finish of nothing": AgentFinish(cast("Any", None)),
    "gives a finish of an object": AgentFinish({"output": object()}),
    "gives a finish of a surrogate": AgentFinish({"output": "\ud800"}),
    "gives a finish of U+0000": AgentFinish({"output": "\x00"}),
    "gives a number as tool": AgentAction(cast("Any", 7), "x"),
    "gives a list as input": AgentAction("a", cast("Any", ["x"])),
    "gives bytes as log": AgentAction("a", "x", cast("Any", b"x")),
}

BROKEN = ("raises", "exits", "cancels itself", *NONSENSE)


@planner("hangs")
async def hangs(steps: Sequence[AgentStep], context: PlannerContext) -> AgentFinish:
    """Never decides."""
    await asyncio.Event().wait()
    return AgentFinish({"output": "never"})


@planner("stubborn")
async def stubborn(steps: Sequence[AgentStep], context: PlannerContext) -> AgentFinish:
    """Never decides, and takes no cancellation for an answer."""
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@planner("persistent")
async def persistent(steps: Sequence[AgentStep], context: PlannerContext) -> AgentFinish:
    """Asks its model again when it failed."""
    for _ in range(3):
        with contextlib.suppress(ModelError):
            return AgentFinish({"output": (await context.model("try")).content})
    return AgentFinish({"output": "it failed"})


# --- parse policies ---------------------------------------------------------------------------------------------------


@parsing_error_handler("polite")
def polite(error: OutputParserException) -> str:
    """Words of its own."""
    return f"Please use the format: {str(error)[:20]}"


@parsing_error_handler("polite_async")
async def polite_async(error: OutputParserException) -> str:
    """Words of its own, after a while."""
    await asyncio.sleep(0)
    return f"said {error.llm_output!r}"


@parsing_error_handler("policy_raises")
def policy_raises(error: OutputParserException) -> str:
    """Fails."""
    raise ValueError(SECRET)


@parsing_error_handler("policy_exits")
def policy_exits(error: OutputParserException) -> str:
    """Ends the process, if it is let."""
    raise SystemExit(SECRET)


@parsing_error_handler("policy_cancels")
async def policy_cancels(error: OutputParserException) -> str:
    """Cancels itself."""
    raise asyncio.CancelledError(SECRET)


@parsing_error_handler("policy_dict")
def policy_dict(error: OutputParserException) -> str:
    """Gives no text."""
    return cast("Any", {"a": 1})


@parsing_error_handler("policy_hangs")
async def policy_hangs(error: OutputParserException) -> str:
    """Never answers."""
    await asyncio.Event().wait()
    return "never"


# --- trimmers ---------------------------------------------------------------------------------------------------------


@step_trimmer("odd_steps")
def odd_steps(steps: Sequence[AgentStep]) -> Sequence[AgentStep]:
    """The first, the third, … step."""
    return steps[::2]


@step_trimmer("trim_raises")
def trim_raises(steps: Sequence[AgentStep]) -> Sequence[AgentStep]:
    """Fails with an error that a look-up in a dict gives, too."""
    raise KeyError(SECRET)


@step_trimmer("trim_exits")
def trim_exits(steps: Sequence[AgentStep]) -> Sequence[AgentStep]:
    """Ends the process, if it is let."""
    raise SystemExit(SECRET)


@step_trimmer("trim_nothing")
def trim_nothing(steps: Sequence[AgentStep]) -> Sequence[AgentStep]:
    """Gives no list."""
    return cast("Any", None)


@step_trimmer("trim_invents")
def trim_invents(steps: Sequence[AgentStep]) -> Sequence[AgentStep]:
    """Gives a step that it was not given."""
    return [AgentStep(AgentAction("a", "x"), "invented")]
