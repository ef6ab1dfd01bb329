"""Changes: what tools write to the thread's state, checked when each answers, and applied in call order at the round's close."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from app.agent.ports import PlannedCall, ToolOutcome
from app.agent.records import StateChanged
from app.agent.settings import AgentSettings
from app.agent.state import LoopState
from app.agent.state_schema import (
    MAX_UPDATE_BYTES,
    MESSAGES,
    FieldUpdate,
    StateMisfit,
    Values,
    apply,
    own_copy,
    pointer,
)
from app.core.errors import FieldError
from app.core.ids import IdFactory
from app.core.messages import Content, Message, Role

SPEAKERS = ("user", "assistant", "system")
"""Roles of messages that an update may append. A call's result is the tool's output, and its message is made of that."""


def checked(
    outcome: ToolOutcome, call: PlannedCall, state: LoopState, settings: AgentSettings, new_id: IdFactory
) -> ToolOutcome:
    """The outcome with its own copy of the update; the tool's error where the update does not fit the state as it stands."""
    if outcome.update is None:
        return outcome
    try:
        _, messages = split(outcome.update, state)
    except StateMisfit as misfit:
        return refused(outcome, call, misfit, settings.handle_tool_errors, new_id)
    update = {name: own_copy(value) for name, value in outcome.update.items() if name != MESSAGES}
    if messages:
        update[MESSAGES] = [message.to_json() for message in messages]
    return replace(outcome, update=update)


def split(update: Values, state: LoopState) -> tuple[tuple[FieldUpdate, ...], tuple[Message, ...]]:
    """An update's fields and the messages it appends, checked against the state. Raises `StateMisfit`."""
    if MESSAGES not in update:
        return state.schema.check(update, state.values), ()
    messages = appended(update[MESSAGES])
    fields = {name: value for name, value in update.items() if name != MESSAGES}
    return state.schema.check(fields, state.values), messages


def close(
    state: LoopState, settings: AgentSettings, results: Sequence[tuple[PlannedCall, ToolOutcome]], new_id: IdFactory
) -> tuple[list[tuple[PlannedCall, ToolOutcome]], list[StateChanged]]:
    """Apply a round's updates in call order, each on top of those before it; the results and the changes.

    Two that fit alone need not fit together: the later one is then its tool's error, and changes nothing.
    """
    ended: list[tuple[PlannedCall, ToolOutcome]] = []
    changes: list[StateChanged] = []
    for call, outcome in results:
        final = outcome
        if outcome.update is not None:
            try:
                updates, messages = split(outcome.update, state)
            except StateMisfit as misfit:
                final = refused(outcome, call, misfit, settings.handle_tool_errors, new_id)
            else:
                state.values = apply(state.values, updates)
                changes.append(StateChanged(updates, f"tool:{call.action.tool}", messages, call.tool_call_id))
        ended.append((call, final))
    return ended, changes


def refused(
    outcome: ToolOutcome, call: PlannedCall, misfit: StateMisfit, handle_tool_errors: bool | str, new_id: IdFactory
) -> ToolOutcome:
    """A tool that ran and wrote what the state does not take."""
    text = f"{call.action.tool} ran, but its update of the state does not fit: {misfit}"
    error: dict[str, object] = {
        "code": "state_update_invalid", "message": text, "retryable": False, "state": "failed", "request_id": new_id(),
    }  # fmt: skip
    meta = {**cast("Mapping[str, object]", outcome.envelope.get("meta") or {}), "status": "error"}
    told = {name: value for name, value in error.items() if name != "message"}
    envelope = {
        "ok": False,
        "data": outcome.envelope.get("data"),
        "error": {**told, "tool_call_id": call.tool_call_id, "user_message": text},
        "meta": meta,
    }
    return replace(
        outcome,
        status="error",
        observation=handle_tool_errors if isinstance(handle_tool_errors, str) else text,
        error=error,
        envelope=envelope,
        return_direct=False,
        fatal=text if handle_tool_errors is False else None,
        update=None,
        goto=None,
    )


def appended(value: object) -> tuple[Message, ...]:
    """The messages that an update from inside appends: `Message`s or their JSON. Raises `StateMisfit`."""
    if not isinstance(value, list | tuple):
        raise _misfit("", "must be a list of messages")
    items = cast("Sequence[object]", value)
    return tuple(_message(item, f"/{place}") for place, item in enumerate(items))


def _message(item: object, at: str) -> Message:
    try:
        body = own_copy(item.to_json() if isinstance(item, Message) else item, MAX_UPDATE_BYTES)
    except ValueError as error:
        raise _misfit(at, str(error)) from error
    if not isinstance(body, dict):
        raise _misfit(at, "must be a message")
    given = cast("dict[str, object]", body)
    role, content, name = given.get("role"), given.get("content"), given.get("name")
    unknown = [key for key in given if key not in ("role", "content", "name")]
    if unknown:
        raise _misfit(f"{at}{pointer(unknown[0])}", "not taken here; a message has `role`, `content` and `name`")
    if role not in SPEAKERS:
        raise _misfit(f"{at}/role", f"must be one of {', '.join(SPEAKERS)}")
    if not isinstance(content, str) and not _are_parts(content):
        raise _misfit(f"{at}/content", "must be text, or a list of parts")
    if name is not None and not isinstance(name, str):
        raise _misfit(f"{at}/name", "must be text")
    return Message(cast("Role", role), cast("Content", content), name=name)


def _are_parts(content: object) -> bool:
    return isinstance(content, list) and all(isinstance(part, dict) for part in cast("list[object]", content))


def _misfit(at: str, detail: str) -> StateMisfit:
    return StateMisfit((FieldError(f"/{MESSAGES}{at}", detail),))
