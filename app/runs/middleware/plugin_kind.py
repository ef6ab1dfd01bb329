"""Middleware in Python: a plugin's hooks behind a wall that their faults do not pass."""

import asyncio
import dis
import functools
import inspect
import re
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import cast

import structlog

from app.agent.middleware import Hook, HookResult, Middleware
from app.agent.plugin_planner import being_cancelled
from app.agent.ports import (
    ModelAnswer,
    ModelCall,
    ModelMiddleware,
    ModelRequest,
    Piece,
    PlannedCall,
    Restart,
    TextDelta,
    ToolCallNext,
    ToolMiddleware,
    ToolOutcome,
    Waiting,
)
from app.agent.state import LoopState
from app.agent.state_schema import own_copy
from app.core.errors import FieldError, InvalidRequest, MiddlewareFailed, ModelError, RunwireError, Stopped
from app.core.events import EventType
from app.core.ids import NAME_PATTERN, new_id
from app.core.leash import leashed, let_go
from app.core.plugins import PluginError
from app.runs.middleware.api import Middleware as Plugin
from app.runs.middleware.api import MiddlewareContext, ToolRequest, ToolResult, overridden
from app.runs.middleware.kinds import Config, Scope
from app.runs.middleware.outcomes import outcome_of, result_of
from app.tools.plugin_api import Command, ToolError
from app.tools.run_view import StateView
from app.tools.schema import ArgumentSchema, check_schema

NO_CONFIG: Mapping[str, object] = {"type": "object", "properties": {}, "additionalProperties": False}

KIND = "middleware"

MAX_TOLD_BYTES = 64 * 1024
"""Longest data of a `custom` event."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class PluginKind:
    """One plugin as a `Kind`."""

    def __init__(self, plugin: Plugin) -> None:
        """Raises `PluginError`: a name or a schema that cannot be used."""
        name: object = plugin.name
        if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
            raise PluginError(f"Middleware {name!r}: its `name` must match {NAME_PATTERN}.")
        self._plugin = plugin
        self.name = name
        self.description = plugin.description
        self.config_schema = NO_CONFIG if plugin.config_schema is None else plugin.config_schema
        self.state_schema = plugin.state_schema
        try:
            self._schema: ArgumentSchema = check_schema(self.config_schema, "")
        except InvalidRequest as error:
            details = "; ".join(f"{fault.pointer}: {fault.detail}" for fault in error.errors)
            raise PluginError(f"Middleware {name!r}: its config_schema: {error.message} {details}") from error

    async def pin(self, tenant: str, config: Config, pointer: str, old: Config | None = None) -> Config:
        faults = () if self._schema.is_valid(config) else self._schema.faults(config)
        if faults:
            errors = tuple(FieldError(pointer + fault.pointer, fault.detail) for fault in faults)
            raise InvalidRequest(f"The config of the middleware `{self.name}` does not fit.", errors=errors)
        return config

    def label(self, config: Config) -> str:
        return self.name

    async def bind(self, config: Config, scope: Scope) -> Middleware:
        run = _Run(self._plugin, config, scope)
        return Middleware(
            self.name,
            before_agent=run.hook("before_agent"),
            before_model=run.hook("before_model"),
            after_model=run.hook("after_model"),
            after_agent=run.hook("after_agent"),
            wrap_model=run.wrap_model(),
            wrap_tool=run.wrap_tool(),
        )


class _Parks(BaseException):  # not an error: what a plugin may catch must not hold it
    """Unwinds a `wrap_tool_call` whose tool waits for an answer; it runs again, from its beginning, when there is one."""


class _Run:
    """One plugin in one run."""

    def __init__(self, plugin: Plugin, config: Config, scope: Scope) -> None:
        self._plugin = plugin
        self._scope = scope
        self._name = plugin.name
        self._context = MiddlewareContext(
            principal=scope.principal,
            run_id=scope.run.id,
            thread_id=scope.run.thread_id,
            agent=scope.run.agent,
            context=scope.run.context,
            config=config,
            look=functools.partial(StateView, scope.view),
            tell=self._tell,
        )

    def hook(self, name: str) -> Hook | None:
        function = overridden(self._plugin, name)
        if function is None:
            return None

        waits = _waits(function)

        async def call(_: LoopState) -> HookResult | None:
            said = await self._guarded(function, StateView(self._scope.view), self._context, leash=waits)
            return None if said is None else self._read(said)

        return call

    def wrap_model(self) -> ModelMiddleware | None:
        function = overridden(self._plugin, "wrap_model_call")
        if function is None:
            return None

        def wrap(request: ModelRequest, call_next: ModelCall) -> AsyncGenerator[Piece | ModelAnswer]:
            return self._model(function, request, call_next)

        return wrap

    def wrap_tool(self) -> ToolMiddleware | None:
        function = overridden(self._plugin, "wrap_tool_call")
        if function is None:
            return None

        async def wrap(call: PlannedCall, call_next: ToolCallNext) -> ToolOutcome | Waiting:
            return await self._tool(function, call, call_next)

        return wrap

    async def _model(
        self, function: Callable[..., object], request: ModelRequest, call_next: ModelCall
    ) -> AsyncGenerator[Piece | ModelAnswer]:
        """The hook as a task of its own, so that what the model says streams while it waits."""
        held = self._plugin.hold_output or not request.stream
        pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        last: ModelAnswer | None = None
        spoke = False

        async def ask(given: ModelRequest) -> ModelAnswer:
            nonlocal last, spoke
            if spoke:
                pieces.put_nowait(Restart())
                spoke = False
            async with aclosing(call_next(given)) as said:
                async for piece in said:
                    if isinstance(piece, ModelAnswer):
                        last = piece
                        return piece
                    if not held:
                        spoke = True
                        pieces.put_nowait(piece)
            raise ModelError("The model client ended without an answer.", code="model_empty_response", retryable=True)

        task = asyncio.create_task(self._guarded(function, request, ask, self._context, leash=False))
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            answer = await task
        finally:
            await let_go(task, KIND, self._name)
        if not isinstance(answer, ModelAnswer):
            raise self._broken("wrap_model_call must give a ModelAnswer")
        if request.stream and (held or last is None or (answer.content, answer.calls) != (last.content, last.calls)):
            if spoke:
                yield Restart()
            if answer.content:
                yield TextDelta(answer.content)
        yield answer

    async def _tool(
        self, function: Callable[..., object], call: PlannedCall, call_next: ToolCallNext
    ) -> ToolOutcome | Waiting:
        parked: Waiting | None = None
        stopped: Stopped | None = None
        known: list[tuple[ToolResult, ToolOutcome]] = []
        tool = self._scope.tools.find(call.action.tool)
        request = ToolRequest(
            tool=call.action.tool,
            arguments=call.action.tool_input,
            tool_call_id=call.tool_call_id,
            effect=None if tool is None else tool.effect,
            idempotent=tool is not None and tool.idempotent,
        )

        async def ask(given: ToolRequest) -> ToolResult:
            nonlocal parked, stopped
            try:
                outcome = await call_next(self._with_arguments(call, given))
            except Stopped as error:
                stopped = error
                raise
            if isinstance(outcome, Waiting):
                parked = outcome
                raise _Parks
            result = result_of(outcome)
            known.append((result, outcome))
            return result

        try:
            said = await self._guarded(function, request, ask, self._context, lets=(ToolError, _Parks))
        except _Parks:
            said = None
        except ToolError as error:
            said = ToolResult(output=error.message, status="error", code=error.code)
        if stopped is not None:
            raise stopped
        if parked is not None:
            return parked
        base = known[-1][1] if known else None
        for result, outcome in known:
            if said is result:
                return outcome
        return outcome_of(self._result(said), call, self._name, base)

    def _result(self, said: object) -> ToolResult:
        if isinstance(said, Command):
            said = ToolResult(output=said.output, update=said.update, goto=said.goto)
        if not isinstance(said, ToolResult):
            raise self._broken("wrap_tool_call must give a ToolResult or a Command")
        if said.goto not in (None, "end", "model", "tools"):
            raise self._broken(f"it jumps to {str(cast('object', said.goto))[:64]!r}; there are: end, model, tools")
        return said.override(output=self._plain(said.output, "output"))

    def _with_arguments(self, call: PlannedCall, given: ToolRequest) -> PlannedCall:
        if given.arguments == call.action.tool_input:
            return call
        arguments = self._plain(given.arguments, "arguments")
        if not isinstance(arguments, str | dict):
            raise self._broken("a call's arguments must be an object, or text")
        return replace(call, action=replace(call.action, tool_input=cast("str | dict[str, object]", arguments)))

    def _read(self, said: object) -> HookResult:
        if isinstance(said, Command):
            return HookResult(said.update, said.goto, self._plain(said.output, "output"))
        if not isinstance(said, Mapping):
            raise self._broken("a hook must give an update of the state, a Command, or nothing")
        update = dict(cast("Mapping[str, object]", said))
        goto = update.pop("jump_to", None)
        return HookResult(update, goto)  # pyright: ignore[reportArgumentType]  # checked where it is followed

    def _plain(self, value: object, what: str) -> object:
        try:
            return own_copy(value)
        except ValueError as error:
            raise self._broken(f"its {what} must be plain JSON") from error

    def _tell(self, event: str, data: Mapping[str, object]) -> None:
        copy = cast("dict[str, object]", own_copy(data, MAX_TOLD_BYTES))
        self._scope.view.tell(cast("EventType", event), {"by": f"middleware:{self._name}", **copy})

    async def _guarded(
        self,
        function: Callable[..., object],
        *given: object,
        lets: tuple[type[BaseException], ...] = (),
        leash: bool = True,
    ) -> object:
        """The named boundary: foreign code behind it. Errors of the server's own, as the model's, go through, and `lets`.

        `leash` false: the caller's task is this call's own, and the caller lets it go, or the function never waits.
        """
        try:
            said = function(*given)
            if inspect.isawaitable(said):
                work = cast("Awaitable[object]", said)
                said = await (leashed(work, KIND, self._name) if leash else work)
        except (RunwireError, *lets):
            raise
        except asyncio.CancelledError as error:
            if being_cancelled():
                raise
            raise failure(self._name, error) from None
        except (Exception, SystemExit) as error:  # noqa: BLE001
            raise failure(self._name, error) from None
        return said

    def _broken(self, what: str) -> MiddlewareFailed:
        return failure(self._name, what)


def _waits(function: Callable[..., object]) -> bool:
    """Whether a function may ever wait. One without an `await` of its own cannot be cancelled, and needs no task for that."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType) or not inspect.iscoroutinefunction(function):
        return True
    return any(item.opname in _WAITING for item in dis.get_instructions(code))


_WAITING = frozenset(("GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH"))


def failure(name: str, error: BaseException | str) -> MiddlewareFailed:
    """The error that ends the run: a general sentence and a request id. An exception's text is in the log only."""
    if isinstance(error, str):
        return MiddlewareFailed(f"The middleware `{name}` broke its contract: {error}.")
    request_id = new_id()
    _log.error("middleware_failed", middleware=name, request_id=request_id, exc_info=error)
    return MiddlewareFailed(f"The middleware `{name}` failed. (request {request_id})", request_id=request_id)
