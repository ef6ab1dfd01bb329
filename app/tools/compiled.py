"""A tool made ready to run: all that a call needs, worked out once for each version."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, cast

from app.agent.ports import ToolDefinition
from app.core.values import immutable
from app.tools.approval import ApprovalRule
from app.tools.attempt import Executor
from app.tools.coercion import Coercion
from app.tools.plugin_api import Effect
from app.tools.schema import ArgumentSchema
from app.tools.turns import CallLine

Source = Literal["registered", "plugin", "inline"]


@immutable
class CompiledTool:
    name: str
    source: Source
    version: int | None
    """`None` for plugins and inline tools."""
    definition: ToolDefinition
    schema: ArgumentSchema
    executor: Executor
    effect: Effect
    idempotent: bool
    scopes: tuple[str, ...] = ()
    return_direct: bool = False
    constants: Mapping[str, object] = field(default_factory=dict[str, object])
    timeout_s: float = 30.0
    deadline_s: float = 3600.0
    max_attempts: int = 1
    max_result_bytes: int = 1 << 20
    by_caller: bool = False
    """The caller of a run runs it, and answers for it."""
    approval: tuple[ApprovalRule, ...] = ()
    """When a person is asked before it is called."""
    text_key: str = "input"
    """Where a text `tool_input` goes: the only property of the parameters, or `input`."""
    coercion: Coercion | None = None
    output: ArgumentSchema | None = None
    """What its output must fit."""
    output_schema: Mapping[str, object] | None = None
    """The same as it is shown to whoever answers in its place."""
    line: CallLine | None = None
    """Where its calls wait for their turn; most have none."""
    status: Executor | None = None
    """How it is asked what became of a call."""


def shown_parameters(parameters: Mapping[str, object], constants: Mapping[str, object]) -> dict[str, object]:
    """The schema as the model sees it: without the properties the server fills in itself."""
    if not constants:
        return dict(parameters)
    shown = dict(parameters)
    properties = shown.get("properties")
    if isinstance(properties, dict):
        shown["properties"] = {
            name: schema for name, schema in cast("dict[str, object]", properties).items() if name not in constants
        }
    required = shown.get("required")
    if isinstance(required, list):
        shown["required"] = [name for name in cast("list[object]", required) if name not in constants]
    return shown


def text_key_of(parameters: Mapping[str, object]) -> str:
    properties = parameters.get("properties")
    names = list(cast("dict[str, object]", properties)) if isinstance(properties, dict) else []
    return names[0] if len(names) == 1 else "input"
