"""Assembling a run's loop from its pinned spec: settings, planner, model and tools."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol, cast

from app.agent.planners import ToolCallingPlanner
from app.agent.ports import (
    ChatModel,
    CutReason,
    Delta,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    PlannedCall,
    Planner,
    ToolDefinition,
    ToolOutcome,
    ToolRunner,
)
from app.agent.settings import AgentSettings
from app.agent.trimming import Trimmer, trim_of
from app.core.errors import ModelError
from app.core.ids import IdFactory
from app.core.principal import Principal
from app.core.values import immutable
from app.runs.records import RunRecord
from app.tools.runner import BoundTools, ToolRunContext

RecordDispatch = Callable[[str, int, str, bool], Awaitable[None]]


class ModelBuilder(Protocol):
    """What makes a model client of a pinned model (`app.models`)."""

    async def build(self, tenant: str, pinned: dict[str, object]) -> ChatModel: ...


class ToolBinder(Protocol):
    """What makes a run's tools of its pins (`app.tools`)."""

    async def bind(self, pins: Sequence[Mapping[str, object]], run: ToolRunContext) -> BoundTools: ...


@immutable
class LoopParts:
    settings: AgentSettings
    planner: Planner
    tools: BoundTools


class LoopAssembler:
    def __init__(self, models: ModelBuilder, tools: ToolBinder, new_id: IdFactory) -> None:
        self._models = models
        self._tools = tools
        self._new_id = new_id

    async def assemble(
        self, run: RunRecord, record_dispatch: RecordDispatch, around_model: Callable[[ModelCall], ModelCall]
    ) -> LoopParts:
        """`around_model` wraps the calls of the run's model. Raises `ModelError`, `InvalidRequest` when what was pinned can no longer be built (a secret is gone)."""
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
        return LoopParts(
            settings,
            ToolCallingPlanner(
                settings,
                around_model(model.stream),
                tools.definitions,
                Trimmer(trim_of(settings.trim_intermediate_steps)),
            ),
            tools,
        )


def settings_of(run: RunRecord) -> AgentSettings:
    return AgentSettings.from_json(cast("dict[str, object]", run.spec["agent"]))


def principal_of(run: RunRecord) -> Principal:
    return Principal(run.tenant, run.subject, None if run.scopes is None else frozenset(run.scopes))


class _LostTools:
    """Stands in for tools that cannot be built any more: it only says so, honestly."""

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        return ()

    async def run(self, call: PlannedCall, *, sent_before: int = 0) -> ToolOutcome:
        return self.cut(call, "lost")

    def cut(self, call: PlannedCall, reason: CutReason) -> ToolOutcome:
        name = call.action.tool
        if reason != "lost":
            return ToolOutcome("cancelled", f"{name} was cancelled before it was sent; it did nothing.")
        return ToolOutcome(
            "unknown", f"What became of {name} is unknown. It may have taken effect or not: do not assume either."
        )


async def _no_model(_: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]:
    raise ModelError("The run's model cannot be built any more.", code="model_unavailable")
    yield  # makes it a generator


LOST_TOOLS: ToolRunner = _LostTools()
LOST_PLANNER: Planner = ToolCallingPlanner(AgentSettings(), _no_model, ())
