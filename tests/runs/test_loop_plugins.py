"""The set of loop plugins: what may be in it, and the wall around what they do."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import structlog.testing

from app.agent.plugin_api import (
    OutputParserException,
    ParsingErrorPlugin,
    PlannerPlugin,
    TrimPlugin,
    parsing_error_handler,
    planner,
    step_trimmer,
)
from app.agent.ports import ParseError, PlannedCall, ToolOutcome
from app.core.actions import AgentAction, AgentStep
from app.core.errors import PluginFailed
from app.core.plugins import PluginError
from app.runs.loop_plugins import LoopPlugins

pytestmark = pytest.mark.anyio

ERROR = ParseError("the parser's words", "the model's words", "the observation", send_to_llm=True)
RESULTS = [
    (PlannedCall(step, step, f"t{step}", AgentAction("a", str(step))), ToolOutcome("success", f"a:{step}"))
    for step in (1, 2, 3)
]


def policy(function: Callable[[Any], object]) -> Any:
    found = LoopPlugins([parsing_error_handler("p")(cast("Any", function))]).parse_policy("p")
    assert found is not None
    return found


def chooser(function: Callable[[Any], object]) -> Any:
    found = LoopPlugins([step_trimmer("t")(cast("Any", function))]).chooser("t")
    assert found is not None
    return found


def test_a_set_is_loaded_by_kind() -> None:
    found = LoopPlugins.load(["tests.e2e.plugin_loop"], entry_points=False)
    assert "search_once" in found.names(PlannerPlugin)
    assert "polite" in found.names(ParsingErrorPlugin)
    assert "odd_steps" in found.names(TrimPlugin)
    assert found.planner("polite") is None
    assert found.parse_policy("odd_steps") is None
    assert found.chooser("search_once") is None


def test_one_name_may_stand_for_one_plugin_of_each_kind() -> None:
    plugins = [parsing_error_handler("x")(str), step_trimmer("x")(lambda steps: steps)]
    assert LoopPlugins(plugins).names(TrimPlugin) == ["x"]
    with pytest.raises(PluginError, match="two plugins"):
        LoopPlugins([*plugins, step_trimmer("x")(lambda steps: steps)])


@pytest.mark.parametrize("name", ["", "a b", "1a", "ä", "x" * 65, "a\n", cast("Any", None)])
def test_a_name_that_cannot_be_addressed_is_refused(name: str) -> None:
    with pytest.raises(PluginError, match="must match"):
        LoopPlugins([step_trimmer(name)(lambda steps: steps)])


@pytest.mark.parametrize("name", ["react", "tool_calling", "self_ask"])
def test_a_planner_cannot_take_the_name_of_a_built_in_type(name: str) -> None:
    with pytest.raises(PluginError, match="agent type"):
        LoopPlugins([planner(name)(cast("Any", None))])


async def test_a_policy_is_given_langchains_exception() -> None:
    seen: list[OutputParserException] = []

    def words(error: OutputParserException) -> str:
        seen.append(error)
        return "words"

    assert await policy(words)(ERROR) == "words"
    (error,) = seen
    assert (str(error), error.llm_output, error.observation, error.send_to_llm) == (
        "the parser's words",
        "the model's words",
        "the observation",
        True,
    )


async def test_a_policys_text_is_one_that_can_be_kept() -> None:
    assert await policy(lambda _: "a\x00b\ud800c")(ERROR) == "a\ufffdb?c"


def raises(error: BaseException) -> Any:
    def function(_: object) -> object:
        raise error

    return function


FAULTS = [RuntimeError("secret-text"), KeyError("secret-text"), StopIteration("secret-text"), SystemExit("secret-text"),
          asyncio.CancelledError("secret-text"), TimeoutError("secret-text")]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
async def test_an_exceptions_text_is_in_the_log_alone(fault: BaseException) -> None:
    for call in (lambda: policy(raises(fault))(ERROR), lambda: _async(chooser(raises(fault)), RESULTS)):
        with structlog.testing.capture_logs() as logs, pytest.raises(PluginFailed) as caught:
            await call()
        assert "secret-text" not in str(caught.value)
        assert caught.value.request_id
        assert caught.value.request_id in caught.value.message
        (line,) = logs
        assert line["request_id"] == caught.value.request_id
        assert line["exc_info"] is fault


async def _async(function: Any, *given: object) -> object:
    return function(*given)


async def test_a_cancelled_policy_is_cancelled() -> None:
    async def hangs(_: object) -> str:
        await asyncio.Event().wait()
        return ""

    waiting = asyncio.create_task(policy(hangs)(ERROR))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_a_trimmer_chooses_by_the_steps_it_was_given() -> None:
    def last_and_first(steps: Sequence[AgentStep]) -> list[AgentStep]:
        assert [(step.action.tool_input, step.observation) for step in steps] == [
            ("1", "a:1"),
            ("2", "a:2"),
            ("3", "a:3"),
        ]
        return [steps[2], steps[0], steps[0]]

    assert set(chooser(last_and_first)(RESULTS)) == {1, 3}
    assert chooser(lambda steps: iter(()))(RESULTS) == []
    assert chooser(lambda steps: steps)([]) == []


@pytest.mark.parametrize("given", [None, 7, [None], ["x"], [AgentStep(AgentAction("a", "1"), "a:1")]])
def test_a_trimmer_that_gives_anything_else_fails(given: object) -> None:
    with pytest.raises(PluginFailed):
        chooser(lambda steps: given)(RESULTS)
