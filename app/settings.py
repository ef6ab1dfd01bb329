"""The settings, read once: environment (`RUNWIRE_…`, `RUNWIRE_…_FILE`), then `runwire.toml`, then defaults."""

import json
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

OF_THE_COMMAND = frozenset(("RUNWIRE_CONFIG", "RUNWIRE_URL", "RUNWIRE_API_KEY"))
"""Variables that the command line reads, or that `load` looks at itself."""

LOOPBACK_HOSTS = frozenset(("127.0.0.1", "::1", "localhost"))


def _days(value: object) -> object:
    """`off`, `none` or nothing at all stand for no limit."""
    return None if isinstance(value, str) and value.strip().lower() in ("", "off", "none") else value


_Days = Annotated[float, Field(gt=0, le=36_500, allow_inf_nan=False)]


class Settings(BaseSettings):
    """Every setting of the contract's section 10 that this version has. Names are the fields in upper case, prefixed."""

    model_config = SettingsConfigDict(env_prefix="RUNWIRE_", extra="ignore", populate_by_name=True)

    env: Literal["development", "production"] = "development"
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    database_url: str = "sqlite:///./.runwire/runwire.db"
    api_keys: SecretStr = SecretStr("")
    secret_key: SecretStr | None = None
    public_url: Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$", max_length=2048)] | None = None
    """What tools reach this server under; `None` = the address it is bound to."""
    approve_writes: bool = False
    """Whether `write` tools ask a person first that do not say so themselves."""
    plugins: str = ""
    models: SecretStr = SecretStr("")
    """JSON text of model aliases (`app.models.aliases`); in `runwire.toml` a table. Secret, as addresses may be."""
    egress_allow: str = ""
    max_concurrent_runs: int = Field(1000, ge=1)
    max_queued_runs: int = Field(10_000, ge=0)
    max_connections: int = Field(10_000, ge=1)
    retention_days: Annotated[_Days | None, BeforeValidator(_days)] = 30.0
    """Days; `None` = for ever. 0 is refused: it is read both as "at once" and as "never"."""
    shutdown_grace_s: float = Field(8.0, ge=0)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"
    metrics: bool = True
    tool_policy: str | None = None
    """The name of the policy plugin that is asked about every tool call."""
    tools_disabled: bool = False
    """Stops every tool call of this server, whatever the switches of its tenants say."""
    cors_origins: str = ""
    demo: bool = False
    openai_api_key: SecretStr | None = Field(None, validation_alias="OPENAI_API_KEY")
    openai_base_url: str | None = Field(None, validation_alias="OPENAI_BASE_URL")
    anthropic_api_key: SecretStr | None = Field(None, validation_alias="ANTHROPIC_API_KEY")
    anthropic_base_url: str | None = Field(None, validation_alias="ANTHROPIC_BASE_URL")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)  # `read` looks at the environment, so that it can tell where a value came from

    @property
    def plugin_names(self) -> list[str]:
        return [name.strip() for name in self.plugins.split(",") if name.strip()]

    @property
    def egress_entries(self) -> list[str]:
        entries = [entry.strip() for entry in self.egress_allow.split(",") if entry.strip()]
        return [*entries, "127.0.0.0/8", "::1/128", "localhost"] if self.demo else entries


class SettingsError(Exception):
    """The settings cannot be used. The message names the setting and never holds a secret's value."""

    def __init__(self, *reasons: str) -> None:
        """`reasons`: a sentence for each fault."""
        super().__init__(" ".join(reasons))
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class Survey:
    """The settings as far as they can be read: a default stands in for each that has a fault."""

    settings: Settings
    sources: Mapping[str, str]
    """Where each came from: "default", "environment", "command line" or a file."""
    faults: Mapping[str, str]
    """A sentence for each that cannot be used, by field; `RUNWIRE_CONFIG` for the file itself."""


def load(environ: Mapping[str, str] | None = None, **overrides: object) -> Settings:
    """The settings, checked. `overrides` (from the command line) win over everything; `None` counts as not given.

    Raises `SettingsError`, also for what is unsafe.
    """
    found = survey(environ, **overrides)
    reasons = [*found.faults.values()] or unsafe(found.settings)
    if reasons:
        raise SettingsError(*reasons)
    return found.settings


def survey(environ: Mapping[str, str] | None = None, **overrides: object) -> Survey:
    """All that is given, safe or not, with all that is wrong with it."""
    environ = os.environ if environ is None else environ
    faults: dict[str, str] = {}
    values: dict[str, object] = {}
    try:
        values = {name: value for name, value in _from_toml(environ).items() if name in _FIELDS}
    except SettingsError as error:
        faults["RUNWIRE_CONFIG"] = str(error)
    if isinstance(values.get("models"), dict):
        values["models"] = json.dumps(values["models"], default=str)
    sources = dict.fromkeys(_FIELDS, "default") | dict.fromkeys(values, str(_toml_path(environ)))
    for name in _FIELDS:
        variable = variable_of(name)
        if variable in environ:
            values[name], sources[name] = environ[variable], "environment"
        file = environ.get(f"{variable}_FILE")
        if file is not None:
            values.pop(name, None)
            sources[name] = f"{variable}_FILE"
            try:
                values[name] = _from_file(f"{variable}_FILE", file)
            except SettingsError as error:
                faults[name] = str(error)
    for name, value in overrides.items():
        if value is not None:
            values[name], sources[name] = value, "command line"
            faults.pop(name, None)
    try:
        settings = Settings(**values)  # pyright: ignore[reportArgumentType]
    except ValidationError as error:
        wrong = {_field_of(item["loc"][0]) for item in error.errors(include_input=False, include_url=False)}
        for name in sorted(wrong):
            faults[name] = _misfit(name, values.pop(name), sources[name])
        settings = Settings(**values)  # pyright: ignore[reportArgumentType]
    return Survey(settings, sources, faults)


def _misfit(name: str, value: object, source: str) -> str:
    """What was given (never of a secret), and what fits."""
    text = str(value)
    hidden = "SecretStr" in str(Settings.model_fields[name].annotation) or (
        name.endswith("_url") and set("@?") & {*text}
    )
    given = "what it is set to" if hidden else repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
    return f"{variable_of(name)} cannot be {given} ({source}): it takes {_fits(name)}."


def _fits(name: str) -> str:
    """What a setting takes, in words, from what checks it."""
    if name in _FITS:
        return _FITS[name]
    schema = Settings.model_json_schema(by_alias=False)["properties"][name]
    schema = next((item for item in schema.get("anyOf", ()) if item["type"] != "null"), schema)
    if "enum" in schema:
        return " or ".join((", ".join(schema["enum"][:-1]), schema["enum"][-1]))
    kind = {"boolean": "true or false", "integer": "a whole number", "number": "a number"}.get(schema["type"], "a text")
    above, least, most = (schema.get(key) for key in ("exclusiveMinimum", "minimum", "maximum"))
    if least is not None and most is not None:
        return f"{kind} from {least:g} to {most:g}"
    bounds = ("" if above is None else f"above {above:g}", "" if least is None else f"from {least:g} on",
              "" if most is None else f"of at most {most:g}")  # fmt: skip
    return " ".join((kind, *filter(None, bounds)))


SHOWN = 80
"""Characters of a value that a message repeats."""

_FITS = {
    "retention_days": "a number of days above 0, or off",
    "public_url": "an http or https address without a query, such as https://runwire.example",
}
"""What no schema tells in words."""


def variable_of(name: str) -> str:
    """The name in the environment of a field of `Settings`."""
    return str(Settings.model_fields[name].validation_alias or f"RUNWIRE_{name.upper()}")


def _field_of(place: int | str) -> str:
    """The field of a complaint, which names those with an alias by that."""
    return next((name for name in _FIELDS if place in (name, variable_of(name))), str(place))


_FIELDS = frozenset(Settings.model_fields)


def unknown_names(environ: Mapping[str, str] | None = None) -> list[str]:
    """Settings that are given and mean nothing to this version: misspelt, or not built yet. Raises `SettingsError`."""
    environ = os.environ if environ is None else environ
    known = set(map(variable_of, Settings.model_fields))
    known |= {f"{name}_FILE" for name in known} | OF_THE_COMMAND
    named = [name for name in environ if name.startswith("RUNWIRE_") and name not in known]
    named += [name for name in _from_toml(environ) if name not in Settings.model_fields]
    return sorted(named)


def name_warnings(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each of the `unknown_names`. Raises `SettingsError`."""
    from difflib import get_close_matches

    variables = [variable_of(name) for name in Settings.model_fields]
    variables += [f"{variable}_FILE" for variable in variables]
    said: list[str] = []
    for name in unknown_names(environ):
        meant = get_close_matches(name, variables if name.startswith("RUNWIRE_") else _FIELDS, n=1)
        hint = f" Did you mean {meant[0]}?" if meant else ""
        said.append(f"{name} is no setting of this version and is not used.{hint}")
    return said


def _toml_path(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("RUNWIRE_CONFIG", "runwire.toml"))


def _from_file(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(f"{variable} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise SettingsError(f"{variable} names a file that is not UTF-8 text.") from None


def _from_toml(environ: Mapping[str, str]) -> dict[str, object]:
    path = _toml_path(environ)
    given = "RUNWIRE_CONFIG" in environ
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
            subject = f"RUNWIRE_CONFIG names {path}, which" if given else path
            raise SettingsError(f"{subject} is {kind}, and no file of settings.")
        return dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        if given:
            raise SettingsError(f"RUNWIRE_CONFIG names {path}, and there is no such file.") from None
        return {}
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"{path} cannot be read: {why}.") from error


def unsafe(settings: Settings) -> list[str]:
    """Why the server will not run with these settings, each reason a sentence; empty when they are safe."""
    reasons: list[str] = []
    keyless = not settings.api_keys.get_secret_value().strip()
    if keyless and settings.host not in LOOPBACK_HOSTS:
        reasons.append(
            f"Without RUNWIRE_API_KEYS the server listens on loopback only, not on {settings.host}."
            " Set RUNWIRE_API_KEYS=key:tenant (a key has 16 or more characters)."
        )
    if settings.env == "production":
        if keyless:
            reasons.append("RUNWIRE_ENV=production needs RUNWIRE_API_KEYS.")
        if settings.secret_key is None:
            reasons.append("RUNWIRE_ENV=production needs RUNWIRE_SECRET_KEY (or RUNWIRE_SECRET_KEY_FILE).")
        if settings.demo:
            reasons.append("RUNWIRE_ENV=production refuses the demo mode: it opens loopback to tool calls.")
    return reasons
