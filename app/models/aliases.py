"""Model aliases: the operator's names for models, with their address, key, params, prices and deadlines (RUNWIRE_MODELS)."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, NoReturn, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from app.core.errors import InvalidRequest
from app.core.ids import NAME_PATTERN
from app.core.values import immutable
from app.models.http import Timeouts
from app.models.prices import Prices
from app.models.retries import Retries
from app.models.spec import PROVIDERS, check_model, refusal, unknown_model

REMOTE = frozenset(("openai", "anthropic"))
"""Providers behind HTTP: only they have keys, deadlines and retries."""

_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_LITERAL_KEYS = frozenset(("api_key", "apikey", "key", "token", "secret", "authorization", "headers"))


class AliasError(Exception):
    """RUNWIRE_MODELS cannot be used. The message names the alias and the field, never a value."""


@immutable
class Alias:
    """One configured model, checked."""

    name: str
    provider: str
    model: str
    spec: dict[str, object]
    """The pinned spec that it stands for (`provider`, `model`, `params`, `base_url`, `script`, …), without a key."""
    api_key: str | None = field(default=None, repr=False)
    prices: Prices | None = None
    timeouts: Timeouts | None = None
    """`None`: the server's own."""
    retries: Retries | None = None
    description: str | None = None

    def to_json(self) -> dict[str, object]:
        """What callers may know of it: no key, no address, no params (some gateways take keys there)."""
        return {
            "name": self.name,
            "source": "alias",
            "provider": self.provider,
            "model": self.model,
            "description": self.description,
            "prices": None if self.prices is None else self.prices.to_json(),
        }


Aliases = Mapping[str, Alias]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, strict=True)


_Price = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
_Pause = Annotated[float, Field(ge=0, le=3_600, allow_inf_nan=False)]


class _Prices(_Strict):
    input_per_mtok: _Price
    output_per_mtok: _Price
    cache_read_per_mtok: _Price | None = None
    cache_write_per_mtok: _Price | None = None


class _Timeouts(_Strict):
    connect_s: _Seconds = Timeouts().connect_s
    first_token_s: _Seconds = Timeouts().first_token_s
    between_chunks_s: _Seconds = Timeouts().between_chunks_s
    total_s: _Seconds = Timeouts().total_s


class _Retries(_Strict):
    max_attempts: Annotated[int, Field(ge=1, le=10)] = Retries().max_attempts
    initial_s: _Pause = Retries().initial_s
    max_s: _Pause = Retries().max_s
    max_retry_after_s: _Pause = Retries().max_retry_after_s


class _AliasFields(_Strict):
    """The fields that only an alias has; the others are the provider's own and are checked as an agent's model is."""

    api_key_env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)] | None = None
    api_key_file: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None
    prices: _Prices | None = None
    timeouts: _Timeouts | None = None
    retries: _Retries | None = None
    description: Annotated[str, StringConstraints(max_length=2000)] | None = None


def read_aliases(text: str, environ: Mapping[str, str], *, plugins: Collection[str] = ()) -> dict[str, Alias]:
    """The aliases of `text`, JSON `{"name": {…}}`; empty text has none. Keys are read from `environ` and files now.

    `plugins`: providers beside the built-in ones. Raises `AliasError`.
    """
    if not text.strip():
        return {}
    try:
        value: object = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        if isinstance(error, _Repeated):
            raise AliasError("it holds a name twice") from None
        raise AliasError("it is not valid JSON") from None
    if not isinstance(value, dict):
        raise AliasError('it must be an object of aliases: {"name": {"provider": …, "model": …}}')
    table = cast("dict[str, object]", value)
    return {name: _alias(name, body, table, environ, plugins) for name, body in table.items()}


class _Repeated(ValueError):
    """A JSON object with one name twice: which of the two counts nobody can know."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Repeated
    return made


def _alias(
    name: str, body: object, table: Mapping[str, object], environ: Mapping[str, str], plugins: Collection[str]
) -> Alias:
    if not re.fullmatch(NAME_PATTERN, name):
        shown = re.sub(r"[^\x20-\x7e]", "?", name)[:64]
        raise AliasError(f'the name "{shown}" must match {NAME_PATTERN}')
    if name in PROVIDERS or name in plugins:
        _refuse(name, "", "this is a provider's name; choose another")
    if not isinstance(body, dict):
        _refuse(name, "", "must be an object with provider and model")
    fields = cast("dict[str, object]", body)
    provider = _provider(name, fields, table, plugins)
    literal = next((item for item in fields if item.lower() in _LITERAL_KEYS), None)
    if literal is not None:
        _refuse(name, literal, "a key does not belong here; name it with api_key_env or api_key_file")
    own = {key: value for key, value in fields.items() if key in _AliasFields.model_fields}
    try:
        extra = _AliasFields.model_validate(own)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        _refuse(name, ".".join(map(str, first["loc"])), first["msg"])
    if provider not in REMOTE:
        for item in ("api_key_env", "api_key_file", "timeouts", "retries"):
            if item in own:
                _refuse(name, item, f"has no effect with the provider {provider}")
    spec = {key: value for key, value in fields.items() if key not in own}
    try:
        checked = check_model(spec, pointer="", plugins=plugins)
    except InvalidRequest as error:
        fault = error.errors[0]
        _refuse(name, fault.pointer.lstrip("/").replace("/", "."), fault.detail)
    return Alias(
        name=name,
        provider=provider,
        model=str(checked.pinned["model"]),
        spec=checked.pinned,
        api_key=_key(name, extra, environ),
        prices=None if extra.prices is None else Prices(**extra.prices.model_dump()),
        timeouts=None if extra.timeouts is None else Timeouts(**extra.timeouts.model_dump()),
        retries=None if extra.retries is None else Retries(**extra.retries.model_dump()),
        description=extra.description,
    )


def _provider(name: str, fields: Mapping[str, object], table: Mapping[str, object], plugins: Collection[str]) -> str:
    provider = fields.get("provider")
    if not isinstance(provider, str):
        _refuse(name, "provider", "missing; name a provider, e.g. openai")
    if provider == "alias" or provider in table:
        _refuse(name, "provider", "an alias cannot stand for another alias")
    if provider not in PROVIDERS and provider not in plugins:
        known = ", ".join(sorted({*PROVIDERS, *plugins} - {"alias"}))
        _refuse(name, "provider", f"unknown; use one of {known}")
    return provider


def _key(name: str, fields: _AliasFields, environ: Mapping[str, str]) -> str | None:
    if fields.api_key_env is not None and fields.api_key_file is not None:
        _refuse(name, "api_key_file", "give either api_key_env or api_key_file")
    if fields.api_key_env is not None:
        at, key = "api_key_env", environ.get(fields.api_key_env)
        if key is None:
            _refuse(name, at, "the environment has no variable of this name")
    elif fields.api_key_file is not None:
        at = "api_key_file"
        try:
            key = Path(fields.api_key_file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            _refuse(name, at, "the file cannot be read")
    else:
        return None
    if not _KEY.fullmatch(key.strip()):
        _refuse(name, at, "the key is empty, or has characters that no HTTP header can hold")
    return key.strip()


def _refuse(name: str, at: str, detail: str) -> NoReturn:
    shown = re.sub(r"[^\x20-\x7e]", "?", at)[:200]
    raise AliasError(f'alias "{name}": {shown}: {detail}' if at else f'alias "{name}": {detail}')


# --- naming one --------------------------------------------------------------------------------------------------------


class _Reference(_Strict):
    provider: str
    model: Annotated[str, Field(max_length=256)]
    params: dict[str, object] = {}


def reference_of(
    spec: object, aliases: Aliases, *, pointer: str, plugins: Collection[str] = ()
) -> dict[str, object] | None:
    """The pinned reference of a spec that names an alias: `"fast"`, `"alias:fast"`, `{"provider": "alias", "model", "params"}`.

    `None` for any other spec. The alias's own fields are not in it: they are looked up when the model is built, so a
    new key or address holds for runs that wait. Raises `InvalidRequest` (`unknown_model`, `invalid_request`).
    """
    if isinstance(spec, str):
        if spec in aliases:
            return {"provider": "alias", "model": spec}
        provider, _, name = spec.partition(":")
        if provider != "alias":
            return None
        reference, at = _Reference(provider="alias", model=name), pointer
    elif isinstance(spec, dict) and cast("dict[str, object]", spec).get("provider") == "alias":
        try:
            reference, at = _Reference.model_validate(spec), f"{pointer}/model"
        except ValidationError as error:
            raise refusal(error, pointer) from None
    else:
        return None
    alias = aliases.get(reference.model)
    if alias is None:
        raise unknown_model(reference.model, tuple(aliases), at, plugins)
    pinned: dict[str, object] = {"provider": "alias", "model": alias.name}
    if reference.params:
        check_overridden(alias, reference.params, pointer=pointer, plugins=plugins)
        pinned["params"] = reference.params
    return pinned


def check_overridden(
    alias: Alias, params: Mapping[str, object], *, pointer: str, plugins: Collection[str] = ()
) -> Mapping[str, object]:
    """The alias's spec with a caller's `params` over its own. Raises `InvalidRequest`."""
    own = cast("Mapping[str, object]", alias.spec.get("params") or {})
    return check_model({**alias.spec, "params": {**own, **params}}, pointer=pointer, plugins=plugins).pinned
