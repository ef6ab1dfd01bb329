"""Kinds of middleware: what the server must know of one to check an agent that names it, and to run it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from app.agent.middleware import Middleware
from app.agent.ports import ModelCall
from app.agent.settings import AgentSettings
from app.agent.trimming import CountTokens
from app.core.principal import Principal
from app.runs.records import RunRecord
from app.tools.run_view import RunView
from app.tools.runner import BoundTools

Config = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The run that a middleware is made for."""

    run: RunRecord
    principal: Principal
    settings: AgentSettings
    view: RunView
    tools: BoundTools
    model: Callable[[Mapping[str, object]], Awaitable[ModelCall]]
    """Makes a pinned model ready to be called."""
    count_tokens: Callable[[], Awaitable[CountTokens]]
    """What counts tokens for the agent's model."""


class Kind(Protocol):
    """One middleware by its name. Made once, at start-up."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def config_schema(self) -> Mapping[str, object]: ...

    @property
    def state_schema(self) -> Mapping[str, Mapping[str, object]]: ...

    async def pin(self, tenant: str, config: Config, pointer: str, old: Config | None = None) -> Config:
        """The config checked, and made fit to be kept: secrets replaced by references, models pinned.

        `old`: what is replaced; secrets that are left out stay. Raises `InvalidRequest`.
        """
        ...

    def label(self, config: Config) -> str:
        """Two entries of one label in an agent are refused."""
        ...

    async def bind(self, config: Config, scope: Scope) -> Middleware:
        """The middleware of one run. Raises `RunwireError` where what was pinned cannot be used any more."""
        ...
