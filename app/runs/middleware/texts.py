"""Texts of messages, answers and results, for middleware that looks at them or puts others in their place."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from app.agent.ports import ModelAnswer, ProposedCall, ToolOutcome
from app.agent.trimming import CountTokens
from app.core.json import encode_text
from app.core.messages import Content, Message

Change = Callable[[str], str]
"""A text's new form; the text itself where it may stay."""


def in_value(value: object, change: Change) -> object:
    """A JSON value with its texts changed, the names of its members too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(name): in_value(item, change) for name, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [in_value(item, change) for item in cast("list[object]", value)]
    return value


def strings_in(value: object) -> list[str]:
    """The texts of a JSON value, the names of its members too."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    in_value(value, note)
    return found


def in_content(content: Content, change: Change) -> Content:
    """A message's text, or the text parts of its content."""
    if isinstance(content, str):
        return change(content)
    if isinstance(content, list):
        return [
            {**part, "text": change(str(part["text"]))} if part.get("type") == "text" and "text" in part else part
            for part in content
        ]
    return content


def in_message(message: Message, change: Change) -> Message:
    content = in_content(message.content, change)
    return message if content == message.content else replace(message, content=content, wire={})


def in_calls(calls: Sequence[ProposedCall], change: Change) -> tuple[ProposedCall, ...]:
    return tuple(
        replace(
            call, args=cast("dict[str, object] | None", in_value(call.args, change)), raw_args=change(call.raw_args)
        )
        for call in calls
    )


def in_answer(answer: ModelAnswer, change: Change, *, calls: bool) -> ModelAnswer:
    """A changed answer loses its provider's own blocks, which still say what it was."""
    changed = replace(
        answer,
        content=change(answer.content),
        reasoning=change(answer.reasoning),
        refusal=None if answer.refusal is None else change(answer.refusal),
        calls=in_calls(answer.calls, change) if calls else answer.calls,
    )
    return answer if changed == answer else replace(changed, provider_blocks=None)


def in_outcome(outcome: ToolOutcome, change: Change) -> ToolOutcome:
    """What a tool gave, as the model and the application read it. The whole of an over-long result is left out."""
    observation = in_value(outcome.observation, change)
    error = None if outcome.error is None else {**outcome.error, "message": change(str(outcome.error.get("message")))}
    envelope = {
        **outcome.envelope,
        "data": in_value(outcome.envelope.get("data"), change),
        "error": in_value(outcome.envelope.get("error"), change),
    }
    if (observation, error, envelope) == (outcome.observation, outcome.error, dict(outcome.envelope)):
        return outcome if outcome.whole is None else replace(outcome, whole=None)
    return replace(outcome, observation=observation, error=error, envelope=envelope, whole=None)


def text_of(content: Content) -> str:
    """All text of a message."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    return content or ""


class TokenCount:
    """How many tokens messages come to, with what chat models add to each. A message is counted once."""

    def __init__(self, count: CountTokens) -> None:
        self._count = count
        self._known: dict[int, tuple[Message, int]] = {}

    def of(self, messages: Sequence[Message]) -> int:
        return sum(self._of(message) for message in messages)

    def _of(self, message: Message) -> int:
        known = self._known.get(id(message))
        if known is None or known[0] is not message:
            calls = "".join(f"{call.name}{encode_text(call.args)}" for call in message.tool_calls)
            count = self._count(text_of(message.content)) + self._count(calls) + TOKENS_A_MESSAGE
            known = self._known[id(message)] = (message, count)
        return known[1]


TOKENS_A_MESSAGE = 3
"""What OpenAI's chat format adds to each message (its cookbook's number)."""
