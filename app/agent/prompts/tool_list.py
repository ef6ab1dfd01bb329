"""The tool list inside a prompt: what a model without native tool calls is told of its tools."""

from collections.abc import Mapping, Sequence
from typing import cast

from app.agent.ports import ToolDefinition
from app.core.json import encode_text


def described(tools: Sequence[ToolDefinition]) -> str:
    """A line a tool, as LangChain writes them: `name(argument, argument) - description`."""
    return "\n".join(_line(tool) for tool in tools)


def described_with_arguments(tools: Sequence[ToolDefinition]) -> str:
    """The same with each argument's JSON Schema: `name(argument) - description, args: {…}`."""
    return "\n".join(f"{_line(tool)}, args: {encode_text(_arguments(tool))}" for tool in tools)


def names(tools: Sequence[ToolDefinition]) -> str:
    return ", ".join(tool.name for tool in tools)


def _line(tool: ToolDefinition) -> str:
    return f"{tool.name}({', '.join(_arguments(tool))}) - {tool.description}"


def _arguments(tool: ToolDefinition) -> Mapping[str, object]:
    properties = tool.parameters.get("properties")
    return cast("dict[str, object]", properties) if isinstance(properties, dict) else {}
