"""What callers post: RunCreate and AgentSpec, checked once at the border.

Fields of the contract that are not built yet are refused by name (`not_supported`), never ignored.
"""

import re
from typing import Annotated, Literal, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from app.agent.state_schema import MESSAGES, OWN
from app.agent.text_formats import TEXT_TYPES, template_of
from app.core.errors import FieldError, NotSupported
from app.core.ids import NAME_PATTERN

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Count = Annotated[int, Field(ge=0)]
JsonObject = dict[str, object]
"""Any JSON object: its values were checked by `decode_strict` already."""

Metadata = Annotated[dict[Annotated[str, Field(max_length=64)], object], Field(max_length=64)]
"""A caller's own labels: they are indexed, so there are few and their names are short."""


AGENT_TYPES = ("tool_calling", "react", "react_json", "structured_chat", "xml", "self_ask")
"""The built-in ones; a planner plugin's name is a type, too."""


class Spec(BaseModel):
    """Base of all bodies: unknown fields are refused, types are exact (`"3"` is not 3)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def not_supported(pointer: str, what: str) -> NotSupported:
    return NotSupported(f"{what} is not supported by this version.", errors=(FieldError(pointer, "not supported yet"),))


def _not_built(field: str, value: object, default: object) -> object:
    """`default`, which `null` stands for, too. Raises `NotSupported` for all else, whatever its type: it may not be ignored."""
    if value is None or (value == default and type(value) is type(default)):
        return default
    raise not_supported(f"/{field}", f"`{field}`")


def _nested(model: type[Spec], value: object, *at: str) -> JsonObject:
    """An object where a field takes other types, too: what was sent of it. `at`: where it stands in the field.

    Raises `ValueError` naming its first fault.
    """
    try:
        return model.model_validate(value).model_dump(exclude_unset=True, by_alias=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, (*at, *first["loc"])))
        unknown = first["type"] == "extra_forbidden"
        fault = "unknown field" if unknown else first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{place}: {fault}" if place else fault) from None


class LimitsSpec(Spec):
    """Caps that stop a run with `stop_reason: "usage_limit"`; `null` = no cap."""

    max_tool_calls: Count | None = None
    max_tool_calls_per_round: Annotated[int, Field(ge=1)] | None = 128
    max_repeats: Count | None = None
    max_total_tokens: Count | None = None
    max_cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class TrimSpec(Spec):
    """Which steps the model still sees: `{"keep_first","keep_last"}`, or `{"max_tokens","keep_first"}`."""

    keep_first: Count | None = None
    keep_last: Count | None = None
    max_tokens: Count | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.max_tokens is not None and self.keep_last is not None:
            raise ValueError("`max_tokens` says how many of the last steps are kept; leave `keep_last` out")
        if self.max_tokens is None and self.keep_first is None and self.keep_last is None:
            raise ValueError("say `keep_first`, `keep_last` or `max_tokens`")
        return self


class PluginRef(Spec):
    plugin: Name


class SettingsSpec(Spec):
    """The settings that a run may override by `config`. Names and defaults are AgentExecutor's where it has them."""

    tool_choice: str | JsonObject | None = "auto"
    parallel_tool_calls: bool = True
    max_parallel_tools: Annotated[int, Field(ge=1, le=1000)] = 16
    max_iterations: Count | None = 15
    max_execution_time: Annotated[float, Field(ge=0)] | None = None
    early_stopping_method: Literal["force", "generate"] = "force"
    handle_parsing_errors: bool | str | JsonObject = True
    handle_tool_errors: bool | str = True
    trim_intermediate_steps: int | JsonObject = -1
    return_intermediate_steps: bool = False
    stream_output: bool = True
    limits: LimitsSpec = LimitsSpec()

    @field_validator("handle_parsing_errors")
    @classmethod
    def _policy(cls, value: object) -> object:
        return _nested(PluginRef, cast("object", value)) if isinstance(value, dict) else value

    @field_validator("trim_intermediate_steps")
    @classmethod
    def _trim(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return _nested(PluginRef if "plugin" in value else TrimSpec, cast("object", value))


class PromptSpec(Spec):
    """A text agent's prompt: its template, and where the model stops (LangChain's names)."""

    template: str | None = None
    stop_sequence: bool | Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=4)] = (
        True
    )
    """`true` = the type's own words, `false` = none, or a list. Four is Chat Completions' own limit."""


class ApprovalSpec(Spec):
    """When a person is asked about a call: where its arguments fit `when`, and for how long (a week by default)."""

    when: JsonObject | None = None
    expires_s: Annotated[float, Field(gt=0, le=90 * 86400, allow_inf_nan=False)] | None = None


class MiddlewareSpec(Spec):
    """A middleware of an agent. What its `config` may hold is its own to say."""

    name: Name
    config: JsonObject = {}


class StateFieldSpec(Spec):
    """A field of the thread's state: what it may hold, and how an update changes it."""

    schema_: Annotated[JsonObject, Field(alias="schema")] = {}
    reducer: Name = "replace"
    """`replace`, `append`, `merge_by_id`, `merge_object`, `sum`, `max`, `union`, or a reducer plugin's name."""
    default: object = None
    """What a thread that does not have the field yet starts with; left out: it stays without."""


class AgentSpec(SettingsSpec):
    """An agent: its model, its tools, its settings."""

    type: str = "tool_calling"
    model: str | JsonObject
    instructions: str | None = None
    prompt: str | JsonObject | None = None
    tools: Annotated[list[str | JsonObject], Field(max_length=128)] = []
    interrupt_on: Annotated[dict[Name, bool | JsonObject], Field(max_length=128)] = {}
    """Tools whose calls wait for a person, besides those that ask for it themselves (LangChain's name)."""
    state_schema: Annotated[dict[Name, JsonObject], Field(max_length=64)] = {}
    """Fields of the thread's state beside `messages`: `{"schema": JSON Schema, "reducer": name, "default": value}` each."""
    context_schema: JsonObject | None = None
    """JSON Schema of a run's `context`."""
    output_schema: JsonObject | None = None
    """JSON Schema of a structured answer, which `output` then holds under `structured`."""
    output_strategy: Literal["auto", "tool", "provider"] = "auto"
    """How the model is asked for it: by a tool that it calls, or by its provider's own format for answers. For `tool_calling` agents."""
    middleware: Annotated[list[str | JsonObject], Field(max_length=32)] = []
    """What every run passes through, the first outermost: names, or `{"name", "config"}`."""

    @field_validator("type")
    @classmethod
    def _type(cls, value: str) -> str:
        if re.fullmatch(NAME_PATTERN, value) is None:
            raise ValueError(f"must be one of {', '.join(AGENT_TYPES)}, or a planner plugin's name")
        return value

    @field_validator("prompt")
    @classmethod
    def _prompt(cls, value: object, info: ValidationInfo) -> object:
        kind = info.data.get("type")
        if value is None or kind is None:
            return value
        if kind not in TEXT_TYPES:
            raise ValueError("is for text agents (type react, xml, …); an agent of this type has `instructions`")
        prompt = _nested(PromptSpec, cast("object", value)) if isinstance(value, dict) else cast("str", value)
        template_of(kind, prompt)
        return prompt

    @field_validator("interrupt_on")
    @classmethod
    def _rules(cls, value: dict[str, object]) -> dict[str, object]:
        return {
            name: _nested(ApprovalSpec, cast("object", rule), name) if isinstance(rule, dict) else rule
            for name, rule in value.items()
        }

    @field_validator("state_schema")
    @classmethod
    def _fields(cls, value: dict[str, object]) -> dict[str, object]:
        wrong = next((name for name in value if name == MESSAGES or name.startswith(OWN)), None)
        if wrong is not None:
            raise ValueError(f"`{wrong}` is the server's own field; name it otherwise")
        return {name: _nested(StateFieldSpec, field, name) for name, field in value.items()}

    @field_validator("middleware", mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        return [] if value is None else value

    @field_validator("middleware")
    @classmethod
    def _middleware(cls, value: list[object]) -> list[object]:
        named = [{"name": item} if isinstance(item, str) else item for item in value]
        return [_nested(MiddlewareSpec, item, str(place)) for place, item in enumerate(named)]

    @property
    def middleware_list(self) -> list[JsonObject]:
        """Each with its name."""
        return cast("list[JsonObject]", self.middleware)


class RegisteredAgentSpec(AgentSpec):
    """The body of `POST /agents`: an AgentSpec with its name."""

    name: Name
    description: str | None = None


class ToolCallSpec(Spec):
    id: Annotated[str, Field(min_length=1)]
    name: str
    args: JsonObject | str
    """Text where the model's JSON could not be parsed: as `GET /runs/{id}/messages` shows it."""


class MessageSpec(Spec):
    """A message in Chat Completions' shape (contract, section 2)."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | Annotated[list[JsonObject], Field(max_length=1024)] | None = None
    tool_calls: Annotated[list[ToolCallSpec], Field(max_length=1024)] = []
    tool_call_id: str | None = None
    name: str | None = None
    refusal: str | None = None
    status: Literal["success", "error"] | None = None

    @model_validator(mode="after")
    def _shape(self) -> "MessageSpec":
        if self.tool_calls and self.role != "assistant":
            raise ValueError("only an assistant message has `tool_calls`")
        if (self.role == "tool") != (self.tool_call_id is not None):
            raise ValueError("`tool_call_id` belongs to a message of role `tool`, which must have it")
        if self.status is not None and self.role != "tool":
            raise ValueError("only a tool message has `status`")
        if self.refusal is not None and self.role != "assistant":
            raise ValueError("only an assistant message has `refusal`")
        if self.content is None and not self.tool_calls and self.refusal is None:
            raise ValueError("`content` is missing")
        return self


class RunConfig(SettingsSpec):
    """Overrides of an agent's settings for one run: only the fields that are sent count."""


EventSelection = list[
    Literal[
        "run",
        "output",
        "action",
        "actions",
        "progress",
        "step",
        "steps",
        "state",
        "custom",
        "interrupt",
        "usage",
        "finish",
        "error",
        "end",
    ]
]


class RunCreate(Spec):
    """The body of `POST /runs`."""

    agent: Name | JsonObject
    input: str | JsonObject
    thread_id: str | None = None
    state: JsonObject = {}
    """Fields of the agent's `state_schema`, through their reducers: what the run begins with beside its input."""
    context: JsonObject = {}
    metadata: Metadata = {}
    config: RunConfig = RunConfig()
    on_disconnect: Literal["continue", "cancel"] = "continue"
    multitask_strategy: Literal["reject", "enqueue", "interrupt", "rollback"] = "reject"
    webhook: JsonObject | None = None
    stream: Annotated[EventSelection, Field(max_length=32)] | None = None

    @field_validator("stream", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """`"actions,steps"`, as in the query, stands for the list."""
        return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value

    @field_validator("config", mode="wrap")
    @classmethod
    def _in_config(cls, value: object, handler: ValidatorFunctionWrapHandler) -> RunConfig:
        try:
            return handler(value)
        except NotSupported as error:  # not a ValueError, so pydantic does not say where it was
            errors = tuple(FieldError(f"/config{item.pointer}", item.detail) for item in error.errors)
            raise NotSupported(error.message, errors=errors) from None

    @field_validator("webhook", mode="before")
    @classmethod
    def _no_webhook(cls, value: object) -> object:
        return _not_built("webhook", value, None)


def settings_json(spec: AgentSpec) -> dict[str, object]:
    """The part of an agent's spec that is not its model or tools, as stored."""
    return cast("dict[str, object]", spec.model_dump(exclude={"model", "tools", "middleware"}))
