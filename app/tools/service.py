"""The tools of a tenant: registered, replaced, listed, pinned for a run and bound to it, or called once by hand."""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast
from urllib.parse import urlsplit

import orjson

from app.agent.ports import PlannedCall, ToolOutcome, ToolRunner
from app.core.actions import AgentAction
from app.core.clock import rfc3339
from app.core.errors import Conflict, FieldError, Forbidden, InvalidRequest, NotFound, ToolDisabled
from app.core.idempotency import IdempotencyKey
from app.core.ids import IdFactory, new_id
from app.core.principal import Principal
from app.core.registry import Registry, SecretStore, Versioned
from app.core.trace import CURRENT, TraceContext, derived_trace_id
from app.tools.authority import DEFAULT, Authority
from app.tools.compiled import CompiledTool
from app.tools.dispatch import Dispatch
from app.tools.egress import EgressGuard
from app.tools.http_callback import HttpToolClient
from app.tools.keeping import Keeping, KeptBytes
from app.tools.plugins import PluginSet
from app.tools.port import ALL_TOOLS, SigningStore, SwitchStore
from app.tools.public import plugin_json, registered_json
from app.tools.runner import BoundTools, ToolRunContext
from app.tools.secret_refs import SpecSecrets
from app.tools.spec import ToolSpec, read_spec
from app.tools.store_api import StoreAccess
from app.tools.stored import compile_stored
from app.tools.switches import stop_json

ToolPage = tuple[list[dict[str, object]], str | None]
"""Public JSON of tools in name order, and the cursor of the next page."""
Pins = list[dict[str, object]]

CACHED = 4096
"""How many compiled tool versions are kept ready."""


class ToolService:
    """Use cases of tools. Another tenant's tools are absent; plugins belong to everyone and cannot be changed.

    A plugin serves in the place of a registered tool of its name, which is kept: it serves again when the plugin is gone.
    """

    def __init__(
        self,
        registry: Registry,
        secrets: SecretStore,
        plugins: PluginSet,
        egress: EgressGuard,
        http: HttpToolClient,
        *,
        new_id: IdFactory = new_id,
        around: Callable[[ToolRunner, TraceContext], ToolRunner] | None = None,
        switches: SwitchStore | None = None,
        signing: SigningStore | None = None,
        authority: Authority = DEFAULT,
        approve_writes: bool = False,
        store: StoreAccess | None = None,
        kept_bytes: KeptBytes | None = None,
    ) -> None:
        """`store`: what plugins keep things in. `kept_bytes`: what runs have stored of long results. `around` watches calls made outside a run; it is given the trace that they stand in."""
        self._switches = switches
        self._approve_writes = approve_writes
        self._store = store
        self._kept_bytes = kept_bytes
        self._authority = authority
        self._around = around
        self._registry = registry
        self._secrets = SpecSecrets(secrets, signing)
        self._plugins = plugins
        self._egress = egress
        self._http = http
        self._new_id = new_id
        self._compiled: dict[tuple[str, str, object], CompiledTool] = {}

    # --- the registry, for the API ---------------------------------------------------------------------------------

    async def create(
        self, principal: Principal, body: Mapping[str, object], idempotency: IdempotencyKey | None = None
    ) -> tuple[dict[str, object], bool]:
        """Register a tool; its public JSON with `signing_secret`, and whether this was a replay of the same request.

        A replay shows the secret that was first shown, `None` once another one has taken its place.
        Raises `InvalidRequest`, `NotSupported`, `Conflict` (`tool_exists`).
        """
        spec = read_spec(body, self._egress)
        if self._plugins.get(spec.name) is not None:
            raise Conflict(f"There is a plugin tool named {spec.name!r}; choose another name.", code="tool_exists")
        _require_token(spec)
        stored = await self._secrets.put(principal.tenant, spec, made=True)
        try:
            versioned, first = await self._registry.create(principal.tenant, spec.name, stored.spec, idempotency)
        except BaseException:
            await self._secrets.forget(principal.tenant, stored.fresh)
            raise
        if first is None:
            return await self._shown_once(versioned), False
        await self._secrets.forget(principal.tenant, stored.fresh)
        made = await self._registry.version(principal.tenant, spec.name, first)
        same = made is not None and made.spec["signing_secret"] == versioned.spec["signing_secret"]
        secret = await self._secrets.unrotated(principal.tenant, versioned.spec) if same else None
        return {**registered_json(versioned), "signing_secret": secret}, True

    async def put(self, principal: Principal, name: str, body: Mapping[str, object]) -> tuple[dict[str, object], bool]:
        """Replace or create; `True` when it was new. Runs in flight keep their version.

        The body's `name` may be left out and must otherwise be the same. Without a secret the old one is kept; a
        bearer token only while the URL's origin stays the same. Raises as `create`, and `Conflict` (`plugin_tool`).
        """
        if self._plugins.get(name) is not None:
            raise _plugin_conflict(name)
        spec = read_spec({"name": name, **body}, self._egress)
        if spec.name != name:
            raise InvalidRequest(
                "The name in the body is not the one in the address.",
                errors=(FieldError("/name", f"must be {name!r}"),),
            )
        old = await self._registry.get(principal.tenant, name)
        _require_token(spec, None if old is None else old.spec)
        stored = await self._secrets.put(principal.tenant, spec, made=True, old=None if old is None else old.spec)
        try:
            versioned, created = await self._registry.put(principal.tenant, name, stored.spec)
        except BaseException:
            await self._secrets.forget(principal.tenant, stored.fresh)
            raise
        if stored.made and (created or spec.signing_secret is None):
            return await self._shown_once(versioned), created
        return registered_json(versioned), created

    async def get(self, principal: Principal, name: str, *, source: str | None = None) -> dict[str, object]:
        """`source`: as of `list`; `None`: the one that serves. Raises `NotFound` (`tool_not_found`)."""
        plugin = self._plugins.get(name)
        if source == "registered" or (source is None and plugin is None):
            shown = registered_json(await self._newest(principal.tenant, name), shadowed=plugin is not None)
        elif plugin is not None:
            shown = plugin_json(plugin)
        else:
            raise _not_found(name)
        await self._add_stops(principal.tenant, [shown])
        return shown

    async def list(
        self, principal: Principal, *, source: str | None = None, after: str | None = None, limit: int = 20
    ) -> ToolPage:
        """A page in name order and the cursor of the next one. `source`: "registered", "plugin" or `None` for both."""
        if source not in (None, "registered", "plugin"):
            raise InvalidRequest(
                'source must be "registered" or "plugin".', errors=(FieldError("/source", "unknown source"),)
            )
        found: dict[str, dict[str, object]] = {}
        if source != "plugin":
            rows = await self._registry.page(principal.tenant, after=after, limit=limit + 1)
            shadowed = self._plugins.get
            found = {row.name: registered_json(row, shadowed=shadowed(row.name) is not None) for row in rows}
        if source != "registered":
            for name in self._plugins.names:
                plugin = self._plugins.get(name)
                if plugin is not None and (after is None or name > after):
                    found[name] = plugin_json(plugin)
        names = sorted(found)
        page = [found[name] for name in names[:limit]]
        await self._add_stops(principal.tenant, page)
        return page, names[limit - 1] if len(names) > limit else None

    async def delete(self, principal: Principal, name: str) -> None:
        """Delete a registered tool, also one whose name a plugin has. Its next call in a run is denied.

        Raises `NotFound` (`tool_not_found`), `Conflict` (`plugin_tool`: there is only the plugin).
        """
        old = await self._registry.get(principal.tenant, name)
        if old is None:
            raise _not_found(name) if self._plugins.get(name) is None else _plugin_conflict(name)
        if not await self._registry.delete(principal.tenant, name):
            raise _not_found(name)
        await self._secrets.forget_all(principal.tenant, old.spec)

    async def rotate_secret(
        self, principal: Principal, name: str, idempotency: IdempotencyKey | None = None
    ) -> tuple[dict[str, object], bool]:
        """A new signing secret, shown once, beside which the old one signs for 24 h; and whether this was a replay.

        A replay shows the same secret, `None` once another one has taken its place.
        Raises `NotFound` (`tool_not_found`), `Conflict` (`plugin_tool`, `conflict`).
        """
        if self._plugins.get(name) is not None:
            raise _plugin_conflict(name)
        tool = await self._newest(principal.tenant, name)
        secret, until, replayed = await self._secrets.rotate(principal.tenant, tool.spec, idempotency)
        return {"signing_secret": secret, "old_secret_expires_at": rfc3339(until)}, replayed

    async def shadowed(self) -> Sequence[str]:
        """Names under which tenants have registered tools that a plugin keeps from serving."""
        if not self._plugins.names:
            return ()
        return sorted(name for name in await self._registry.names_in_use() if self._plugins.get(name) is not None)

    # --- runs ------------------------------------------------------------------------------------------------------

    async def pin(self, principal: Principal, tools: Sequence[str | Mapping[str, object]], *, pointer: str) -> Pins:
        """What an agent's `tools` stand for now, as JSON to be kept with the run: names with versions, inline specs.

        Raises `InvalidRequest` (`unknown_tool`, `duplicate_tool`, or a wrong inline spec), `Forbidden`
        (`missing_scope`: inline tools need `tools:write`). `pointer`: where `tools` stands in the body.
        """
        checked: dict[str, ToolSpec | None] = {}
        for index, item in enumerate(tools):
            place = f"{pointer}/{index}"
            spec = None
            if isinstance(item, str):
                name = item
            elif principal.may("tools:write"):
                spec = read_spec(item, self._egress, pointer=place)
                _require_token(spec, pointer=place)
                name = spec.name
            else:
                raise Forbidden("Inline tools need the scope tools:write.", code="missing_scope")
            if name in checked:
                raise InvalidRequest(
                    f"There are two tools named {name!r}.",
                    code="duplicate_tool",
                    errors=(FieldError(place, "a tool of this name came before"),),
                )
            checked[name] = spec
        return [
            await self._pin(principal.tenant, name, spec, f"{pointer}/{index}")
            for index, (name, spec) in enumerate(checked.items())
        ]

    async def bind(self, pins: Sequence[Mapping[str, object]], run: ToolRunContext) -> BoundTools:
        """The tools of a run, ready to be called. A pinned tool that cannot be called any more is denied at its call."""
        tools: dict[str, CompiledTool] = {}
        withdrawn: set[str] = set()
        tenant = run.principal.tenant
        for pin in pins:
            name = cast("str", pin["name"])
            tool = self._compiled.get((tenant, name, pin.get("version"))) if pin["source"] == "registered" else None
            if tool is None:
                tool = await self._resolve(tenant, pin)
            if tool is None:
                withdrawn.add(name)
            else:
                tools[name] = tool
        keeping = Keeping(run.run_id, self._kept_bytes)
        run = replace(run, authority=self._authority, store=self._store, keeping=keeping)
        return BoundTools(tools, run, withdrawn=frozenset(withdrawn))

    async def invoke(
        self,
        principal: Principal,
        name: str,
        arguments: object,
        *,
        idempotency_key: str | None = None,
        trace: TraceContext | None = None,
    ) -> dict[str, object]:
        """Call a tool once, outside a run: the envelope, with the `status` beside it.

        The same `idempotency_key` gives the tool the same call id and key. `trace`: the caller's, which the call
        continues. Raises `NotFound` (`tool_not_found`),
        `InvalidRequest` (arguments that are not an object).
        """
        if not isinstance(arguments, dict):
            raise InvalidRequest("arguments must be an object.", errors=(FieldError("/arguments", "not an object"),))
        pin: dict[str, object] = {"source": "plugin", "name": name}
        if self._plugins.get(name) is None:
            newest = await self._newest(principal.tenant, name)
            pin = {"source": "registered", "name": name, "version": newest.version}
        run = ToolRunContext(
            principal=principal,
            run_id=None,
            thread_id=None,
            record_dispatch=functools.partial(self._check_switch, principal.tenant),
            new_id=self._new_id,
            may_wait=False,
        )
        bound = await self.bind([pin], run)
        action = AgentAction(name, cast("dict[str, object]", arguments))
        call_id = (
            self._new_id()
            if idempotency_key is None
            else _derived_id(principal.tenant, name, idempotency_key, action.tool_input)
        )
        trace = trace or TraceContext(derived_trace_id(call_id))
        CURRENT.set(trace.unrecorded())
        runner = bound if self._around is None else self._around(bound, trace)
        outcome = await runner.run(PlannedCall(1, 1, call_id, action))
        assert isinstance(outcome, ToolOutcome)  # nothing waits outside a run
        return {"status": outcome.status, **outcome.envelope}

    def close(self) -> None:
        """Let go of what its plugins hold: their threads, and the policy's."""
        self._plugins.close()
        self._authority.close()

    # --- inside ----------------------------------------------------------------------------------------------------

    async def _add_stops(self, tenant: str, shown: Sequence[dict[str, object]]) -> None:
        """Tell of each tool what stops its calls: the switch for all tools, or its own."""
        if self._switches is None:
            return
        switches = {switch.name: switch for switch in await self._switches.in_force(tenant)}
        for tool in shown:
            tool["disabled"] = stop_json(switches.get(ALL_TOOLS) or switches.get(cast("str", tool["name"])))

    async def _check_switch(self, tenant: str, dispatch: Dispatch, /) -> None:
        """A call outside a run has no journal; it is only stopped by what stops the others."""
        switch = None if self._switches is None else await self._switches.stopping(tenant, dispatch.tool)
        if switch is not None:
            raise ToolDisabled(switch.said())

    async def _newest(self, tenant: str, name: str) -> Versioned:
        found = await self._registry.get(tenant, name)
        if found is None:
            raise _not_found(name)
        return found

    async def _pin(self, tenant: str, name: str, spec: ToolSpec | None, pointer: str) -> dict[str, object]:
        if spec is not None:
            stored = await self._secrets.put(tenant, spec, made=False)
            return {"source": "inline", "name": name, "spec": stored.spec}
        if self._plugins.get(name) is not None:
            return {"source": "plugin", "name": name}
        found = await self._registry.get(tenant, name)
        if found is None:
            raise InvalidRequest(
                f"There is no tool named {name[:64]!r}.",
                code="unknown_tool",
                errors=(FieldError(pointer, "unknown tool"),),
            )
        return {"source": "registered", "name": name, "version": found.version}

    async def _resolve(self, tenant: str, pin: Mapping[str, object]) -> CompiledTool | None:
        name = cast("str", pin["name"])
        if pin["source"] == "plugin":
            return self._plugins.get(name)
        if pin["source"] == "inline":
            spec = cast("dict[str, object]", pin["spec"])
            key = (tenant, name, hashlib.sha256(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)).digest())
            return self._compiled.get(key) or await self._compile(key, spec, None)
        version = cast("int", pin["version"])
        row = await self._registry.version(tenant, name, version)
        return None if row is None else await self._compile((tenant, name, version), row.spec, version)

    async def _compile(
        self, key: tuple[str, str, object], spec: Mapping[str, object], version: int | None
    ) -> CompiledTool | None:
        secrets = await self._secrets.reveal(key[0], spec)
        if secrets is None:
            return None
        tool = compile_stored(spec, secrets, version, self._http, approve_writes=self._approve_writes)
        while len(self._compiled) >= CACHED:
            self._compiled.pop(next(iter(self._compiled)), None)
        self._compiled[key] = tool
        return tool

    async def _shown_once(self, versioned: Versioned) -> dict[str, object]:
        secrets = await self._secrets.reveal(versioned.tenant, versioned.spec)
        body = registered_json(versioned)
        body["signing_secret"] = None if secrets is None else secrets.signing
        return body


def _require_token(spec: ToolSpec, old: Mapping[str, object] | None = None, *, pointer: str = "") -> None:
    """A bearer token may only be left out where an old one stays with the same origin: it must not be led elsewhere."""
    if spec.http is None or spec.http.auth is None or spec.http.auth.token is not None:
        return
    http = cast("dict[str, object]", (old or {}).get("http") or {})
    before = urlsplit(str(http.get("url", "")))
    now = urlsplit(spec.http.url)
    if http.get("auth") is None or (before.scheme, before.netloc) != (now.scheme, now.netloc):
        raise InvalidRequest(
            "The bearer token is missing.", errors=(FieldError(f"{pointer}/http/auth/token", "give the token"),)
        )


def _derived_id(tenant: str, name: str, key: str, arguments: object) -> str:
    """The same id for the same key and arguments, in the form of a UUIDv8 (RFC 9562: a hash of our own).

    Other arguments are another call: a receiver that knows the id must not answer them with the first one's result.
    """
    said = orjson.dumps(["invoke", tenant, name, key, arguments], option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(said).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def _not_found(name: str) -> NotFound:
    return NotFound(f"There is no tool named {name[:64]!r}.", code="tool_not_found")


def _plugin_conflict(name: str) -> Conflict:
    return Conflict(f"{name!r} is a plugin of this server and cannot be changed here.", code="plugin_tool")
