"""The settings, read once: environment (`RUNWIRE_…`, `RUNWIRE_…_FILE`), then `runwire.toml`, then defaults."""

import json
import os
import tomllib
from collections.abc import Mapping
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
    """The settings cannot be used. The message names the setting and never holds its value."""


def load(environ: Mapping[str, str] | None = None, **overrides: object) -> Settings:
    """The settings, checked. `overrides` (from the command line) win over everything; `None` counts as not given.

    Raises `SettingsError`, also for what is unsafe.
    """
    settings, _ = read(environ, **overrides)
    reasons = unsafe(settings)
    if reasons:
        raise SettingsError(" ".join(reasons))
    return settings


def read(environ: Mapping[str, str] | None = None, **overrides: object) -> tuple[Settings, dict[str, str]]:
    """The settings, safe or not, and where each came from: "default", "environment", "command line" or a file.

    Raises `SettingsError`.
    """
    environ = os.environ if environ is None else environ
    path = _toml_path(environ)
    values = {name: value for name, value in _from_toml(environ).items() if name in _FIELDS}
    if isinstance(values.get("models"), dict):
        values["models"] = json.dumps(values["models"], default=str)
    sources = dict.fromkeys(_FIELDS, "default") | dict.fromkeys(values, str(path))
    for name in _FIELDS:
        variable = variable_of(name)
        if variable in environ:
            values[name], sources[name] = environ[variable], "environment"
        file = environ.get(f"{variable}_FILE")
        if file is not None:
            values[name], sources[name] = _from_file(f"{variable}_FILE", file), f"{variable}_FILE"
    for name, value in overrides.items():
        if value is not None:
            values[name], sources[name] = value, "command line"
    try:
        settings = Settings(**values)  # pyright: ignore[reportArgumentType]
    except ValidationError as error:
        items = error.errors(include_input=False, include_url=False)
        said = "; ".join(f"{_said_name(item['loc'][0])}: {item['msg']}" for item in items)
        raise SettingsError(f"The settings cannot be used: {said}.") from None
    return settings, sources


def variable_of(name: str) -> str:
    """The name in the environment of a field of `Settings`."""
    return str(Settings.model_fields[name].validation_alias or f"RUNWIRE_{name.upper()}")


def _said_name(place: int | str) -> str:
    return variable_of(place) if isinstance(place, str) and place in _FIELDS else str(place)


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
    if not path.is_file():
        if "RUNWIRE_CONFIG" in environ:
            raise SettingsError(f"RUNWIRE_CONFIG names {path}, and there is no such file.")
        return {}
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.") from error


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
