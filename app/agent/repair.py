"""Repair: a conversation whose calls and results belong together, as every model wants it.

What is stored stays as it is. A caller's update, or a fork from the middle of a round, may leave calls without results.
"""

from collections.abc import Sequence

from app.core.messages import Message

NO_RESULT = "This call has no result: the conversation went on without it. Do not assume that it took effect."


def repaired(messages: Sequence[Message], before: int) -> tuple[list[Message], int]:
    """`messages`, whose first `before` come before a run's first round, and the new `before`.

    Among those, each call without a result gets one that says so, right after the results of its round, and a result
    without its call is left out. Behind them nothing is touched: an open round there is the run's own.
    """
    shown: list[Message] = []
    open_calls: dict[str, str] = {}
    for message in messages[:before]:
        if message.role == "tool":
            if open_calls.pop(message.tool_call_id or "", None) is not None:
                shown.append(message)
            continue
        if open_calls:
            shown += _results(open_calls)
        shown.append(message)
        open_calls = {call.id: call.name for call in message.tool_calls} if message.tool_calls else {}
    shown += _results(open_calls)
    return [*shown, *messages[before:]], len(shown)


def _results(calls: dict[str, str]) -> list[Message]:
    return [Message("tool", NO_RESULT, tool_call_id=call, name=name, status="error") for call, name in calls.items()]
