"""Assembling a run's loop from its pinned spec: settings, planner, model and tools."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, cast

from app.agent.answer_planner import AnswerPlanner, asking, offering
from app.agent.middleware import NO_HOOKS, Hooks
from app.agent.planners import ToolCallingPlanner
from app.agent.plugin_planner import PluginPlanner
from app.agent.ports import (
    ChatModel,
    Delta,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    Planner,
    ToolDefinition,
    Turn,
)
from app.agent.settings import AgentSettings
from app.agent.state import LoopState
from app.agent.state_schema import NO_FIELDS, StateSchema
from app.agent.text_formats import TEXT_TYPES, text_format
from app.agent.text_planner import TextPlanner
from app.agent.trimming import CountTokens, KeepTokens, Trimmer, estimate_tokens, trim_of
from app.core.errors import ModelError, PluginFailed, RunwireError
from app.core.ids import IdFactory
from app.core.messages import Message
from app.core.principal import Principal
from app.core.values import immutable
from app.runs.answers import AnswerSchemas
from app.runs.inputs import prompt_inputs
from app.runs.live_view import LiveView
from app.runs.loop_plugins import LoopPlugins, plugin_failure
from app.runs.middleware.kinds import Scope
from app.runs.middleware.registry import MiddlewareSet, Pin
from app.runs.records import CallRecord, RunRecord
from app.runs.state_fields import StateFields
from app.tools.approval import ApprovalRule, rule_of
from app.tools.dispatch import Dispatch, RecordDispatch
from app.tools.run_view import OUTSIDE, RunView
from app.tools.runner import BoundTools, ToolRunContext


class ModelBuilder(Protocol):
    """What makes a model client of a pinned model, and counts its tokens (`app.models`)."""

    async def build(self, tenant: str, pinned: dict[str, object]) -> ChatModel: ...

    async def token_counter(self, pinned: Mapping[str, object]) -> CountTokens: ...


class ToolBinder(Protocol):
    """What makes a run's tools of its pins (`app.tools`)."""

    async def bind(self, pins: Sequence[Mapping[str, object]], run: ToolRunContext) -> BoundTools: ...


@immutable
class LoopParts:
    settings: AgentSettings
    planner: Planner
    tools: BoundTools
    schema: StateSchema = NO_FIELDS
    hooks: Hooks = NO_HOOKS
    """Around the model already, in `planner`; around the tools not yet, which an observer may want to see bare."""


class LoopAssembler:
    def __init__(
        self,
        models: ModelBuilder,
        tools: ToolBinder,
        new_id: IdFactory,
        plugins: LoopPlugins | None = None,
        call: Callable[[str], Awaitable[CallRecord | None]] | None = None,
        middleware: MiddlewareSet | None = None,
    ) -> None:
        """`call`: a call's row by its id, where tools may call back."""
        self._models = models
        self._tools = tools
        self._new_id = new_id
        self._plugins = plugins or LoopPlugins()
        self._fields = StateFields(self._plugins)
        self._answers = AnswerSchemas()
        self._call = call
        self._middleware = middleware or MiddlewareSet()

    async def assemble(
        self,
        run: RunRecord,
        record_dispatch: RecordDispatch,
        around_model: Callable[[ModelCall], ModelCall],
        view: RunView = OUTSIDE,
    ) -> LoopParts:
        """`around_model` wraps the calls of the run's model. Raises `ModelError`, `InvalidRequest` when what was pinned can no longer be built (a secret is gone)."""
        settings = self._answering(run, self._settings(run))
        pinned = cast("dict[str, object]", run.spec["model"])
        model = await self._models.build(run.tenant, pinned)
        tools = await self._bind(run, settings, record_dispatch, view)
        trimmer = await self._trimmer(settings, pinned)
        call = around_model(model.stream)
        hooks = NO_HOOKS
        if "middleware" in run.spec:
            hooks = await self._hooks(run, settings, tools, view, around_model)
            call = hooks.model(call)
        planner = self._planner(run, settings, call, tools.definitions, trimmer)
        return LoopParts(settings, planner, tools, self._fields.of(cast("dict[str, object]", run.spec["agent"])), hooks)

    async def _hooks(
        self,
        run: RunRecord,
        settings: AgentSettings,
        tools: BoundTools,
        view: RunView,
        around_model: Callable[[ModelCall], ModelCall],
    ) -> Hooks:
        async def model(pinned: Mapping[str, object]) -> ModelCall:
            return around_model((await self._models.build(run.tenant, dict(pinned))).stream)

        async def count_tokens() -> CountTokens:
            return await self._models.token_counter(cast("dict[str, object]", run.spec["model"]))

        scope = Scope(
            run=run,
            principal=principal_of(run),
            settings=settings,
            view=view,
            tools=tools,
            model=model,
            count_tokens=count_tokens,
        )
        return await self._middleware.bind(cast("Sequence[Pin]", run.spec["middleware"]), scope)

    async def context(self, run: RunRecord, state: LoopState) -> Sequence[Message]:
        """What the next model call of a run would see. Raises `InvalidRequest` as `assemble`.

        A plugin that fails or is gone leaves what it would have trimmed: a run can be read whatever became of its plugins.
        """
        settings = self._answering(run, settings_of(run))
        turn = Turn(state.messages, state.before, state.rounds, state.iteration + 1, self._new_id)
        shown: Sequence[Message] = state.messages
        tools = await self._bind(run, settings, _no_dispatch)
        if settings.type == "tool_calling" or settings.type in TEXT_TYPES:
            try:
                trimmer = await self._trimmer(settings, cast("dict[str, object]", run.spec["model"]))
                shown = self._planner(run, settings, _no_model, tools.definitions, trimmer).messages(turn)
            except PluginFailed:
                shown = self._planner(run, settings, _no_model, tools.definitions, Trimmer()).messages(turn)
        if settings.type in TEXT_TYPES:
            shown = [*shown, *_ending(state)]
        if "middleware" in run.spec:
            view = LiveView(lambda event, data: False)
            view.state = state
            with suppress(RunwireError):
                for show in (await self._hooks(run, settings, tools, view, lambda call: call)).shows:
                    shown = show(shown)
        return [_as_shown(message) for message in shown]

    async def judge(self, run: RunRecord) -> BoundTools:
        """The run's tools as it pinned them, to judge answers by."""
        return await self._bind(run, settings_of(run), _no_dispatch)

    def _answering(self, run: RunRecord, settings: AgentSettings) -> AgentSettings:
        agent = cast("dict[str, object]", run.spec["agent"])
        if agent.get("output_schema") is None:
            return settings
        tools = cast("list[dict[str, object]]", run.spec["tools"])
        return replace(settings, answer=self._answers.of(agent, [str(tool["name"]) for tool in tools]))

    def _settings(self, run: RunRecord) -> AgentSettings:
        settings = settings_of(run)
        handling = cast("dict[str, object]", run.spec["agent"]).get("handle_parsing_errors")
        if not isinstance(handling, dict):
            return settings
        name = str(cast("dict[str, object]", handling)["plugin"])
        policy = self._plugins.parse_policy(name)
        if policy is None:
            raise plugin_failure(name, "this server does not have it any more")
        return replace(settings, handle_parsing_errors=policy)

    async def _bind(
        self, run: RunRecord, settings: AgentSettings, record_dispatch: RecordDispatch, view: RunView = OUTSIDE
    ) -> BoundTools:
        bound = await self._tools.bind(
            cast("list[dict[str, object]]", run.spec["tools"]),
            ToolRunContext(
                principal=principal_of(run),
                run_id=run.id,
                thread_id=run.thread_id,
                agent=run.agent,
                context=run.context,
                handle_tool_errors=settings.handle_tool_errors,
                new_id=self._new_id,
                record_dispatch=record_dispatch,
                approvals=_approvals(settings.interrupt_on),
                late_result=self._late_result,
                view=view,
            ),
        )
        return bound if settings.answer_tool is None or settings.answer is None else bound.answering(settings.answer)

    async def _late_result(self, tool_call_id: str) -> Mapping[str, object] | None:
        record = None if self._call is None else await self._call(tool_call_id)
        return None if record is None else record.late_result

    async def _trimmer(self, settings: AgentSettings, pinned: Mapping[str, object]) -> Trimmer:
        setting = settings.trim_intermediate_steps
        if isinstance(setting, int):
            return Trimmer(setting)
        chooser = None
        if "plugin" in setting:
            name = str(setting["plugin"])
            chooser = self._plugins.chooser(name)
            if chooser is None:
                raise plugin_failure(name, "this server does not have it any more")
        trim = trim_of(setting, chooser)
        return Trimmer(
            trim, await self._models.token_counter(pinned) if isinstance(trim, KeepTokens) else estimate_tokens
        )

    def _planner(
        self,
        run: RunRecord,
        settings: AgentSettings,
        call_model: ModelCall,
        tools: Sequence[ToolDefinition],
        trimmer: Trimmer,
    ) -> Planner:
        answer = settings.answer
        if answer is not None:
            within = replace(offering(answer, settings), answer=None)
            inner = self._planner(run, within, asking(answer, call_model), tools, trimmer)
            return AnswerPlanner(inner, answer, settings, call_model)
        kind = settings.type
        if kind == "tool_calling":
            return ToolCallingPlanner(settings, call_model, tools, trimmer)
        inputs = prompt_inputs(cast("str | dict[str, object]", run.input))
        if kind in TEXT_TYPES:
            return TextPlanner(settings, call_model, text_format(settings, tools, inputs), trimmer)
        plugin = self._plugins.planner(kind)
        if plugin is None:
            raise plugin_failure(kind, "this server does not have it any more")
        return PluginPlanner(plugin, settings, call_model, tools, inputs, trimmer, plugin_failure)


def _approvals(interrupt_on: Mapping[str, object]) -> dict[str, list[ApprovalRule]]:
    rules = {name: rule_of(setting) for name, setting in interrupt_on.items()}
    return {name: [rule] for name, rule in rules.items() if rule is not None}


def _ending(state: LoopState) -> Sequence[Message]:
    """What follows the run's last step: its answer, which is no part of a prompt."""
    after = state.messages[state.before :]
    if state.rounds:
        last = state.rounds[-1].shown[-1]
        after = after[next(at for at, message in enumerate(after) if message is last) + 1 :]
    return () if state.open_calls else after


def _as_shown(message: Message) -> Message:
    """A text agent's observation without the id by which recovery finds it: no model is shown that."""
    if message.tool_call_id is None or message.role == "tool":
        return message
    return replace(message, tool_call_id=None, wire={})


def settings_of(run: RunRecord) -> AgentSettings:
    return AgentSettings.from_json(cast("dict[str, object]", run.spec["agent"]))


def principal_of(run: RunRecord) -> Principal:
    return Principal(run.tenant, run.subject, None if run.scopes is None else frozenset(run.scopes))


async def _no_dispatch(_: Dispatch, /) -> None:
    """Nothing is dispatched where only the context is asked for."""


async def _no_model(_: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]:
    raise ModelError("There is no model here.", code="model_unavailable")
    yield  # makes it a generator
