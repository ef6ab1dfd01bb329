"""The composition root: settings become the parts of a server, once."""

import contextlib
import os
from dataclasses import dataclass

import structlog
from pydantic import SecretStr

from app import __version__
from app.api.context import Lifecycle, OpenStreams, Services
from app.api.cors import parse_origins
from app.api.readiness import DatabasePing
from app.auth.keys import KeyRing
from app.core.errors import Conflict
from app.core.ids import new_id
from app.core.registry import SecretStore
from app.dispatch.local import LocalDispatcher
from app.models.aliases import AliasError, read_aliases
from app.models.catalog import ModelCatalog, ModelOptions
from app.models.plugins import ModelPlugins
from app.observability.metrics import Metrics
from app.observability.observers import observers
from app.observability.tracing import Tracing, open_tracing
from app.observability.tracing_environment import TracingError
from app.runs.agents import AgentService
from app.runs.audit import AuditService
from app.runs.call_results import CallResults
from app.runs.callbacks import CallbackService
from app.runs.hub import Hub
from app.runs.loop_parts import LoopAssembler
from app.runs.loop_plugins import LoopPlugins
from app.runs.middleware.builtin import built_in
from app.runs.middleware.http_hook import HttpHookKind
from app.runs.middleware.registry import MiddlewareSet
from app.runs.retention import Retention
from app.runs.service import RunService
from app.settings import Settings, SettingsError
from app.storage.database import Database
from app.storage.group import unwatched
from app.storage.open import build_stores, open_database
from app.threads.service import ThreadService
from app.threads.store import StoreService
from app.tools.authority import Authority
from app.tools.callbacks import Callbacks
from app.tools.demo import DEMO_TOOLS
from app.tools.egress import EgressGuard
from app.tools.hook_client import HookClient
from app.tools.http_callback import HttpToolClient
from app.tools.plugins import PluginSet
from app.tools.policy import Policy
from app.tools.public import shadowed_by_plugin
from app.tools.service import ToolService
from app.tools.switches import SwitchService

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

DEMO_AGENT: dict[str, object] = {
    "name": "demo",
    "description": "Works offline, without a model: simple rules that use the demo tools.",
    "model": "demo:demo",
    "tools": ["calculator", "current_time", "text_length"],
}


@dataclass(slots=True)
class BaseUrl:
    """What others reach this server under: RUNWIRE_PUBLIC_URL, else the address it is bound to."""

    given: str | None
    bound: str = ""

    @property
    def value(self) -> str:
        return (self.given or self.bound).rstrip("/")


@dataclass(frozen=True, slots=True)
class Parts:
    """A built server. `start` and `stop` are in the order in which parts need each other."""

    settings: Settings
    services: Services
    database: Database
    hub: Hub
    dispatcher: LocalDispatcher
    models: ModelCatalog
    http_tools: HttpToolClient
    plugins: PluginSet
    retention: Retention
    metrics: Metrics | None
    tracing: Tracing | None
    cors_origins: frozenset[str]
    base_url: BaseUrl

    async def start(self) -> None:
        """Raises `Unavailable` (`database_in_use`, `storage_unavailable`, `schema_unknown`)."""
        await self.database.start()
        for name in await self.services.tools.shadowed():
            _log.warning("tool_shadowed", tool=name, reason=shadowed_by_plugin(name))
        if self.settings.demo:
            await self._register_demo_agent()
        await self.dispatcher.start()
        self.retention.start()
        self.services.lifecycle.started = True

    async def _register_demo_agent(self) -> None:
        from app.auth.keys import ANONYMOUS

        with contextlib.suppress(Conflict):  # there is one already, perhaps edited
            await self.services.agents.create(ANONYMOUS, DEMO_AGENT, None)

    def drain(self) -> None:
        """Take no more work and end every stream resumably; `/readyz` answers 503 from now on."""
        self.services.lifecycle.draining = True
        self.hub.drain()

    async def stop(self, grace_s: float | None = None) -> None:
        """`grace_s`: seconds for tool calls under way; `None` = the setting's."""
        self.drain()
        await self.retention.stop()
        await self.dispatcher.stop(self.settings.shutdown_grace_s if grace_s is None else grace_s)
        await self.models.close()
        await self.http_tools.aclose()
        self.services.tools.close()
        await self.database.stop()
        if self.tracing is not None:
            await self.tracing.close()


def build(settings: Settings) -> Parts:
    """Build all parts; nothing is opened yet. Raises `SettingsError`, `PluginError`, `InvalidRequest` (the database's address)."""
    metrics = Metrics(__version__) if settings.metrics else None
    database = open_database(settings.database_url, unwatched if metrics is None else metrics.flushed)
    stores = build_stores(database, _reveal(settings.secret_key))
    try:
        keys = KeyRing.parse(settings.api_keys.get_secret_value())
    except ValueError as error:
        raise SettingsError(f"RUNWIRE_API_KEYS cannot be used: {error}.") from None
    try:
        egress = EgressGuard(settings.egress_entries)
    except ValueError as error:
        raise SettingsError(f"RUNWIRE_EGRESS_ALLOW cannot be used: {error}.") from None
    try:
        cors_origins = parse_origins(settings.cors_origins)
    except ValueError as error:
        raise SettingsError(f"RUNWIRE_CORS_ORIGINS cannot be used: {error}.") from None
    plugins = PluginSet.load(
        settings.plugin_names, also=DEMO_TOOLS if settings.demo else (), approve_writes=settings.approve_writes
    )
    loop_plugins = LoopPlugins.load(settings.plugin_names)
    policy = None if settings.tool_policy is None else Policy.load(settings.tool_policy, settings.plugin_names)
    models = _models(settings, stores.secrets, egress)
    tracing = _tracing(settings, models)
    base_url = BaseUrl(settings.public_url)
    callbacks = Callbacks(stores.callback_key, lambda: base_url.value)
    http_tools = HttpToolClient(egress, callbacks=callbacks)
    store = StoreService(stores.items, new_id)
    tools = ToolService(
        stores.tools,
        stores.secrets,
        plugins,
        egress,
        http_tools,
        new_id=new_id,
        around=None if tracing is None else tracing.around,
        switches=stores.switches,
        signing=stores.signing,
        kept_bytes=stores.results.kept_bytes,
        authority=Authority(current_scopes=keys.current_scopes, policy=policy, tools_disabled=settings.tools_disabled),
        approve_writes=settings.approve_writes,
        store=store,
    )
    hook = HttpHookKind(HookClient(http_tools), egress, stores.secrets)
    middleware = MiddlewareSet.load(built_in(models, hook, settings.plugin_names), settings.plugin_names)
    agents = AgentService(stores.agents, models, tools, loop_plugins, middleware)
    assembler = LoopAssembler(models, tools, new_id, loop_plugins, stores.waits.call, middleware)
    hub = Hub()
    dispatcher = LocalDispatcher(
        store=stores.runs,
        waits=stores.waits,
        hub=hub,
        assembler=assembler,
        new_id=new_id,
        max_running=settings.max_concurrent_runs,
        max_queued=settings.max_queued_runs,
        observer=observers(
            *([] if tracing is None else [tracing.observer]),  # first: it looks at the run's own tools
            *([] if metrics is None else [metrics.runs]),
        ),
        turns=http_tools.turns,
    )
    streams = OpenStreams()
    if metrics is not None:
        metrics.watch(dispatcher, streams)
    runs = RunService(stores.runs, stores.waits, hub, dispatcher, agents, assembler, new_id)
    audit = AuditService(stores.audit)
    switches = SwitchService(
        stores.switches,
        stores.tools,
        lambda name: plugins.get(name) is not None,
        all_disabled=settings.tools_disabled,
    )
    services = Services(
        runs,
        agents,
        tools,
        models,
        CallbackService(stores.waits, dispatcher, hub, callbacks, http_tools.turns),
        switches,
        audit,
        CallResults(runs, audit, stores.results, tools, new_id),
        ThreadService(stores.threads, agents, new_id),
        store,
        keys,
        Lifecycle(),
        DatabasePing(database.ping),
        streams,
        metrics,
    )
    retention = Retention(stores.retention, settings.retention_days)
    return Parts(
        settings,
        services,
        database,
        hub,
        dispatcher,
        models,
        http_tools,
        plugins,
        retention,
        metrics,
        tracing,
        cors_origins,
        base_url,
    )


def _tracing(settings: Settings, models: ModelCatalog) -> Tracing | None:
    try:
        return open_tracing(os.environ, models.facts, version=__version__, secrets=_secrets(settings))
    except TracingError as error:
        raise SettingsError(str(error)) from error


def _secrets(settings: Settings) -> list[str]:
    given = (settings.secret_key, settings.openai_api_key, settings.anthropic_api_key)
    keys = [entry.strip().partition(":")[0] for entry in settings.api_keys.get_secret_value().split(",")]
    return [*keys, *(secret.get_secret_value() for secret in given if secret is not None)]


def _models(settings: Settings, secrets: SecretStore, egress: EgressGuard) -> ModelCatalog:
    plugins = ModelPlugins.load(settings.plugin_names)
    try:
        options = ModelOptions(
            openai_api_key=_reveal(settings.openai_api_key),
            openai_base_url=settings.openai_base_url,
            anthropic_api_key=_reveal(settings.anthropic_api_key),
            anthropic_base_url=settings.anthropic_base_url,
            aliases=read_aliases(settings.models.get_secret_value(), os.environ, plugins=plugins.names),
            plugins=plugins,
        )
        return ModelCatalog(options, secrets=secrets, guarded_transport=egress.transport, check_url=egress.check_url)
    except AliasError as error:
        raise SettingsError(f"RUNWIRE_MODELS cannot be used: {error}.") from None


def _reveal(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
