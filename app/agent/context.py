"""The model's context: which messages of the conversation the next model call sees."""

from collections.abc import Sequence
from dataclasses import replace

from app.agent.ports import Round
from app.agent.settings import AgentSettings
from app.core.messages import Message


def model_messages(
    settings: AgentSettings, messages: Sequence[Message], before: int, rounds: Sequence[Round]
) -> Sequence[Message]:
    """System text, then the conversation, the run's own steps trimmed to the last N where the agent asks for it.

    Trimming changes what the model sees, never what is stored. A round that is cut through keeps the calls of its kept
    steps only, so that every call the model sees has its result and every result its call.
    """
    system = (Message("system", settings.instructions),) if settings.instructions else ()
    keep = settings.trim_intermediate_steps
    steps = rounds[-1].results[-1][0].step if rounds else 0
    if keep < 1 or steps <= keep:
        return [*system, *messages] if system else messages
    kept: list[list[Message]] = []
    after = messages[before:]
    end = sum(len(item.results) + (item.message is not None) for item in rounds)
    ending = after[end:]  # an answer or a limit's text after the last round
    for item in reversed(rounds):
        if keep <= 0:
            break
        results = item.results[-keep:]
        keep -= len(results)
        tail = after[end - len(results) : end]
        end -= len(item.results) + (1 if item.message is not None else 0)
        head = (
            [] if item.message is None else [_with_calls(item.message, {call.provider_call_id for call, _ in results})]
        )
        kept.append([*head, *tail])
    return [*system, *messages[:before], *(message for group in reversed(kept) for message in group), *ending]


def _with_calls(message: Message, ids: set[str | None]) -> Message:
    calls = tuple(call for call in message.tool_calls if call.id in ids)
    return message if len(calls) == len(message.tool_calls) else replace(message, tool_calls=calls, wire={})
