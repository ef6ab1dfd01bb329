"""What middleware in Python is written against; re-exported by `runwire`, the public module.

class Polite(Middleware):
    name = "polite"

    async def wrap_model_call(self, request: ModelRequest, call_next: CallModel, context: MiddlewareContext) -> ModelAnswer:
        answer = await call_next(request)
        return answer.override(content=f"{answer.content} Thank you.")

polite = Polite()
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, cast

from app.agent.ports import ModelAnswer, ModelRequest, StepStatus
from app.core.plugins import Plugin
from app.core.principal import Principal
from app.tools.plugin_api import Command


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """A call of a tool, before it is checked."""

    tool: str
    arguments: str | Mapping[str, object]
    """As the model said them. Text agents may say text."""
    tool_call_id: str
    effect: Literal["pure", "read", "write"] | None = None
    """`None`: there is no such tool."""
    idempotent: bool = False
    """Whether the same call may be sent again; what is asked again of any other is answered with what came first."""

    def override(self, **changes: Any) -> "ToolRequest":
        """A request like this one but for `changes`, by the fields' names. Only `arguments` make a difference."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What came of a call."""

    output: object = None
    """JSON: what the model is shown. Of an error: its text."""
    status: StepStatus = "success"
    code: str | None = None
    """Of an error."""
    update: Mapping[str, object] | None = None
    goto: Literal["end", "model", "tools"] | None = None

    def override(self, **changes: Any) -> "ToolResult":
        """A result like this one but for `changes`, by the fields' names."""
        return replace(self, **changes)


CallModel = Callable[[ModelRequest], Awaitable[ModelAnswer]]
"""Asks the model, or the next middleware. Raises `ModelError`. It may be called several times, or not at all."""

CallTool = Callable[[ToolRequest], Awaitable[ToolResult]]
"""Calls the tool, or the next middleware. What a tool did is a result, never an exception."""

HookAnswer = Command | Mapping[str, object] | None
"""An update of the state, a `Command` with an update and a jump, or nothing. `{"jump_to": …}` in an update is a jump, too."""


def _nowhere(_event: str, _data: Mapping[str, object]) -> None:
    """Outside a run nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiddlewareContext:
    """What a middleware may know of its run."""

    principal: Principal
    """Who the run acts for; the only identity to trust."""
    run_id: str
    thread_id: str
    agent: str | None
    """The registered agent's name."""
    context: Mapping[str, object]
    """The run's `context`, as its caller gave it."""
    config: Mapping[str, object]
    """The agent's `config` of this middleware."""
    look: Callable[[], Mapping[str, object]] = field(repr=False)
    """Makes `state`."""
    tell: Callable[[str, Mapping[str, object]], None] = field(default=_nowhere, repr=False)

    @property
    def state(self) -> Mapping[str, object]:
        """`messages` and the fields of the thread's state, as they are now. To be read only."""
        return self.look()

    def custom(self, data: object) -> None:
        """Send the run's readers a `custom` event. `data`: JSON of at most 64 KiB. Raises `ValueError`."""
        self.tell("custom", {"data": data})


class Middleware(Plugin):
    """Base of middleware in Python: override the hooks you need, sync or async; only those cost anything.

    One instance serves all runs at once, so what belongs to a run is kept in its state. Sync hooks run on the event
    loop: be quick. An exception ends the run as `middleware_error`; its text is in the log only. A hook whose result
    was not journaled before a crash runs again.
    """

    name: str = ""
    """How an AgentSpec names it."""
    description: str = ""
    state_schema: ClassVar[Mapping[str, Mapping[str, object]]] = {}
    """Fields that it needs in the thread's state, as in an AgentSpec."""
    config_schema: ClassVar[Mapping[str, object] | None] = None
    """JSON Schema of its `config`, an object; `None`: it takes none."""
    hold_output: bool = False
    """`wrap_model_call` sees the whole answer before any of it is streamed."""

    def before_agent(
        self, state: Mapping[str, object], context: MiddlewareContext
    ) -> "HookAnswer | Awaitable[HookAnswer]":
        """Once a run, before anything."""
        raise NotImplementedError

    def before_model(
        self, state: Mapping[str, object], context: MiddlewareContext
    ) -> "HookAnswer | Awaitable[HookAnswer]":
        """Before each answer of the model."""
        raise NotImplementedError

    def after_model(
        self, state: Mapping[str, object], context: MiddlewareContext
    ) -> "HookAnswer | Awaitable[HookAnswer]":
        """After each answer, which is the last of `messages`, before its calls are made."""
        raise NotImplementedError

    def after_agent(
        self, state: Mapping[str, object], context: MiddlewareContext
    ) -> "HookAnswer | Awaitable[HookAnswer]":
        """Before the run's end is told."""
        raise NotImplementedError

    def wrap_model_call(
        self, request: ModelRequest, call_next: CallModel, context: MiddlewareContext
    ) -> "ModelAnswer | Awaitable[ModelAnswer]":
        """Around each call of the model."""
        raise NotImplementedError

    def wrap_tool_call(
        self, request: ToolRequest, call_next: CallTool, context: MiddlewareContext
    ) -> "ToolResult | Command | Awaitable[ToolResult | Command]":
        """Around each call of a tool."""
        raise NotImplementedError


def overridden(middleware: Middleware, hook: str) -> Callable[..., object] | None:
    """The middleware's own hook; `None` where it has none."""
    if getattr(type(middleware), hook) is getattr(Middleware, hook):
        return None
    return cast("Callable[..., object]", getattr(middleware, hook))


GuardrailFunction = Callable[[str], bool | Awaitable[bool]]
"""Whether there is something wrong with a text."""


@dataclass(frozen=True, slots=True)
class GuardrailCheck(Plugin):
    """`{"name": "guardrail", "config": {"plugin": NAME}}`."""

    function: GuardrailFunction
    name: str

    def __call__(self, text: str) -> bool | Awaitable[bool]:
        return self.function(text)


def guardrail_check(name: str) -> Callable[[GuardrailFunction], GuardrailCheck]:
    """A function that says whether a text is wrong, for the middleware `guardrail`. Not async, it runs on the event loop: be quick."""
    return lambda function: GuardrailCheck(function, name)
