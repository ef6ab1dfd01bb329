"""The set of loop plugins: planners, parse policies and step trimmers in Python, behind a wall that their faults do not pass."""

import asyncio
import inspect
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

import structlog

from app.agent.parse_policy import ParsePolicy
from app.agent.plugin_api import (
    OutputParserException,
    ParsingErrorPlugin,
    PlannerPlugin,
    ReducerFunction,
    ReducerPlugin,
    TrimPlugin,
)
from app.agent.plugin_planner import being_cancelled
from app.agent.ports import ParseError
from app.agent.state_schema import ABSENT, REDUCERS, own_copy
from app.agent.trimming import ChooseSteps, StepResult
from app.core.actions import AgentStep
from app.core.errors import PluginFailed
from app.core.ids import NAME_PATTERN, new_id
from app.core.leash import leashed
from app.core.plugins import PluginError, load_plugins
from app.runs.spec import AGENT_TYPES

ENTRY_POINT_GROUPS = {
    PlannerPlugin: "runwire.planners",
    ParsingErrorPlugin: "runwire.parsing_error_handlers",
    TrimPlugin: "runwire.step_trimmers",
    ReducerPlugin: "runwire.reducers",
}

LoopPlugin = PlannerPlugin | ParsingErrorPlugin | TrimPlugin | ReducerPlugin
KindT = TypeVar("KindT", PlannerPlugin, ParsingErrorPlugin, TrimPlugin, ReducerPlugin)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class LoopPlugins:
    """By kind and name. Made once, at start-up."""

    def __init__(self, plugins: Iterable[LoopPlugin] = ()) -> None:
        """Raises `PluginError`: a wrong name, a built-in agent type's name, two of one kind and name."""
        self._plugins: dict[tuple[type[LoopPlugin], str], LoopPlugin] = {}
        for plugin in plugins:
            if not isinstance(plugin.name, str) or not re.fullmatch(NAME_PATTERN, plugin.name):
                raise PluginError(f"Plugin {plugin.name!r}: a name must match {NAME_PATTERN}.")
            if isinstance(plugin, PlannerPlugin) and plugin.name in AGENT_TYPES:
                raise PluginError(
                    f"Plugin planner {plugin.name!r}: this is an agent type of the server's own; rename it."
                )
            if isinstance(plugin, ReducerPlugin) and plugin.name in REDUCERS:
                raise PluginError(f"Plugin reducer {plugin.name!r}: this is a reducer of the server's own; rename it.")
            key = type(plugin), plugin.name
            if key in self._plugins:
                raise PluginError(f"There are two plugins of one kind named {plugin.name!r}; rename one.")
            self._plugins[key] = plugin

    @classmethod
    def load(cls, names: Sequence[str] = (), *, entry_points: bool = True) -> "LoopPlugins":
        """From `module[:attr]` names, then the entry points of each kind's group. Raises `PluginError`."""
        found: list[LoopPlugin] = []
        for kind, group in ENTRY_POINT_GROUPS.items():
            found += load_plugins(kind, names, group if entry_points else None)
        return cls(found)

    def names(self, kind: type[LoopPlugin]) -> list[str]:
        """In name order."""
        return sorted(name for found, name in self._plugins if found is kind)

    def planner(self, name: str) -> PlannerPlugin | None:
        return self._find(PlannerPlugin, name)

    def parse_policy(self, name: str) -> ParsePolicy | None:
        plugin = self._find(ParsingErrorPlugin, name)
        if plugin is None:
            return None

        async def handle(error: ParseError) -> str:
            said = OutputParserException(
                error.message, error.observation, error.llm_output, send_to_llm=error.send_to_llm
            )
            try:
                told: object = plugin.function(said)
                if inspect.isawaitable(told):
                    told = await leashed(told, "parsing error handler", name)
            except asyncio.CancelledError as failed:
                if being_cancelled():
                    raise
                raise plugin_failure(name, failed) from None
            except (Exception, SystemExit) as failed:  # noqa: BLE001  (the named boundary: foreign code behind it)
                raise plugin_failure(name, failed) from None
            if not isinstance(told, str):
                raise plugin_failure(name, "it must give text: what the model reads")
            return told.encode(errors="replace").decode().replace("\x00", "\ufffd")

        return handle

    def chooser(self, name: str) -> ChooseSteps | None:
        plugin = self._find(TrimPlugin, name)
        if plugin is None:
            return None

        def choose(results: Sequence[StepResult]) -> Sequence[int]:
            steps = [AgentStep(call.action, outcome.observation) for call, outcome in results]
            numbers = {id(step): call.step for step, (call, _) in zip(steps, results, strict=True)}
            try:
                chosen = [id(step) for step in plugin.function(tuple(steps))]
            except asyncio.CancelledError as failed:  # raised by the function: nothing awaits here
                raise plugin_failure(name, failed) from None
            except (Exception, SystemExit) as failed:  # noqa: BLE001  (the named boundary: foreign code behind it)
                raise plugin_failure(name, failed) from None
            if not numbers.keys() >= set(chosen):
                raise plugin_failure(name, "it must give back some of the steps that it was given")
            return [numbers[step] for step in chosen]

        return choose

    def reducer(self, name: str) -> ReducerFunction | None:
        """Raises `ValueError` where it does not take an update: what the caller, or the tool's step, is told."""
        plugin = self._find(ReducerPlugin, name)
        if plugin is None:
            return None

        def reduce(old: object, update: object) -> object:
            try:
                return own_copy(plugin.function(None if old is ABSENT else own_copy(old), own_copy(update)))
            except ValueError:
                raise
            except (Exception, SystemExit, asyncio.CancelledError) as failed:
                raise ValueError(plugin_failure(name, failed).message) from failed

        return reduce

    def _find(self, kind: type[KindT], name: str) -> KindT | None:
        found = self._plugins.get((kind, name))
        return found if isinstance(found, kind) else None


def plugin_failure(name: str, error: BaseException | str) -> PluginFailed:
    """The error that ends the run: a general sentence and a request id. An exception's text is in the log only."""
    request_id = new_id()
    if isinstance(error, str):
        return PluginFailed(f"The plugin `{name}` broke its contract: {error}.")
    _log.error("plugin_failed", plugin=name, request_id=request_id, exc_info=error)
    return PluginFailed(f"The plugin `{name}` failed. (request {request_id})", request_id=request_id)
