"""Agents: registered, versioned specs, and how a run pins the one it uses."""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from app.agent.plugin_api import PlannerPlugin
from app.agent.settings import Limits
from app.core.clock import rfc3339
from app.core.errors import FieldError, Forbidden, InvalidRequest, NotFound
from app.core.idempotency import IdempotencyKey
from app.core.principal import Principal
from app.core.registry import Registry, Versioned
from app.runs.agent_checks import KnownPlugins, check_agent
from app.runs.answers import AnswerSchemas, pinned
from app.runs.middleware.registry import MiddlewareSet, Pin, shown
from app.runs.spec import AGENT_TYPES, AgentSpec, RegisteredAgentSpec, RunConfig, settings_json
from app.runs.state_fields import OF_MIDDLEWARE, StateFields
from app.runs.validation import check


class ModelPinner(Protocol):
    """What checks a model spec and makes it storable (`app.models`)."""

    async def pin(self, tenant: str, spec: object, *, pointer: str) -> dict[str, object]: ...

    def priced(self, pinned: Mapping[str, object]) -> bool:
        """Whether calls of a pinned model have a known cost."""
        ...

    def keeps_formats(self, pinned: Mapping[str, object]) -> bool:
        """Whether a pinned model is known to hold its answers to a JSON Schema."""
        ...


class ToolPinner(Protocol):
    """What checks an agent's tools and pins their versions (`app.tools`)."""

    async def pin(
        self, principal: Principal, tools: Sequence[str | Mapping[str, object]], *, pointer: str
    ) -> list[dict[str, object]]: ...


class AgentService:
    """`/agents` and the resolution of a run's `agent`.

    A stored agent is `{"agent": settings, "model": pinned model, "tools": [name | pin of an inline tool], "middleware":
    [pin]}`; one that was stored before there was middleware has none.
    """

    def __init__(
        self,
        registry: Registry,
        models: ModelPinner,
        tools: ToolPinner,
        plugins: KnownPlugins,
        middleware: MiddlewareSet | None = None,
    ) -> None:
        self._registry = registry
        self._models = models
        self._tools = tools
        self._plugins = plugins
        self.middleware = middleware or MiddlewareSet()
        self.fields = StateFields(plugins)
        """The states of agents, compiled."""
        self._answers = AnswerSchemas()

    @property
    def types(self) -> list[str]:
        """What an agent's `type` may be: the server's own, then planners in Python."""
        return [*AGENT_TYPES, *self._plugins.names(PlannerPlugin)]

    async def create(
        self, principal: Principal, body: object, idempotency: IdempotencyKey | None
    ) -> tuple[dict[str, object], bool]:
        """Raises `Conflict` (`agent_exists`), `InvalidRequest`. `True`: a replay."""
        spec = check(RegisteredAgentSpec, body)
        stored = await self._stored(principal, spec)
        record, first = await self._registry.create(principal.tenant, spec.name, stored, idempotency)
        return self._public(record), first is not None

    async def put(self, principal: Principal, name: str, given: object) -> tuple[dict[str, object], bool]:
        """A new version. `name` in the body may be left out, but must not differ."""
        body = given
        if isinstance(given, dict):
            named = cast("dict[str, object]", body)
            if named.setdefault("name", name) != name:
                raise InvalidRequest(
                    "The body names another agent.", errors=(FieldError("/name", f"must be `{name}`"),)
                )
        spec = check(RegisteredAgentSpec, body)
        old = await self._registry.get(principal.tenant, name)
        stored = await self._stored(principal, spec, _middleware_of({} if old is None else old.spec))
        _keep_key(stored, old)
        record, new = await self._registry.put(principal.tenant, name, stored)
        return self._public(record), new

    async def get(self, principal: Principal, name: str) -> dict[str, object]:
        record = await self._registry.get(principal.tenant, name)
        if record is None:
            raise NotFound(f"There is no agent `{name}`.", code="agent_not_found")
        return self._public(record)

    async def page(self, principal: Principal, *, after: str | None, limit: int) -> list[dict[str, object]]:
        records = await self._registry.page(principal.tenant, after=after, limit=limit)
        return [self._public(record) for record in records]

    async def delete(self, principal: Principal, name: str) -> None:
        if not await self._registry.delete(principal.tenant, name):
            raise NotFound(f"There is no agent `{name}`.", code="agent_not_found")

    async def resolve(
        self, principal: Principal, agent: str | dict[str, object], config: RunConfig
    ) -> tuple[str | None, dict[str, object]]:
        """(name, pinned spec) of a run's agent with the run's overrides.

        Raises `InvalidRequest` (`unknown_agent`, `unknown_tool`, `unknown_model`, …), `Forbidden` for an inline agent
        without the scope `agents:write`.
        """
        if isinstance(agent, str):
            record = await self._registry.get(principal.tenant, agent)
            if record is None:
                raise InvalidRequest(
                    f"There is no agent `{agent}`; register it with POST /agents.",
                    code="unknown_agent",
                    errors=(FieldError("/agent", "unknown agent"),),
                )
            stored, name, version = record.spec, agent, record.version
            names = cast("list[str | dict[str, object]]", stored["tools"])
            tools = await self._pin_stored(principal, names)
        else:
            if not principal.may("agents:write"):
                raise Forbidden("An inline agent needs a key with the scope `agents:write`.", code="missing_scope")
            spec = check(AgentSpec, agent, at="/agent")
            tools = await self._tools.pin(principal, spec.tools, pointer="/agent/tools")
            model = await self._models.pin(principal.tenant, spec.model, pointer="/agent/model")
            middleware, inline = await self._with_middleware(principal.tenant, spec, "/agent")
            stored, name, version = {"agent": inline, "model": model, "middleware": middleware}, None, None
        settings = _overridden(cast("dict[str, object]", stored["agent"]), config)
        model = cast("dict[str, object]", stored["model"])
        settings = pinned(settings, lambda: self._models.keeps_formats(model))
        self._check(settings, tools, "/agent")
        at = "/agent" if config.limits.max_cost_usd is None else "/config"
        self._check_cost(settings, model, at)
        middleware = _middleware_of(stored)
        more = {"middleware": middleware} if middleware else {}
        return name, {"agent": settings, "agent_version": version, "model": stored["model"], "tools": tools, **more}

    async def _with_middleware(
        self, tenant: str, spec: AgentSpec, pointer: str, old: Sequence[Pin] = ()
    ) -> tuple[list[dict[str, object]], dict[str, object]]:
        """The agent's middleware, pinned, and its settings with the state that they bring."""
        settings = settings_json(spec)
        at = f"{pointer}/middleware"
        pins = await self.middleware.pin(tenant, spec.middleware_list, at, old) if spec.middleware else []
        state = self.middleware.state(pins, spec.state_schema, at)
        return pins, {**settings, OF_MIDDLEWARE: state} if state else settings

    async def _stored(
        self, principal: Principal, spec: RegisteredAgentSpec, old: Sequence[Pin] = ()
    ) -> dict[str, object]:
        pins = await self._tools.pin(principal, spec.tools, pointer="/tools")
        tools = [pin if isinstance(given, dict) else given for given, pin in zip(spec.tools, pins, strict=True)]
        model = await self._models.pin(principal.tenant, spec.model, pointer="/model")
        middleware, settings = await self._with_middleware(principal.tenant, spec, "", old)
        self._check(settings, pins, "")
        self._check_cost(settings, model, "")
        return {"agent": settings, "model": model, "tools": tools, "middleware": middleware}

    def _check(self, settings: Mapping[str, object], tools: Sequence[Mapping[str, object]], pointer: str) -> None:
        answer = self._answers.of(settings, [str(tool["name"]) for tool in tools], pointer)
        check_agent(settings, tools, self._plugins, pointer, answer=None if answer is None else answer.tool)
        self.fields.check_agent(settings, pointer)

    def _check_cost(self, settings: Mapping[str, object], model: Mapping[str, object], pointer: str) -> None:
        """A cap in money on a model without prices could never stop anything, so it is refused."""
        limits = cast("Mapping[str, object]", settings.get("limits") or {})
        if limits.get("max_cost_usd") is not None and not self._models.priced(model):
            raise InvalidRequest(
                "`limits.max_cost_usd` needs a model with prices: an alias of RUNWIRE_MODELS that has them.",
                errors=(FieldError(f"{pointer}/limits/max_cost_usd", "this model has no prices"),),
            )

    async def _pin_stored(self, principal: Principal, stored: list[str | dict[str, object]]) -> list[dict[str, object]]:
        """Names at their newest version; inline tools as they were pinned when the agent was registered."""
        names = [tool for tool in stored if isinstance(tool, str)]
        pins = iter(await self._tools.pin(principal, names, pointer="/agent/tools") if names else ())
        return [next(pins) if isinstance(tool, str) else tool for tool in stored]

    def _public(self, record: Versioned) -> dict[str, object]:
        """What a caller sees again: no secrets."""
        spec = record.spec
        tools = cast("list[str | dict[str, object]]", spec["tools"])
        return {
            "name": record.name,
            "version": record.version,
            **{
                key: value
                for key, value in cast("dict[str, object]", spec["agent"]).items()
                if key not in ("name", OF_MIDDLEWARE)
            },
            "model": {
                key: value for key, value in cast("dict[str, object]", spec["model"]).items() if key != "api_key"
            },
            "tools": [tool if isinstance(tool, str) else {"name": tool["name"], "inline": True} for tool in tools],
            "middleware": shown(_middleware_of(spec)),
            "created_at": rfc3339(record.created_at),
        }


def _middleware_of(stored: Mapping[str, object]) -> Sequence[Pin]:
    return cast("Sequence[Pin]", stored.get("middleware") or ())


def _keep_key(stored: dict[str, object], old: Versioned | None) -> None:
    """A replacement that leaves the model's write-only key out keeps the old one, as long as it goes to the same place."""
    new = cast("dict[str, object]", stored["model"])
    before = cast("dict[str, object]", {} if old is None else old.spec["model"])
    same = all(new.get(name) == before.get(name) for name in ("provider", "base_url"))
    if same and "api_key" in before and "api_key" not in new:
        new["api_key"] = before["api_key"]


def _overridden(settings: dict[str, object], config: RunConfig) -> dict[str, object]:
    """The agent's settings with the run's: each field that was sent replaces the agent's; `limits` may only be lowered."""
    sent = config.model_fields_set
    if not sent:
        return settings
    merged = dict(settings)
    for name in sent - {"limits"}:
        merged[name] = getattr(config, name)
    if "limits" in sent:
        merged["limits"] = _lowered(cast("dict[str, object]", settings.get("limits") or {}), config)
    return merged


def _lowered(limits: dict[str, object], config: RunConfig) -> dict[str, object]:
    lowered = dict(limits)
    for name in config.limits.model_fields_set:
        new, old = getattr(config.limits, name), limits.get(name, getattr(Limits(), name, None))
        if isinstance(old, int | float) and (new is None or new > old):
            raise InvalidRequest(
                "A run may only lower the agent's limits.",
                errors=(FieldError(f"/config/limits/{name}", f"must be at most the agent's {old}"),),
            )
        lowered[name] = new
    return lowered
