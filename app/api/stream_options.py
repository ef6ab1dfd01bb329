"""Options of an event stream: which events it shows, and whether it stays while the run waits."""

from typing import Annotated

from fastapi import Query
from pydantic import TypeAdapter, ValidationError

from app.core.errors import FieldError, InvalidRequest
from app.core.events import EVENT_TYPES

PLURAL = {"actions": "action", "steps": "step"}
_FLAG = TypeAdapter(bool)
_WHICH = "Event types to send, comma-separated; those of the run's life always come."
_HOLD = "Keep the stream open while the run waits for somebody."
StreamParameter = Annotated[list[str] | None, Query(description=_WHICH)]
OF_A_NEW_STREAM = (
    {"name": "stream", "in": "query", "description": _WHICH, "schema": {"type": "string"}},
    {"name": "hold", "in": "query", "description": _HOLD, "schema": {"type": "boolean", "default": False}},
)
"""Query parameters of posting a run for its stream, which are read where the body is."""


def selected(values: list[str] | None, pointer: str) -> frozenset[str] | None:
    """The event types of `?stream=actions,steps` or the body's `stream`. Raises `InvalidRequest`."""
    if values is None:
        return None
    names = [PLURAL.get(name.strip(), name.strip()) for value in values for name in value.split(",") if name.strip()]
    unknown = next((name for name in names if name not in EVENT_TYPES), None)
    if unknown is not None:
        raise InvalidRequest(
            f"There is no event type `{unknown[:40]}`; there are {', '.join(EVENT_TYPES)}.",
            errors=(FieldError(pointer, "unknown event type"),),
        )
    return frozenset(names)


def held(value: str | None) -> bool:
    """Raises `InvalidRequest`."""
    if value is None:
        return False
    try:
        return _FLAG.validate_python(value)
    except ValidationError:
        raise InvalidRequest("`hold` is true or false.", errors=(FieldError("/query/hold", "not a boolean"),)) from None
