"""The answer schema: what an agent's structured answer must be, how a model is asked for it, and how what it says is read."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, cast

from app.agent.parsers.json_blob import FENCE, read_blob
from app.agent.ports import AnswerFormat, PlannedCall, ToolDefinition, ToolOutcome
from app.core.actions import AgentFinish
from app.core.errors import InvalidRequest
from app.core.json import check_value, decode_strict, encode_text
from app.core.values import immutable

Strategy = Literal["tool", "provider", "text"]
"""`tool`: by calling one more tool. `provider`: as text in a format that the provider keeps. `text`: as text."""

WRAPPED = "value"
"""The property that holds an answer which is no object: a tool's arguments are one, and so are providers' formats."""

DEFAULT_NAME = "structured_output"

DESCRIPTION = (
    "Gives the final answer and ends the work. Call it once, alone, when you have everything that it asks for."
)

_REFERENCES = ("$ref", "$dynamicRef")
_NAMED = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))
"""Keywords whose members are schemas by names of their own, which look like keywords at times."""

_DATA = frozenset(("const", "enum", "default", "examples"))
"""Keywords whose values are data: what looks like a reference in them is none."""

_NOT_OF_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")


class Misfit(Exception):
    """What was said is not the answer that is asked for. The text says why, in words that the model can act on."""


@immutable
class AnswerSchema:
    schema: Mapping[str, object]
    """As the agent has it."""
    strategy: Strategy
    name: str
    """Of the tool, and of the provider's format."""
    asked: Mapping[str, object]
    """The schema as the model is shown it (see `asked_of`)."""
    faults: Callable[[object], str | None]
    """What is wrong with a value of the shape `asked`, in words; `None` if it fits."""

    @property
    def tool(self) -> str | None:
        """The tool that gives the answer, where one does."""
        return self.name if self.strategy == "tool" else None

    @property
    def is_wrapped(self) -> bool:
        return self.asked is not self.schema

    @property
    def format(self) -> AnswerFormat:
        return AnswerFormat(self.name, self.asked)

    @property
    def definition(self) -> ToolDefinition:
        said = self.schema.get("description")
        text = f"{DESCRIPTION} {said}" if isinstance(said, str) and said else DESCRIPTION
        return ToolDefinition(self.name, text, self.asked)

    def instructions(self, given: str | None) -> str:
        """What an agent that answers in text is told beside its own instructions."""
        text = f"The final answer must be JSON that fits this JSON Schema, and nothing else: {encode_text(self.schema)}"
        return f"{given}\n\n{text}" if given else text

    def of_call(self, tool_input: str | Mapping[str, object]) -> object:
        """The answer in the arguments of a call. Raises `Misfit`."""
        return self._fitted(_arguments(tool_input))

    def of_taken_call(self, tool_input: str | Mapping[str, object]) -> object:
        """The answer in the arguments of a call that was planned, so they fit: checking large ones takes its time."""
        return self._unwrapped(_arguments(tool_input))

    def of_output(self, output: object) -> object:
        """The answer in a finish's output: a value, or its JSON text, in a code fence or bare. Raises `Misfit`."""
        if not isinstance(output, str):
            return self._fitted(output)
        try:
            return self._fitted(read_json(output))
        except Misfit:
            if self.strategy != "text" or self.faults(output) is not None:
                raise
            return output  # a text that is asked for needs no quotes

    def ended(self, results: Sequence[tuple[PlannedCall, ToolOutcome]]) -> AgentFinish | None:
        """The finish that a round's calls came to, if one of them gave the answer."""
        if self.strategy != "tool":
            return None
        for call, outcome in results:
            if call.action.tool == self.name and outcome.status == "success":
                return self.finish(self.of_taken_call(call.action.tool_input), call.action.log)
        return None

    def finish(self, answer: object, log: str) -> AgentFinish:
        return AgentFinish({"output": encode_text(answer), "structured": answer}, log)

    def _fitted(self, value: object) -> object:
        fault = self.faults(value)
        if fault is not None:
            raise Misfit(fault)
        return self._unwrapped(value)

    def _unwrapped(self, value: object) -> object:
        return cast("Mapping[str, object]", value)[WRAPPED] if self.is_wrapped else value


def _arguments(tool_input: str | Mapping[str, object]) -> Mapping[str, object]:
    """A text is the planner's form of one argument of that name."""
    return {"__arg1": tool_input} if isinstance(tool_input, str) else tool_input


def read_json(text: str) -> object:
    """The JSON value that a text is, or that stands in its first code fence. Raises `Misfit`."""
    try:
        return decode_strict(text.strip().encode())
    except (InvalidRequest, UnicodeEncodeError):
        pass
    fence = FENCE.search(text)
    blob = None if fence is None else read_blob(text, fence.end())
    if blob is None:
        raise Misfit("it is not JSON")
    if blob.cut_off:
        raise Misfit("its JSON is not complete")
    try:
        check_value(blob.value)
        encode_text(blob.value)
    except (InvalidRequest, TypeError, ValueError) as error:
        raise Misfit("it holds a value that cannot be kept") from error
    return blob.value


def asked_of(schema: Mapping[str, object], strategy: Strategy) -> Mapping[str, object]:
    """`schema` itself, or one of an object with it under `WRAPPED`, where the model must give an object.

    Definitions stay where they are inside it, and references to them follow.
    """
    if strategy == "text" or schema.get("type") == "object":
        return schema
    inner = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
    return {
        "type": "object",
        "properties": {WRAPPED: _moved(inner)},
        "required": [WRAPPED],
        "additionalProperties": False,
    }


def name_of(schema: Mapping[str, object], taken: Collection[str]) -> str:
    """The answer's name: the schema's title in the letters of a name, another than those that are taken."""
    title = schema.get("title")
    name = _NOT_OF_A_NAME.sub("_", title).strip("_")[:60] if isinstance(title, str) else ""
    if not name or not name[0].isalpha():
        name = DEFAULT_NAME
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def _moved(schema: Mapping[str, object]) -> dict[str, object]:
    """A schema that now stands below the property: its references lead there. Its depth is limited."""
    return {key: _moved_member(key, value) for key, value in schema.items()}


def _moved_member(key: str, value: object) -> object:
    if isinstance(value, str):
        leads_here = key in _REFERENCES and (value == "#" or value.startswith("#/"))
        return f"#/properties/{WRAPPED}{value[1:]}" if leads_here else value
    if key in _DATA:
        return value
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        if key in _NAMED:
            return {name: _moved_part(item) for name, item in members.items()}
        return _moved(members)
    return [_moved_part(item) for item in cast("list[object]", value)] if isinstance(value, list) else value


def _moved_part(part: object) -> object:
    return _moved(cast("dict[str, object]", part)) if isinstance(part, dict) else part
