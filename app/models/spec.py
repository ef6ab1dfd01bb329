"""Model specs: what an AgentSpec's `model` may be, checked and made ready to be pinned."""

import re
from collections.abc import Collection
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from app.core.errors import FieldError, InvalidRequest
from app.core.values import immutable
from app.models import anthropic_wire
from app.models.openai_wire import LEFT_OUT_BY_NULL, RESERVED_PARAMS
from app.models.scripted import error_code

MAX_URL = 2048
"""Characters of a `base_url` (the egress rules' own limit)."""

MAX_FIELD_ERRORS = 20
"""Wrong places that are told of one spec."""

MAX_TOLD = 10
"""Configured aliases that a refusal names."""


@immutable
class CheckedModel:
    """A checked spec. `pinned` is JSON without secrets; `api_key` still has to be stored and referred to from it."""

    pinned: dict[str, object]
    api_key: str | None = None


def check_model(
    spec: object, *, pointer: str, plugins: Collection[str] = (), aliases: Collection[str] = ()
) -> CheckedModel:
    """Check an AgentSpec's `model`, text or object, that is no alias. `pointer` is where it stands in the body.

    `plugins`: providers beside the built-in ones. `aliases`: what an unknown model is told of.
    Raises `InvalidRequest` (`unknown_model`, `invalid_request`).
    """
    if isinstance(spec, str):
        provider, _, model = spec.partition(":")
        body: dict[str, object] = {"provider": provider, "model": model}
        at = ""
    elif isinstance(spec, dict):
        body = dict(cast("dict[str, object]", spec))
        provider = body.get("provider")
        at = "/provider"
        if not isinstance(provider, str):
            raise _invalid(pointer + at, 'a model object needs a provider, e.g. "openai"')
    else:
        raise _invalid(pointer, 'must be "provider:model" or an object with provider and model')
    kind = _KINDS.get(provider) or (_OfPlugin if provider in plugins else None)
    if kind is None:
        raise unknown_model(provider, aliases, pointer + at, plugins)
    if isinstance(spec, str):
        if kind is _OfPlugin and not body["model"]:
            raise _invalid(pointer, f'name a model too, as in "{provider}:NAME"')
        if kind is _Scripted:
            raise _invalid(pointer, 'a scripted model is an object: {"provider": "scripted", "script": [turn, …]}')
        if issubclass(kind, _Remote) and not body["model"]:
            raise InvalidRequest(
                f'Cannot use this model: name one, as in "{provider}:NAME".',
                code="unknown_model",
                errors=(FieldError(pointer, "the model's name is missing"),),
            )
        if not body["model"]:
            del body["model"]
    try:
        checked = kind.model_validate(body, strict=True)
    except ValidationError as error:
        raise refusal(error, pointer) from None  # the cause would show the input, and the key with it
    return checked.checked()


def _invalid(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest(f"The model is not valid: {detail}.", errors=(FieldError(pointer, detail),))


def unknown_model(name: str, aliases: Collection[str], pointer: str, plugins: Collection[str] = ()) -> InvalidRequest:
    """A refusal that says what there is, at most `MAX_TOLD` aliases and model plugins by name."""
    shown = re.sub(r"[^\x20-\x7e]", "?", name)[:64]
    detail = (
        f'unknown model "{shown}"; use "openai:NAME", "anthropic:NAME", "demo", or an object with provider and model'
    )
    if aliases or plugins:
        named = [*sorted(aliases), *(f'"{plugin}:NAME"' for plugin in sorted(plugins))]
        more = f" and {len(named) - MAX_TOLD} more (GET /models)" if len(named) > MAX_TOLD else ""
        detail += f"; configured here: {', '.join(named[:MAX_TOLD])}{more}"
    return InvalidRequest(
        f"Cannot use this model: {detail}.", code="unknown_model", errors=(FieldError(pointer, detail),)
    )


def refusal(error: ValidationError, pointer: str) -> InvalidRequest:
    errors = tuple(
        FieldError(pointer + "".join(f"/{_escape(part)}" for part in item["loc"]), item["msg"])
        for item in error.errors(include_url=False, include_context=False, include_input=False)[:MAX_FIELD_ERRORS]
    )
    return InvalidRequest("The model is not valid; see errors.", errors=errors)


def _escape(part: int | str) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


def _check_base_url(url: str) -> str:
    if not re.match(r"https?://[^/?#@\s\\]+(/[^?#\s\\]*)?$", url):
        raise ValueError("must be an http(s) URL without user, query or fragment, e.g. https://host/v1")
    return url.rstrip("/")


def _check_params(params: dict[str, object]) -> dict[str, object]:
    for name, value in params.items():
        if name in RESERVED_PARAMS:
            raise ValueError(f"{name} cannot be set here")
        if name in LEFT_OUT_BY_NULL and name != "stream_options" and value is not None:
            raise ValueError(f"set {name} on the agent; here only null is taken, which leaves it out of requests")
    return params


def _check_anthropic_params(params: dict[str, object]) -> dict[str, object]:
    for name in params:
        if name in anthropic_wire.RESERVED_PARAMS:
            raise ValueError(f"{name} cannot be set here")
    for name in ("anthropic_beta", "betas"):
        given = params.get(name)
        betas = cast("list[object]", given) if isinstance(given, list) else [] if given is None else [given]
        if not all(isinstance(beta, str) and re.fullmatch(r"[\x21-\x7e]{1,256}", beta) for beta in betas):
            raise ValueError(f"{name} must be a list of the names of betas")
    if not isinstance(params.get("cache_control"), dict | None):
        raise ValueError('cache_control must be an object, e.g. {"type": "ephemeral"}')
    return params


def _check_code(code: str) -> str:
    if error_code(code) is None:
        raise ValueError("unknown error code; use rate_limited, unavailable, timeout, auth, bad_request, …")
    return code


_ModelName = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]
_Key = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[\x21-\x7e]+$")]
_Milliseconds = Annotated[float, Field(ge=0, le=3_600_000, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0)]


class _Remote(_Strict):
    provider: str
    model: _ModelName
    base_url: Annotated[str, StringConstraints(max_length=MAX_URL), AfterValidator(_check_base_url)] | None = None
    """As the provider's SDK takes it. A tenant's own: under the egress rules, never with the operator's key."""
    api_key: _Key | None = None
    params: dict[str, object] = {}

    def checked(self) -> CheckedModel:
        pinned: dict[str, object] = {"provider": self.provider, "model": self.model, "params": self.params}
        if self.base_url is not None:
            pinned["base_url"] = self.base_url
        return CheckedModel(pinned, self.api_key)


class _OpenAI(_Remote):
    params: Annotated[dict[str, object], AfterValidator(_check_params)] = {}


class _Anthropic(_Remote):
    params: Annotated[dict[str, object], AfterValidator(_check_anthropic_params)] = {}


class _DemoParams(_Strict):
    delay_ms: _Milliseconds = 15
    """Between two words of the answer."""


class _Demo(_Strict):
    provider: Literal["demo"]
    model: _ModelName = "demo"
    params: _DemoParams = _DemoParams()

    def checked(self) -> CheckedModel:
        return CheckedModel({"provider": "demo", "model": self.model, "params": self.params.model_dump()})


class _OfPlugin(_Strict):
    provider: str
    model: _ModelName
    params: dict[str, object] = {}

    def checked(self) -> CheckedModel:
        return CheckedModel({"provider": self.provider, "model": self.model, "params": self.params})


class _Call(_Strict):
    id: str | None = None
    name: str
    args: dict[str, object] = {}


class _InvalidCall(_Strict):
    id: str | None = None
    name: str = ""
    args: str = ""
    error: str | None = None


class _Usage(_Strict):
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    total_tokens: _Count = 0
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0


class _Error(_Strict):
    code: Annotated[str, AfterValidator(_check_code)]
    after_ms: _Milliseconds = 0


class _Turn(_Strict):
    content: str | None = None
    tool_calls: Annotated[list[_Call], Field(fail_fast=True)] | None = None
    invalid_tool_calls: Annotated[list[_InvalidCall], Field(fail_fast=True)] | None = None
    delay_ms: _Milliseconds = 0
    chunk_delay_ms: _Milliseconds = 0
    """After each delta; for streams that take their time."""
    chunk_size: Annotated[int, Field(ge=1)] | None = None
    usage: _Usage | None = None
    error: _Error | None = None


class _Scripted(_Strict):
    provider: Literal["scripted"]
    model: _ModelName = "scripted"
    script: Annotated[list[_Turn], Field(fail_fast=True)]
    """The first wrong turn ends the check: a million of them would be a million complaints."""
    repeat: bool = False

    def checked(self) -> CheckedModel:
        # Only what was given: a pinned script is read again for every run, and lives in its row.
        script = [turn.model_dump(exclude_unset=True) for turn in self.script]
        return CheckedModel({"provider": "scripted", "model": self.model, "script": script, "repeat": self.repeat})


_KINDS: dict[str, type[_Remote] | type[_Demo] | type[_Scripted]] = {
    "openai": _OpenAI, "anthropic": _Anthropic, "demo": _Demo, "scripted": _Scripted,
}  # fmt: skip

PROVIDERS = frozenset(_KINDS) | {"alias"}
"""Names that no alias and no plugin may take."""
