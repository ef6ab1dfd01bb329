"""A tool's input as a text agent writes it: text, or its arguments as JSON where no text can be meant."""

from collections.abc import Sequence
from typing import cast

from app.agent.parsers.json_blob import FENCE
from app.agent.ports import ToolDefinition
from app.core.actions import AgentAction
from app.core.errors import InvalidRequest
from app.core.json import decode_strict


class TextInputs:
    """One run's tools, by what a text given to them stands for.

    A text is the argument of a tool with one parameter (the tool boundary puts it there). Where that cannot be meant, it
    is read as JSON: an object becomes the arguments of a tool with several parameters, and the one parameter of a tool
    that takes no text gets its value (`5`, or an object that names it: `{"count": 5}`). A tool without parameters that
    takes no others gets none, whatever was written (`none`). What is no such JSON stays the text it is, and the tool's
    schema says what is wrong with it. LangChain refuses several parameters in text agents.
    """

    __slots__ = ("_tools",)

    def __init__(self, tools: Sequence[ToolDefinition]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def read(self, action: AgentAction) -> AgentAction:
        """The action with its arguments where its text can only stand for them."""
        text = action.tool_input
        tool = self._tools.get(action.tool)
        if tool is None or not isinstance(text, str):
            return action
        parameters = _object(tool.parameters.get("properties"))
        name = next(iter(parameters), None)
        if name is None:
            closed = tool.parameters.get("additionalProperties") is False
            return AgentAction(action.tool, {}, action.log) if closed else action
        if len(parameters) == 1 and _takes_text(parameters[name]):
            return action
        value = _json(text)
        if value is _NONE:
            return action
        arguments = _object(value)
        if len(parameters) == 1 and arguments.keys() != {name}:
            arguments = {name: value}
        return AgentAction(action.tool, arguments, action.log) if isinstance(value, dict) or arguments else action


_NONE = object()


def _json(text: str) -> object:
    """The value that the text is, bare or in a code fence; `_NONE` where it is none."""
    text = text.strip()
    fence = FENCE.match(text)
    if fence is not None:
        text = text[fence.end() :].removesuffix("```")
    try:
        return decode_strict(text.encode())
    except (ValueError, InvalidRequest):
        return _NONE


def _object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _takes_text(schema: object) -> bool:
    """Whether a text may fit; so it is taken to where the schema does not say."""
    rules = _object(schema)
    kind = rules.get("type")
    if isinstance(kind, str):
        return kind == "string"
    if isinstance(kind, list):
        return "string" in kind
    for name in ("anyOf", "oneOf"):
        options = rules.get(name)
        if isinstance(options, list):
            return any(map(_takes_text, cast("list[object]", options)))
    return True
