"""The check of `runwire config check`: the settings as they are in force, without their secrets, and what is wrong."""

import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic import SecretStr

from app.cli.serve import EXIT_SETTINGS as EXIT_UNUSABLE
from app.core.errors import RunwireError
from app.core.values import immutable
from app.settings import Settings, SettingsError, name_warnings, read, unsafe, variable_of
from app.storage.look import registered_tools
from app.tools.plugins import PluginError, PluginSet
from app.tools.public import shadowed_by_plugin
from app.wiring import build

__all__ = ["EXIT_UNUSABLE", "EXIT_WARNINGS", "Check", "Setting", "examine", "lines", "redacted"]

EXIT_WARNINGS = 1

_SECRET_PART = re.compile(r"(?i)([?&][^=&#]*(?:pass|key|token|secret|auth|sig)[^=&#]*=)[^&#]*")


@immutable
class Setting:
    """One setting in force. `value` is JSON; of a secret it only says whether it is set."""

    name: str
    value: str | int | float | bool | None
    source: str


@immutable
class Check:
    """What was found. With `errors` the server does not start; `settings` is empty when they could not even be read."""

    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]
    errors: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        return {
            "ok": not self.errors,
            "settings": [{"name": item.name, "value": item.value, "source": item.source} for item in self.settings],
            "warnings": list(self.warnings),
            "errors": list(self.errors),
        }


def examine(environ: Mapping[str, str] | None = None, **overrides: object) -> Check:
    """Do what `serve` does before it opens anything. `overrides`: options of the command line."""
    try:
        settings, sources = read(environ, **overrides)
        warnings = name_warnings(environ)
    except SettingsError as error:
        return Check((), (), (str(error),))
    shown = tuple(
        Setting(variable_of(name), _shown(name, getattr(settings, name)), sources[name])
        for name in Settings.model_fields
    )
    errors = unsafe(settings)
    shadowed: list[str] = []
    try:
        plugins = build(settings).plugins
        plugins.close()
        shadowed += [shadowed_by_plugin(name) for name in _registered(settings, plugins) if plugins.get(name)]
    except (SettingsError, PluginError, RunwireError) as error:
        errors.append(str(error))
    return Check(shown, (*warnings, *_risks(settings), *shadowed), tuple(errors))


def _registered(settings: Settings, plugins: PluginSet) -> Sequence[str]:
    """In name order. Without plugins nobody asks."""
    return sorted(registered_tools(settings.database_url)) if plugins.names else ()


def _risks(settings: Settings) -> list[str]:
    """What works for now and will not later."""
    if settings.secret_key is None and not settings.database_url.startswith("sqlite:"):
        return ["RUNWIRE_SECRET_KEY is not set: on Postgres the first secret that has to be stored will be refused."]
    return []


def _shown(name: str, value: object) -> str | int | float | bool | None:
    if isinstance(value, SecretStr):
        return "set" if value.get_secret_value().strip() else "not set"
    if value is None:
        return "not set" if Settings.model_fields[name].default is None and name != "retention_days" else None
    if isinstance(value, bool | int | float):
        return value
    text = str(value) or "not set"
    return redacted(text) if name.endswith("_url") else text


def redacted(url: str) -> str:
    """An address without its password. Where it has no clear form, more is hidden rather than less."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return "[redacted]" if re.search(r"[@=]", url) else url
    before, at, after = rest.rpartition("@")
    if ":" in before:
        before = before.partition(":")[0] + ":[redacted]"
    elif before and not scheme.startswith(("postgres", "sqlite")):
        before = "[redacted]"
    return _SECRET_PART.sub(r"\1[redacted]", f"{scheme}://{before}{at}{after}")


def lines(found: Check) -> Iterator[str]:
    """The settings as a table: name, value, source."""
    rows = [(item.name, _text(item.value), item.source) for item in found.settings]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for name, value, source in rows:
        yield f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}"


def _text(value: str | float | bool | None) -> str:
    if value is None:
        return "off"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
