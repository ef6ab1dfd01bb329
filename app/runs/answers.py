"""Answer schemas: an agent's `output_schema` from its spec, compiled once for each text."""

from collections.abc import Callable, Collection, Mapping
from typing import cast

from app.agent.answer import AnswerSchema, Strategy, asked_of, name_of
from app.core.errors import FieldError, InvalidRequest
from app.core.json import encode
from app.tools.arguments import in_words
from app.tools.schema import ArgumentSchema, check_schema

KEPT = 512
"""Compiled schemas that are remembered; an agent's runs all use the same."""

Settings = Mapping[str, object]

_Compiled = tuple[Mapping[str, object], Mapping[str, object], Callable[[object], str | None]]


class AnswerSchemas:
    """The schemas of agents' answers, by their text."""

    def __init__(self) -> None:
        self._compiled: dict[bytes, _Compiled] = {}

    def of(self, settings: Settings, tools: Collection[str], pointer: str = "/agent") -> AnswerSchema | None:
        """The structured answer of an agent with these tools; `None` where it has none.

        `pointer`: where the agent stands in the body. Raises `InvalidRequest`: a schema that is none, a strategy that is
        not for agents of this type.
        """
        if settings.get("output_strategy", "auto") != "auto" and settings["type"] != "tool_calling":
            raise InvalidRequest(
                "`output_strategy` is for `tool_calling` agents; others give their answer as text.",
                errors=(FieldError(f"{pointer}/output_strategy", "not for agents of this type"),),
            )
        declared = cast("Mapping[str, object] | None", settings.get("output_schema"))
        if declared is None:
            return None
        strategy = strategy_of(settings)
        key = strategy.encode() + encode(declared)
        found = self._compiled.get(key)
        if found is None:
            found = _compile(declared, strategy, f"{pointer}/output_schema")
            if len(self._compiled) >= KEPT:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[key] = found
        schema, asked, faults = found
        return AnswerSchema(schema, strategy, name_of(schema, tools), asked, faults)


def strategy_of(settings: Settings) -> Strategy:
    """How an agent is asked; what `auto` comes to was pinned with the run (see `pinned`)."""
    if settings["type"] != "tool_calling":
        return "text"
    return "provider" if settings.get("output_strategy") == "provider" else "tool"


def pinned(settings: dict[str, object], by_format: Callable[[], bool]) -> dict[str, object]:
    """A run's settings, with `auto` decided once: what is recovered later goes on as it began.

    `by_format`: whether the run's model is known to keep a format.
    """
    if settings.get("output_schema") is None or settings["type"] != "tool_calling":
        return settings
    if settings.get("output_strategy", "auto") != "auto":
        return settings
    return {**settings, "output_strategy": "provider" if by_format() else "tool"}


def _compile(declared: Mapping[str, object], strategy: Strategy, pointer: str) -> _Compiled:
    compiled = check_schema(declared, pointer, of_object=False)
    asked = asked_of(declared, strategy)
    if asked is not declared:
        try:
            compiled = ArgumentSchema(asked)
        except ValueError as error:
            raise InvalidRequest(
                "The schema's references lead nowhere when it stands inside an object; make it one of an object.",
                errors=(FieldError(pointer, 'give it "type": "object"'),),
            ) from error

    def faults(value: object) -> str | None:
        try:
            return None if compiled.is_valid(value) else in_words(compiled.faults(value))
        except ValueError:  # a lone surrogate, or nested beyond any schema
            return "it holds text or nesting that JSON cannot carry"

    return declared, asked, faults
