"""Middleware as the loop meets it: one run's hooks around its agent, its model and its tools, in their order.

What comes before goes in the order in which an agent names its middleware, what comes after in the reverse one, and what
wraps is nested, the first outermost. A run without middleware has `NO_HOOKS`, which cost it nothing.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import field, replace
from functools import partial

from app.agent.hooked_tools import HookedTools
from app.agent.ports import (
    Goto,
    ModelAnswer,
    ModelCall,
    ModelMiddleware,
    ModelRequest,
    Piece,
    ToolDefinition,
    ToolMiddleware,
    ToolRunner,
)
from app.agent.state import LoopState
from app.agent.state_schema import FieldUpdate
from app.core.messages import Message
from app.core.usage import TokenUsage, Usage
from app.core.values import immutable


@immutable
class HookResult:
    """What a hook wants: changes of the state, and where the run goes on."""

    update: Mapping[str, object] | None = None
    """Fields through their reducers; `messages` are appended."""
    goto: Goto | None = None
    output: object = None
    """The run's answer, with `goto` `end`; `None`: the text that the assistant said last."""
    own: tuple[FieldUpdate, ...] = ()
    """Of the server's own fields, for the built-in middleware."""


Hook = Callable[[LoopState], Awaitable[HookResult | None]]
"""Raises `RunwireError` (the run ends with its code); a foreign hook is behind a wall that lets nothing else through."""

Shows = Callable[[Sequence[Message]], Sequence[Message]]


@immutable
class Middleware:
    """One middleware of a run. Only the hooks that it has cost anything."""

    name: str
    before_agent: Hook | None = None
    before_model: Hook | None = None
    after_model: Hook | None = None
    after_agent: Hook | None = None
    wrap_model: ModelMiddleware | None = None
    wrap_tool: ToolMiddleware | None = None
    models: Mapping[str, ModelCall] = field(default_factory=dict[str, ModelCall])
    """Models of its own, by what its requests name them (`ModelRequest.model`)."""
    shows: Shows | None = None
    """What it does to the messages of every request, where that depends on nothing else: for whoever reads the run."""


Chain = tuple[tuple[str, Hook], ...]


class Hooks:
    """The middleware of one run."""

    __slots__ = (
        "_asked", "_models", "_offered", "_repeatable", "_spent", "_wraps_tool", "after_agent", "after_model", "before_agent",
        "before_model", "run_id", "shows", "wraps_model",
    )  # fmt: skip

    def __init__(
        self, run_id: str = "", chain: Sequence[Middleware] = (), repeatable: Callable[[str], bool] = lambda _: False
    ) -> None:
        """`repeatable`: whether a tool of this name may be sent the same call again."""
        self.run_id = run_id
        self.before_agent: Chain = tuple((item.name, hook) for item in chain if (hook := item.before_agent))
        self.before_model: Chain = tuple((item.name, hook) for item in chain if (hook := item.before_model))
        self.after_model: Chain = tuple((item.name, hook) for item in reversed(chain) if (hook := item.after_model))
        self.after_agent: Chain = tuple((item.name, hook) for item in reversed(chain) if (hook := item.after_agent))
        self.wraps_model = tuple(item.wrap_model for item in chain if item.wrap_model is not None)
        self._wraps_tool = tuple(item.wrap_tool for item in chain if item.wrap_tool is not None)
        self.shows = tuple(item.shows for item in chain if item.shows is not None)
        self._models = {key: call for item in chain for key, call in item.models.items()}
        self._repeatable = repeatable
        self._asked: Sequence[ToolDefinition] = ()
        self._offered: frozenset[str] | None = None
        self._spent: list[TokenUsage] = []

    def model(self, call: ModelCall) -> ModelCall:
        """`call` with all around it."""
        if not self.wraps_model:
            return call
        wrapped: ModelCall = partial(self._ask, call)
        for wrap in reversed(self.wraps_model):
            wrapped = _around(wrap, wrapped)
        return partial(self._counted, wrapped)

    def tools(self, runner: ToolRunner, answer_tool: str | None = None) -> ToolRunner:
        """`runner` with all around each of its calls, but that of the structured answer."""
        return HookedTools(runner, self._wraps_tool, self._repeatable, answer_tool) if self._wraps_tool else runner

    def hidden(self, tool: str) -> bool:
        """Whether a tool of the agent was kept from the model that answered last."""
        return (
            self._offered is not None
            and tool not in self._offered
            and any(definition.name == tool for definition in self._asked)
        )

    def count(self, usage: Usage) -> None:
        """Add the model calls beyond the one that every answer counts for: none was made, or several."""
        if self.wraps_model:
            usage.model_calls += len(self._spent) - 1

    async def _counted(self, call: ModelCall, request: ModelRequest) -> AsyncGenerator[Piece | ModelAnswer]:
        """An answer with the tokens of all calls that were made for it."""
        self._asked, self._offered, self._spent = request.tools, None, []
        async with aclosing(call(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ModelAnswer) and len(self._spent) != 1:
                    yield replace(piece, tokens=_total(self._spent))
                else:
                    yield piece

    async def _ask(self, call: ModelCall, request: ModelRequest) -> AsyncGenerator[Piece | ModelAnswer]:
        """The innermost call: of the model that the request names."""
        tools = request.tools
        self._offered = None if tools is self._asked else frozenset(tool.name for tool in tools)
        if request.model is not None:
            call = self._models.get(request.model, call)
        async with aclosing(call(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ModelAnswer):
                    self._spent.append(piece.tokens)
                yield piece


NO_HOOKS = Hooks()


def _around(wrap: ModelMiddleware, call_next: ModelCall) -> ModelCall:
    def call(request: ModelRequest) -> AsyncGenerator[Piece | ModelAnswer]:
        return wrap(request, call_next)

    return call


def _total(spent: Sequence[TokenUsage]) -> TokenUsage:
    costs = [tokens.cost_usd for tokens in spent if tokens.cost_usd is not None]
    return TokenUsage(
        sum(tokens.input_tokens for tokens in spent),
        sum(tokens.output_tokens for tokens in spent),
        sum(tokens.total_tokens for tokens in spent),
        sum(tokens.cache_read_tokens for tokens in spent),
        sum(tokens.cache_write_tokens for tokens in spent),
        sum(costs) if costs else None,
    )
