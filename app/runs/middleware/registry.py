"""The registry of middleware: built-in kinds and plugins by name, and an agent's list of them checked, pinned and bound."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from app.agent.middleware import NO_HOOKS, Hooks, Middleware
from app.core.errors import FieldError, InvalidRequest, MiddlewareFailed
from app.core.plugins import PluginError, load_plugins
from app.runs.middleware.api import Middleware as Plugin
from app.runs.middleware.kinds import Kind, Scope
from app.runs.middleware.plugin_kind import PluginKind

ENTRY_POINT_GROUP = "runwire.middleware"

Pin = Mapping[str, object]
"""`{"name", "label", "config"}` of one middleware of an agent, as it is kept with it and with its runs."""


class MiddlewareSet:
    """Made once, at start-up."""

    def __init__(self, kinds: Iterable[Kind] = (), plugins: Iterable[Plugin] = ()) -> None:
        """Raises `PluginError`: a plugin that cannot be used, or that has a name twice or a built-in's."""
        self._kinds: dict[str, Kind] = {kind.name: kind for kind in kinds}
        built_in = set(self._kinds)
        for plugin in plugins:
            kind = PluginKind(plugin)
            if kind.name in built_in:
                raise PluginError(f"Middleware {kind.name!r}: this is one of the server's own; rename it.")
            if kind.name in self._kinds:
                raise PluginError(f"There are two middleware named {kind.name!r}; rename one.")
            self._kinds[kind.name] = kind

    @classmethod
    def load(cls, kinds: Iterable[Kind], names: Sequence[str] = (), *, entry_points: bool = True) -> "MiddlewareSet":
        """The built-in `kinds`, and plugins from `module[:attr]` names and the entry points of `runwire.middleware`."""
        return cls(kinds, load_plugins(Plugin, names, ENTRY_POINT_GROUP if entry_points else None))

    def page(self, *, after: str | None, limit: int) -> list[dict[str, object]]:
        """What callers may know of each, in name order."""
        names = [name for name in sorted(self._kinds) if after is None or name > after]
        return [
            {
                "name": name,
                "description": self._kinds[name].description,
                "config_schema": self._kinds[name].config_schema,
                "state_schema": self._kinds[name].state_schema,
            }
            for name in names[:limit]
        ]

    async def pin(
        self, tenant: str, entries: Sequence[Mapping[str, object]], pointer: str, old: Sequence[Pin] = ()
    ) -> list[dict[str, object]]:
        """An agent's list, checked. `old`: that of the version it replaces.

        Raises `InvalidRequest` (`unknown_middleware`, `duplicate_middleware`, a config that does not fit).
        """
        pins: list[dict[str, object]] = []
        before = {str(pin["label"]): cast("Mapping[str, object]", pin["config"]) for pin in old}
        seen: set[str] = set()
        for index, entry in enumerate(entries):
            at, name = f"{pointer}/{index}", str(entry["name"])
            kind = self._kinds.get(name)
            if kind is None:
                there = ", ".join(sorted(self._kinds)) or "none"
                raise InvalidRequest(
                    f"There is no middleware `{name}`; there are: {there}.",
                    code="unknown_middleware",
                    errors=(FieldError(at, "unknown middleware"),),
                )
            given = cast("Mapping[str, object]", entry.get("config") or {})
            label = kind.label(given)
            config = await kind.pin(tenant, given, f"{at}/config", before.get(label))
            if label in seen:
                raise InvalidRequest(
                    f"There are two middleware `{label}`; leave one out.",
                    code="duplicate_middleware",
                    errors=(FieldError(at, "one like this came before"),),
                )
            seen.add(label)
            pins.append({"name": name, "label": label, "config": dict(config)})
        return pins

    def state(self, pins: Sequence[Pin], own: Mapping[str, object], pointer: str) -> dict[str, object]:
        """The fields that the middleware bring, beside those that the agent declares itself (`own`).

        Raises `InvalidRequest` (`state_conflict`) where a field is declared in two ways.
        """
        fields: dict[str, object] = {}
        for index, pin in enumerate(pins):
            for name, declared in self._kinds[str(pin["name"])].state_schema.items():
                other = fields.get(name, own.get(name, declared))
                if other != declared:
                    raise InvalidRequest(
                        f"The state field `{name}` of the middleware `{pin['name']}` is declared otherwise, too.",
                        code="state_conflict",
                        errors=(FieldError(f"{pointer}/{index}", f"`{name}` is declared in another way elsewhere"),),
                    )
                fields[name] = dict(declared)
        return {name: declared for name, declared in fields.items() if name not in own}

    async def bind(self, pins: Sequence[Pin], scope: Scope) -> Hooks:
        """An agent's middleware in one run. Raises `MiddlewareFailed` where the server does not have one any more."""
        if not pins:
            return NO_HOOKS
        chain: list[Middleware] = []
        for pin in pins:
            kind = self._kinds.get(str(pin["name"]))
            if kind is None:
                raise MiddlewareFailed(f"This server does not have the middleware `{pin['name']}` any more.")
            chain.append(await kind.bind(cast("Mapping[str, object]", pin["config"]), scope))
        return Hooks(scope.run.id, chain, functools.partial(_repeatable, scope))


def _repeatable(scope: Scope, tool: str) -> bool:
    found = scope.tools.find(tool)
    return found is not None and found.idempotent


def without_secrets(value: object) -> object:
    """A pinned config as callers see it: what was written only is left out."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {name: without_secrets(item) for name, item in members.items() if not _is_reference(item)}
    if isinstance(value, list):
        return [without_secrets(item) for item in cast("list[object]", value)]
    return value


def _is_reference(value: object) -> bool:
    return isinstance(value, dict) and "secret_ref" in value


def shown(pins: Sequence[Pin]) -> list[dict[str, object]]:
    """An agent's middleware as callers see it."""
    return [{"name": pin["name"], "config": without_secrets(pin["config"])} for pin in pins]
