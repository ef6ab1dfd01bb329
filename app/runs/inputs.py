"""A run's input: text, messages, or AgentExecutor's keys become the messages that the run begins with."""

from collections.abc import Collection, Sequence
from typing import cast

from app.core.errors import FieldError, InvalidRequest
from app.core.messages import Message, ToolCall
from app.runs.spec import MessageSpec
from app.runs.validation import check

MESSAGE_FORM = '{"messages": […]}'


def input_messages(value: str | dict[str, object]) -> tuple[Message, ...]:
    """The messages of an `input`: `"text"`, `{"messages": […]}`, or `{"input": "…", "chat_history": […], …variables}`.

    Raises `InvalidRequest` naming the place: both forms mixed, no `input` key, an empty list, a call without its result.
    """
    if isinstance(value, str):
        return (Message("user", value),)
    if "messages" in value:
        if len(value) > 1:
            other = next(key for key in value if key != "messages")
            raise _refusal(f"/input/{other}", f"send either {MESSAGE_FORM} or `input` with its variables, not both")
        messages = _messages(value["messages"], "/input/messages")
        if not messages:
            raise _refusal("/input/messages", "the list is empty; send at least one message")
        return messages
    if "input" not in value:
        raise _refusal("/input/input", "missing; send a text, `input`, or `messages`", code="missing_input")
    text = value["input"]
    if not isinstance(text, str):
        raise _refusal("/input/input", "must be text")
    history = _messages(value.get("chat_history", []), "/input/chat_history")
    return (*history, Message("user", text))


def prompt_inputs(value: str | dict[str, object]) -> dict[str, object]:
    """The prompt variables that came with a checked `input`, and `input` itself where it is text."""
    if isinstance(value, str):
        return {"input": value}
    return {name: item for name, item in value.items() if name not in ("messages", "chat_history")}


def check_variables(value: str | dict[str, object], wanted: Collection[str]) -> None:
    """Raises `InvalidRequest` (`missing_input`) naming the prompt variables that the input lacks."""
    given = prompt_inputs(value)
    missing = [name for name in sorted(wanted) if name not in given]
    if missing:
        raise InvalidRequest(
            f"The agent's prompt needs {', '.join(missing)}; send them beside `input`.",
            code="missing_input",
            errors=tuple(FieldError(f"/input/{name}", "a variable of the agent's prompt; missing") for name in missing),
        )


def stated_messages(value: object, pointer: str) -> tuple[Message, ...]:
    """Messages that a caller writes to a thread. Calls may lack results: that is repaired before a model sees them."""
    if not isinstance(value, list):
        raise _refusal(pointer, "must be a list of messages")
    items = cast("list[object]", value)
    return tuple(_message(item, f"{pointer}/{index}") for index, item in enumerate(items))


def _messages(value: object, pointer: str) -> tuple[Message, ...]:
    messages = stated_messages(value, pointer)
    _check_results(messages, pointer)
    return messages


def _message(item: object, pointer: str) -> Message:
    spec = check(MessageSpec, item, at=pointer)
    return Message(
        spec.role,
        spec.content,
        tuple(ToolCall(call.id, call.name, call.args) for call in spec.tool_calls),
        spec.tool_call_id,
        spec.name,
        spec.refusal,
        status="error" if spec.status == "error" else None,
    )


def _check_results(messages: Sequence[Message], pointer: str) -> None:
    """Every call is answered, once, before the conversation goes on: providers refuse anything else, and rightly."""
    open_calls: dict[str, str] = {}
    for index, message in enumerate(messages):
        if message.role == "tool":
            if open_calls.pop(message.tool_call_id or "", None) is None:
                raise _refusal(f"{pointer}/{index}/tool_call_id", "no open tool call has this id")
            continue
        if open_calls:
            raise _refusal(next(iter(open_calls.values())), "this tool call has no result before the next message")
        for position, call in enumerate(message.tool_calls):
            if call.id in open_calls:
                raise _refusal(f"{pointer}/{index}/tool_calls/{position}/id", "repeated in this message")
            open_calls[call.id] = f"{pointer}/{index}/tool_calls/{position}"
    if open_calls:
        raise _refusal(next(iter(open_calls.values())), "this tool call has no result")


def _refusal(pointer: str, detail: str, *, code: str | None = None) -> InvalidRequest:
    return InvalidRequest(
        "The run's input cannot be used; see `errors`.", code=code, errors=(FieldError(pointer, detail),)
    )
