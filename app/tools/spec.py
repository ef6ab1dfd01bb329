"""The ToolSpec of the contract: read and checked once, at registration. What is not built yet is refused, never ignored."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from app.core.errors import FieldError, InvalidRequest
from app.core.ids import NAME_PATTERN
from app.tools.approval import rule_of
from app.tools.compiled import shown_parameters
from app.tools.concurrency_key import ConcurrencyKey
from app.tools.egress import EgressGuard
from app.tools.faults import escape
from app.tools.schema import check_schema
from app.tools.signing import key_of

MAX_FIELD_ERRORS = 20
"""Wrong places that are told of one body."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_RESERVED = frozenset({
    "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive",
    "te", "trailer", "upgrade", "expect", "accept-encoding", "authorization", "proxy-authorization",
    "proxy-connection", "idempotency-key", "traceparent", "tracestate", "baggage", "runwire-attempt",
})  # fmt: skip
"""Headers that are ours, or that would change what the request is."""

_Strict = ConfigDict(extra="forbid", strict=True)
_Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


class BearerAuth(BaseModel):
    model_config = _Strict
    type: Literal["bearer"]
    token: Annotated[str, Field(min_length=1, max_length=8192)] | None = None
    """Write only. A replacement may leave it out to keep the old one, as long as the origin stays the same."""

    @field_validator("token")
    @classmethod
    def _printable(cls, token: str | None) -> str | None:
        if token is not None and not re.fullmatch(r"[\x21-\x7e]+", token):
            raise ValueError("must be printable ASCII without spaces")
        return token


def checked_headers(headers: dict[str, str]) -> dict[str, str]:
    """Headers from outside that a request of ours may have. Raises `ValueError`."""
    if len(headers) > 64:
        raise ValueError("at most 64 headers")
    for name, value in headers.items():
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{name[:64]!r} is not a header name")
        if lower == "authorization":
            raise ValueError("use auth for Authorization")
        if lower in _RESERVED or lower.startswith("webhook-"):
            raise ValueError(f"{name} is set by the server")
        if not re.fullmatch(r"[\t\x20-\x7e]{0,8192}", value) or value != value.strip():
            raise ValueError(f"the value of {name} must be printable ASCII without line breaks")
    return headers


class HttpCall(BaseModel):
    model_config = _Strict
    url: str
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: dict[str, str] = {}
    auth: BearerAuth | None = None

    @field_validator("headers")
    @classmethod
    def _plain(cls, headers: dict[str, str]) -> dict[str, str]:
        return checked_headers(headers)


class Retry(BaseModel):
    model_config = _Strict
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3


class ApprovalSpec(BaseModel):
    """When a person is asked: where the arguments fit `when`, and how long they have (a week by default)."""

    model_config = _Strict
    when: dict[str, object] | None = None
    expires_s: Annotated[float, Field(gt=0, le=90 * 86400, allow_inf_nan=False)] | None = None


class ToolSpec(BaseModel):
    """A tool as the contract describes it (section 4), as far as it is built."""

    model_config = _Strict
    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    description: Annotated[str, Field(max_length=16384)] = ""
    parameters: dict[str, object] = {"type": "object", "properties": {}}
    http: HttpCall | None = None
    """Without it the caller runs the tool: the run waits for its answer."""
    effect: Literal["pure", "read", "write"] = "write"
    idempotent: bool | None = None
    signing_secret: str | None = None
    scopes: Annotated[list[Annotated[str, Field(min_length=1, max_length=128)]], Field(max_length=64)] = []
    return_direct: bool = False
    constants: dict[str, object] = {}
    timeout_s: _Seconds = 30.0
    deadline_s: Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)] = 3600.0
    retry: Retry = Retry()
    max_result_bytes: Annotated[int, Field(ge=1, le=16 * 1024 * 1024)] = 1024 * 1024
    output_schema: dict[str, object] | None = None
    """What the output must fit (JSON Schema 2020-12); another one ends the step as `error`, `output_invalid`."""
    coerce: bool = False
    """Take `"3"` for 3, `"true"` for true, 3.0 for 3 where the schema asks for it."""
    requires_approval: bool | ApprovalSpec | None = None
    """Whether a person is asked before a call; `null` is the server's default (RUNWIRE_APPROVE_WRITES for `write` tools)."""
    status_url: str | None = None
    """Asked what became of a call whose outcome is uncertain."""
    concurrency_key: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Calls whose keys are equal run one after another, in call order. `{argument}` stands for an argument's value."""
    max_concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """How many calls of this tool run at once in a process; the others wait, first come first served."""

    @field_validator("concurrency_key")
    @classmethod
    def _readable(cls, key: str | None) -> str | None:
        if key is not None:
            ConcurrencyKey(key)
        return key

    @field_validator("signing_secret")
    @classmethod
    def _usable(cls, secret: str | None) -> str | None:
        if secret is not None:
            key_of(secret)
        return secret

    def to_json(self) -> dict[str, object]:
        """The spec with its defaults, secrets still in it."""
        body = cast("dict[str, object]", self.model_dump(exclude={"idempotent"}))
        body["idempotent"] = self.idempotent if self.idempotent is not None else self.effect != "write"
        return body


def read_spec(body: Mapping[str, object], guard: EgressGuard, *, pointer: str = "") -> ToolSpec:
    """Check a spec from outside. `pointer`: where it stands in the request's body.

    Raises `InvalidRequest` for what is wrong, each with its place.
    """
    parameters = body.get("parameters")
    if parameters is None or parameters == {}:
        body = {**body, "parameters": {"type": "object", "properties": {}}}
    elif isinstance(parameters, dict) and "type" not in parameters:
        body = {**body, "parameters": {"type": "object", **cast("dict[str, object]", parameters)}}
    try:
        spec = ToolSpec.model_validate(body)
    except ValidationError as error:
        raise InvalidRequest("The tool is not valid.", errors=field_errors(error, pointer)) from error
    if spec.http is not None:
        guard.check_url(spec.http.url, pointer=f"{pointer}/http/url")
    else:
        _check_by_caller(spec, pointer)
    rule_of(spec.to_json()["requires_approval"], f"{pointer}/requires_approval")
    if spec.status_url is not None:
        guard.check_url(spec.status_url, pointer=f"{pointer}/status_url")
    check_schema(spec.parameters, f"{pointer}/parameters")
    if spec.output_schema is not None:
        check_schema(spec.output_schema, f"{pointer}/output_schema", of_object=False)
    _check_constants(spec, pointer)
    _check_key(spec, pointer)
    return spec


def field_errors(error: ValidationError, pointer: str) -> tuple[FieldError, ...]:
    """Pydantic's complaints as places in the body, the first `MAX_FIELD_ERRORS`."""
    return tuple(
        FieldError(
            pointer + "".join(f"/{escape(str(part))}" for part in item["loc"]),
            item["msg"].removeprefix("Value error, "),
        )
        for item in error.errors(include_url=False, include_context=False, include_input=False)[:MAX_FIELD_ERRORS]
    )


def _check_by_caller(spec: ToolSpec, pointer: str) -> None:
    """The server sends nothing for a tool that the caller runs: what belongs to a request is a mistake."""
    for name in ("status_url", "signing_secret"):
        if getattr(spec, name) is not None:
            raise InvalidRequest(
                f"A tool that the caller runs has no {name}.",
                errors=(FieldError(f"{pointer}/{name}", "only a tool with http has one"),),
            )


def _check_key(spec: ToolSpec, pointer: str) -> None:
    """A placeholder must be an argument that a call can have."""
    if spec.concurrency_key is None:
        return
    declared = spec.parameters.get("properties")
    names = {*(cast("dict[str, object]", declared) if isinstance(declared, dict) else {}), *spec.constants}
    try:
        ConcurrencyKey(spec.concurrency_key).check(names)
    except ValueError as error:
        raise InvalidRequest(
            "The concurrency_key names no argument.", errors=(FieldError(f"{pointer}/concurrency_key", str(error)),)
        ) from error


def _check_constants(spec: ToolSpec, pointer: str) -> None:
    """Constants that the schema declares must fit it; the others are added as they are."""
    declared = spec.parameters.get("properties")
    names = cast("dict[str, object]", declared) if isinstance(declared, dict) else {}
    given = {name: value for name, value in spec.constants.items() if name in names}
    if given:
        whole = {"required", "minProperties", "dependentRequired", "dependentSchemas", "oneOf", "anyOf", "allOf", "if"}
        alone = {key: value for key, value in spec.parameters.items() if key not in whole}
        faults = check_schema(alone, f"{pointer}/parameters").faults(given)
        if faults:
            raise InvalidRequest(
                "A constant does not fit the schema.",
                errors=tuple(FieldError(f"{pointer}/constants{fault.pointer}", fault.detail) for fault in faults),
            )
    check_schema(shown_parameters(spec.parameters, spec.constants), f"{pointer}/parameters")
