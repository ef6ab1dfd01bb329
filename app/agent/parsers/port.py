"""A text agent's parser: what reads the text of a model without native tool calls, whole or while it is spoken."""

from collections.abc import Sequence
from typing import Protocol

from app.agent.ports import ParseError, ReasoningDelta, TextDelta
from app.core.actions import AgentAction, AgentFinish, observation_text
from app.core.errors import ModelError
from app.core.values import immutable

Parsed = AgentAction | tuple[AgentAction, ...] | AgentFinish | ParseError
Spoken = TextDelta | ReasoningDelta

SETTLE = 200
"""Characters of an answer after which it is certain.

The peers look at the whole text: a later `Final Answer:` replaces an earlier one, a later action makes the text unreadable.
Nothing could be streamed then. A second thought comes soon or not at all, so it counts when it begins within this many
characters; what stands later is part of the answer. Whole and streamed reading follow the same rule.
"""


MAX_ANSWER = 2 * 1024 * 1024
"""Characters of one answer: reading so many takes a tenth of a second, whatever they are, and no model says as much."""


class TextParser(Protocol):
    """Reads a model's whole text. Any text gives an outcome, never an exception, in time linear in its length."""

    def parse(self, text: str) -> Parsed: ...

    def reader(self) -> "Reader":
        """A fresh reader for one answer of the model, fed as it comes."""
        ...


class Tracker(Protocol):
    """Finds, while text comes, what is certainly thinking and what is certainly a beginning of the answer."""

    def feed(self, delta: str) -> list[Spoken]: ...

    def rest(self) -> str:
        """What was held back although no keyword was found: it turned out to be thinking."""
        ...


class Parser(Protocol):
    def parse(self, text: str) -> Parsed: ...


@immutable
class Ended:
    """What a whole answer came to. `deltas` is what was held back until now."""

    deltas: Sequence[Spoken]
    outcome: Parsed


class Reader:
    """One answer of the model, read while it is spoken. All `TextDelta`s joined are the finish's output.

    Without a finish there may have been text all the same: an answer that began and became unreadable later on.
    """

    __slots__ = ("_length", "_parser", "_pieces", "_told", "_tracker")

    def __init__(self, parser: Parser, tracker: Tracker) -> None:
        self._parser = parser
        self._tracker = tracker
        self._pieces: list[str] = []
        self._length = 0
        self._told = 0

    def feed(self, delta: str) -> list[Spoken]:
        """Take what the model said next; give what is certain by now. The cost is that of `delta`.

        Raises `ModelError` (`model_invalid_response`): more than `MAX_ANSWER` characters.
        """
        self._length += len(delta)
        if self._length > MAX_ANSWER:
            text = f"The model's answer has more than {MAX_ANSWER} characters, the server's limit for text agents."
            raise ModelError(text, code="model_invalid_response")
        self._pieces.append(delta)
        spoken = self._tracker.feed(delta)
        for part in spoken:
            if isinstance(part, TextDelta):
                self._told += len(part.text)
        return spoken

    def finish(self, *, refused: bool = False) -> Ended:
        """The model has ended: the outcome, the same as `parse` of the whole text.

        `refused`: the provider says that the model refused, so what cannot be read as an answer is one all the same.
        """
        text = "".join(self._pieces)
        outcome = self._parser.parse(text)
        if refused and not isinstance(outcome, AgentFinish):
            told = () if self._told else (TextDelta(text),)
            return Ended(told, AgentFinish({"output": text}, text))
        deltas: list[Spoken] = []
        rest = self._tracker.rest()
        if rest:
            deltas.append(ReasoningDelta(rest))
        if isinstance(outcome, AgentFinish):
            text = output_text(outcome)[self._told :]
            if text:
                deltas.append(TextDelta(text))
        return Ended(deltas, outcome)


def output_text(finish: AgentFinish) -> str:
    """The answer as text: JSON where the model gave something else, nothing where it gave none."""
    output = finish.return_values.get("output")
    return "" if output is None else observation_text(output)
