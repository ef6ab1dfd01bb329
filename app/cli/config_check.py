"""The check of `runwire config check`: the settings as they are in force, without their secrets, and what is wrong."""

import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic import SecretStr

from app.cli.serve import EXIT_SETTINGS as EXIT_UNUSABLE
from app.core.errors import RunwireError
from app.core.values import immutable
from app.settings import Settings, SettingsError, name_warnings, survey, unsafe, variable_of
from app.storage.look import registered_tools
from app.tools.plugins import PluginError, PluginSet
from app.tools.public import shadowed_by_plugin
from app.wiring import build

__all__ = ["EXIT_UNUSABLE", "EXIT_WARNINGS", "Check", "Setting", "examine", "lines", "redacted"]

EXIT_WARNINGS = 1

UNUSABLE = "(cannot be used)"
"""In the place of a value that has a fault."""

_OF_SAFETY = frozenset(("api_keys", "demo", "env", "host", "secret_key"))
"""Without one of these nobody can tell whether the others are safe."""

_SECRET_PART = re.compile(r"(?i)([?&][^=&#]*(?:pass|key|token|secret|auth|sig)[^=&#]*=)[^&#]*")


@immutable
class Setting:
    """One setting in force. `value` is JSON; of a secret it only says whether it is set."""

    name: str
    value: str | int | float | bool | None
    source: str


@immutable
class Check:
    """What was found. With `errors` the server does not start; `settings` is empty when their file could not be read."""

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
    """Do what `serve` does before it opens anything, and go on after a fault. `overrides`: options of the command line."""
    found = survey(environ, **overrides)
    errors = list(found.faults.values())
    shown = tuple(
        Setting(
            variable_of(name),
            UNUSABLE if name in found.faults else _shown(name, getattr(found.settings, name)),
            found.sources[name],
        )
        for name in Settings.model_fields
    )
    if "RUNWIRE_CONFIG" in found.faults:  # what else is set stands in it
        return Check((), (), tuple(errors))
    if not found.faults.keys() & _OF_SAFETY:
        errors += unsafe(found.settings)
    faults, shadowed = _built(found.settings)
    return Check(shown, (*name_warnings(environ), *_risks(found.settings), *shadowed), (*errors, *faults))


def _built(settings: Settings) -> tuple[list[str], list[str]]:
    """What the server's parts refuse, and warnings. Each setting that is refused once is left out, and the next one found."""
    errors: list[str] = []
    left = settings
    for _ in Settings.model_fields:
        try:
            plugins = build(left).plugins
        except (SettingsError, PluginError, RunwireError) as error:
            errors.append(str(error))
            without = left.model_copy(update={name: _default(name) for name in _refused(error)})
            if without == left:
                break
            left = without
            continue
        plugins.close()
        return errors, [shadowed_by_plugin(name) for name in _registered(settings, plugins) if plugins.get(name)]
    return errors, []


def _refused(error: Exception) -> list[str]:
    """The fields that an error is about."""
    if isinstance(error, PluginError):
        return ["plugins", "tool_policy"]
    if isinstance(error, RunwireError):
        return ["database_url" if error.code == "invalid_database_url" else "secret_key"]
    named = set(re.findall(r"[A-Z]+(?:_[A-Z]+)+", str(error)))
    return [name for name in Settings.model_fields if variable_of(name) in named]


def _default(name: str) -> object:
    return Settings.model_fields[name].get_default()


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
