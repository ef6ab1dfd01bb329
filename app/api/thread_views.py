"""Views of threads: rows as the JSON that callers see. A state's messages go out as the bytes that are stored."""

from typing import cast

import orjson

from app.agent.state_schema import MESSAGES, OWN, shown
from app.core.clock import rfc3339
from app.core.json import encode
from app.threads.records import Point, StateAt, Thread

_PRIVATE = b'"provider_blocks"'


def thread_view(thread: Thread) -> dict[str, object]:
    return {
        "id": thread.id,
        "status": thread.status,
        "listed": thread.listed,
        "active_run_id": thread.active_run_id,
        "checkpoint_id": thread.newest_checkpoint_id,
        "metadata": thread.metadata,
        "created_at": rfc3339(thread.created_at),
    }


def state_view(state: StateAt) -> bytes:
    """`{"values": {"messages": […], …fields}, …}` as JSON; the messages are decoded only where one holds what is not shown."""
    text = state.messages
    if _PRIVATE in text:
        stored = cast("list[dict[str, object]]", orjson.loads(text)[MESSAGES])
        text = encode({MESSAGES: [_message(message) for message in stored]})
    fields = encode(shown(state.values))
    values = text if fields == b"{}" else text[:-1] + b"," + fields[1:]
    return b'{"values":' + values + b"," + encode(_facts(state.point))[1:]


def _facts(point: Point | None) -> dict[str, object]:
    if point is None:
        return {"checkpoint_id": None, "parent_checkpoint_id": None, "run_id": None, "source": None, "created_at": None}
    return {
        "checkpoint_id": point.id,
        "parent_checkpoint_id": point.parent_id,
        "run_id": point.run_id,
        "source": point.source,
        "created_at": rfc3339(point.created_at),
    }


def point_view(point: Point) -> dict[str, object]:
    """A checkpoint of a history: what changed. `messages` is how many the state has with it."""
    update: dict[str, list[object]] = {}
    appended = cast("list[dict[str, object]]", point.delta.get(MESSAGES) or [])
    if appended:
        update[MESSAGES] = [_message(message) for message in appended]
    for name, reducer, value in cast("list[tuple[str, str, object]]", point.delta.get("fields") or []):
        if not name.startswith(OWN):
            update.setdefault(name, []).append({"reducer": reducer, "value": value})
    return {**_facts(point), "messages": point.messages, "update": update}


def _message(stored: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in stored.items() if name != "provider_blocks"}
