"""Assembling a run's loop from its pinned spec: settings, planner, model and tools."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from app.agent.planners import ToolCallingPlanner
from app.agent.ports import ChatModel, Planner
from app.agent.settings import AgentSettings
from app.core.ids import IdFactory
from app.core.principal import Principal
from app.runs.records import RunRecord
from app.tools.runner import BoundTools, ToolRunContext

RecordDispatch = Callable[[str, int, str, bool], Awaitable[None]]


class ModelBuilder(Protocol):
    """What makes a model client of a pinned model (`app.models`)."""

    async def build(self, tenant: str, pinned: dict[str, object]) -> ChatModel: ...


class ToolBinder(Protocol):
    """What makes a run's tools of its pins (`app.tools`)."""

    async def bind(self, pins: Sequence[Mapping[str, object]], run: ToolRunContext) -> BoundTools: ...


@dataclass(frozen=True, slots=True)
class LoopParts:
    settings: AgentSettings
    planner: Planner
    tools: BoundTools


class LoopAssembler:
    def __init__(self, models: ModelBuilder, tools: ToolBinder, new_id: IdFactory) -> None:
        self._models = models
        self._tools = tools
        self._new_id = new_id

    async def assemble(self, run: RunRecord, record_dispatch: RecordDispatch) -> LoopParts:
        """Raises `ModelError`, `InvalidRequest` when what was pinned can no longer be built (a secret is gone)."""
        spec = run.spec
        settings = settings_of(run)
        model = await self._models.build(run.tenant, cast("dict[str, object]", spec["model"]))
        tools = await self._tools.bind(
            cast("list[dict[str, object]]", spec["tools"]),
            ToolRunContext(
                principal=principal_of(run),
                run_id=run.id,
                thread_id=run.thread_id,
                context=run.context,
                handle_tool_errors=settings.handle_tool_errors,
                new_id=self._new_id,
                record_dispatch=record_dispatch,
            ),
        )
        return LoopParts(settings, ToolCallingPlanner(settings, model.stream, tools.definitions), tools)


def settings_of(run: RunRecord) -> AgentSettings:
    return AgentSettings.from_json(cast("dict[str, object]", run.spec["agent"]))


def principal_of(run: RunRecord) -> Principal:
    return Principal(run.tenant, run.subject, None if run.scopes is None else frozenset(run.scopes))
