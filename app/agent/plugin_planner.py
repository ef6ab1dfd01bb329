"""The plugin planner: a function in Python decides, and the loop takes only what it can use."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import cast

from app.agent.observing import told, told_text
from app.agent.planners import answered
from app.agent.plugin_api import OutputParserException, PlannerPlugin, PlannerResult
from app.agent.ports import (
    NO_TOKENS,
    Decision,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    ParseError,
    Piece,
    PlannedCall,
    ProposedAction,
    ToolCallDelta,
    ToolDefinition,
    ToolOutcome,
    Turn,
)
from app.agent.settings import AgentSettings
from app.agent.trimming import Trimmer
from app.core.actions import AgentAction, AgentFinish, AgentStep
from app.core.errors import InvalidRequest, RunwireError
from app.core.json import decode_strict, encode
from app.core.leash import let_go
from app.core.messages import Message

PluginFailure = Callable[[str, BaseException | str], RunwireError]
"""(plugin, its exception or what is wrong) -> the error that ends the run; the exception's text is for the log only."""


CLOSE_S = 1.5
"""Longest wait for a function that was cancelled: it may itself have to wait for a model that is on a leash."""


def being_cancelled() -> bool:
    """Whether a cancellation is ours; else a plugin raised it of its own accord, as it raises any other exception."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class PluginPlanner:
    """Runs the function as a task of its own, so that what its model says streams while it waits."""

    def __init__(
        self,
        plugin: PlannerPlugin,
        settings: AgentSettings,
        call_model: ModelCall,
        tools: Sequence[ToolDefinition],
        inputs: Mapping[str, object],
        trimmer: Trimmer,
        failure: PluginFailure,
    ) -> None:
        self.multi_action = plugin.multi_action
        self._plugin = plugin
        self._settings = settings
        self._call_model = call_model
        self._tools = tools
        self._inputs = inputs
        self._trimmer = trimmer
        self._failure = failure

    async def plan(self, turn: Turn) -> AsyncGenerator[Piece | Decision]:
        context = _Context(self, turn)
        task = asyncio.create_task(self._decide(turn, context))
        task.add_done_callback(lambda _: context.deltas.put_nowait(None))
        try:
            while (delta := await context.deltas.get()) is not None:
                yield delta
            yield await task
        finally:
            await let_go(task, "planner", self._plugin.name, grace_s=CLOSE_S)

    async def conclude(self, turn: Turn) -> AsyncGenerator[Piece | Decision]:
        """A last word is not a plugin's: what it would need for that, its prompt, is its own. The fixed text stands."""
        return
        yield  # makes it a generator

    def messages(self, turn: Turn) -> Sequence[Message]:
        return turn.messages

    def observe(self, call: PlannedCall, outcome: ToolOutcome) -> Message:
        return Message("user", told_text(outcome), tool_call_id=call.provider_call_id)

    async def _decide(self, turn: Turn, context: "_Context") -> Decision:
        kept = self._trimmer.kept(turn.rounds)
        rounds = [(item, item.results) for item in turn.rounds] if kept is None else kept
        steps = [AgentStep(call.action, told(outcome)) for _, results in rounds for call, outcome in results]
        outcome = await self._outcome(steps, context)
        said = context.answer
        log = outcome.log if isinstance(outcome, AgentFinish) else ""
        if isinstance(outcome, tuple) and outcome:
            log = outcome[0].action.log
        text = log or (said.content if said is not None else "")
        message = Message("assistant", text) if text else None
        if said is None:
            return Decision(outcome, message, NO_TOKENS, "")
        return Decision(outcome, message, said.tokens, said.model)

    async def _outcome(
        self, steps: Sequence[AgentStep], context: "_Context"
    ) -> tuple[ProposedAction, ...] | AgentFinish | ParseError:
        try:
            result = await self._plugin.function(steps, context)
        except OutputParserException as error:
            return ParseError(str(error), error.llm_output or "", error.observation or "", error.send_to_llm)
        except RunwireError:
            raise
        except asyncio.CancelledError as error:
            if being_cancelled():
                raise
            raise self._failure(self._plugin.name, error) from None
        except (Exception, SystemExit) as error:  # noqa: BLE001  (the named boundary: foreign code behind it)
            raise self._failure(self._plugin.name, error) from None
        return self._checked(result)

    def _checked(self, result: PlannerResult) -> tuple[ProposedAction, ...] | AgentFinish:
        if isinstance(result, AgentFinish):
            values = self._plain(result.return_values, "return_values")
            if not isinstance(values, dict):
                raise self._failure(self._plugin.name, "a finish's return_values must be a dict")
            return AgentFinish(cast("dict[str, object]", values), self._text(result.log))
        given: object = result
        actions = cast("Sequence[object]", given) if isinstance(given, list | tuple) else (given,)
        return tuple(self._action(action) for action in actions)

    def _action(self, action: object) -> ProposedAction:
        if not isinstance(action, AgentAction):
            raise self._failure(self._plugin.name, "it must give an AgentAction, a list of them, or an AgentFinish")
        tool_input = self._plain(action.tool_input, "tool_input")
        if not isinstance(tool_input, str | dict):
            raise self._failure(self._plugin.name, "an action's tool_input must be text or a dict")
        fitting = cast("str | dict[str, object]", tool_input)
        return ProposedAction(AgentAction(self._text(action.tool), fitting, self._text(action.log)))

    def _text(self, value: object) -> str:
        if not isinstance(value, str):
            raise self._failure(self._plugin.name, "an action's tool and log, and a finish's log, must be text")
        return str(self._plain(value, "text"))

    def _plain(self, value: object, what: str) -> object:
        """The value as JSON that both databases can store."""
        try:
            return decode_strict(encode(value))
        except (TypeError, ValueError, RecursionError, InvalidRequest) as error:
            raise self._failure(self._plugin.name, f"its {what} must be plain JSON") from error


class _Context:
    """The `PlannerContext` of one round."""

    def __init__(self, planner: PluginPlanner, turn: Turn) -> None:
        self._planner = planner
        self._turn = turn
        self.deltas: asyncio.Queue[Piece | None] = asyncio.Queue()
        self.answer: ModelAnswer | None = None
        self._asking = False

    @property
    def inputs(self) -> Mapping[str, object]:
        return self._planner._inputs

    @property
    def messages(self) -> Sequence[Message]:
        return self._turn.messages[: self._turn.before]

    @property
    def instructions(self) -> str | None:
        return self._planner._settings.instructions

    @property
    def tools(self) -> Sequence[ToolDefinition]:
        return self._planner._tools

    @property
    def iteration(self) -> int:
        return self._turn.iteration

    async def model(
        self, prompt: str | Sequence[Message], *, stop: Sequence[str] = (), tools: Sequence[ToolDefinition] = ()
    ) -> ModelAnswer:
        if self._asking or self.answer is not None:
            raise self._planner._failure(self._planner._plugin.name, "it asked the model twice in one round")
        messages = [Message("user", prompt)] if isinstance(prompt, str) else list(prompt)
        stream = self._planner._settings.stream_output
        request = ModelRequest(messages, tools, stream=stream, stop=tuple(stop), call_index=self._turn.iteration - 1)
        self._asking = True
        try:
            async with aclosing(answered(self._planner._call_model(request))) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, ModelAnswer):
                        self.answer = chunk
                    elif not isinstance(chunk, ToolCallDelta):
                        self.deltas.put_nowait(chunk)
        finally:
            self._asking = False  # after a `ModelError` it may be asked again
        assert self.answer is not None
        return self.answer
