"""The model's context: which messages of the conversation the next model call sees."""

from collections.abc import Sequence
from dataclasses import replace

from app.agent.ports import Round
from app.agent.settings import AgentSettings
from app.agent.trimming import Kept, Trimmer
from app.core.messages import Message


def model_messages(
    settings: AgentSettings, messages: Sequence[Message], before: int, rounds: Sequence[Round], trimmer: Trimmer
) -> Sequence[Message]:
    """System text, then the conversation, the run's own steps trimmed where the agent asks for it.

    Trimming changes what the model sees, never what is stored. A round that is cut through keeps the calls of its kept
    steps only, so that every call the model sees has its result and every result its call.
    """
    system = (Message("system", settings.instructions),) if settings.instructions else ()
    kept = trimmer.kept(rounds)
    if kept is None:
        return [*system, *messages] if system else messages
    return [*system, *messages[:before], *_of_rounds(kept), *messages[_end(messages, rounds) :]]


def _end(messages: Sequence[Message], rounds: Sequence[Round]) -> int:
    """Where the rounds end: an answer or a limit's text may follow the last result."""
    last = rounds[-1].shown[-1]
    end = len(messages)
    while messages[end - 1] is not last:
        end -= 1
    return end


def _of_rounds(kept: Kept) -> list[Message]:
    shown: list[Message] = []
    for item, results in kept:
        ids = {call.provider_call_id for call, _ in results}
        if item.message is not None:
            shown.append(_with_calls(item.message, ids))
        shown += [message for message in item.shown if message.tool_call_id in ids]
    return shown


def _with_calls(message: Message, ids: set[str | None]) -> Message:
    calls = tuple(call for call in message.tool_calls if call.id in ids)
    return message if len(calls) == len(message.tool_calls) else replace(message, tool_calls=calls, wire={})
