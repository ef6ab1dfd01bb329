"""Plugins: what a module of in-process extensions offers, found by its name or by entry point."""

import importlib
import importlib.metadata
from collections.abc import Sequence
from types import ModuleType
from typing import TypeVar, cast


class Plugin:
    """Base of what a plugin module may offer: a tool, a model, …. A module may hold several kinds."""

    __slots__ = ()


class PluginError(Exception):
    """A plugin could not be loaded. The message says which, and what to change."""


KindT = TypeVar("KindT", bound=Plugin)


def load_plugins(kind: type[KindT], names: Sequence[str], group: str | None) -> list[KindT]:
    """The plugins of one kind in `module[:attr]` names, then in the entry points of `group`, each once.

    A module without `attr` stands for everything in it. An entry point must hold one of its group's kind; a name may
    hold other kinds only. Raises `PluginError`.
    """
    found: dict[int, KindT] = {}
    for name in names:
        found.update((id(item), item) for item in plugins_in(name) if isinstance(item, kind))
    for point in () if group is None else importlib.metadata.entry_points(group=group):
        items = [item for item in plugins_in(point.value) if isinstance(item, kind)]
        if not items:
            raise PluginError(f"Plugin {point.value!r}: the entry point group {group} does not fit what is there.")
        found.update((id(item), item) for item in items)
    return list(found.values())


def plugins_in(name: str) -> list[Plugin]:
    """All that `module[:attr]` stands for, at least one. Raises `PluginError`."""
    module_name, _, attribute = name.strip().partition(":")
    try:
        value: object = importlib.import_module(module_name)
    except Exception as error:
        raise PluginError(f"Plugin {name!r}: cannot import {module_name!r}: {type(error).__name__}: {error}") from error
    for part in filter(None, attribute.split(".")):
        if not hasattr(value, part):
            raise PluginError(f"Plugin {name!r}: {module_name!r} has no attribute {attribute!r}.")
        value = getattr(value, part)
    if isinstance(value, ModuleType):
        value = list(vars(value).values())
    items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)
    found = [item for item in items if isinstance(item, Plugin)]
    if not found:
        raise PluginError(
            f"Plugin {name!r}: no tool there, and no other plugin; mark functions with @runwire.tool or @runwire.model."
        )
    return found
