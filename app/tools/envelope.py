"""The result envelope: what the application stores and reads of a call; the model sees only `data` or `user_message`."""

from collections.abc import Mapping
from typing import Literal, TypedDict

State = Literal["failed", "unknown"]


class EnvelopeError(TypedDict):
    code: str
    retryable: bool
    state: State
    request_id: str
    tool_call_id: str
    user_message: str


class Envelope(TypedDict):
    ok: bool
    data: object
    error: EnvelopeError | None
    meta: Mapping[str, object]


def success(data: object, meta: Mapping[str, object]) -> Envelope:
    return {"ok": True, "data": data, "error": None, "meta": meta}


def failure(
    *,
    code: str,
    user_message: str,
    retryable: bool,
    state: State,
    request_id: str,
    tool_call_id: str,
    meta: Mapping[str, object],
    data: object = None,
) -> Envelope:
    """`data`: what the tool answered, where that is the fault."""
    return {
        "ok": False,
        "data": data,
        "error": {
            "code": code,
            "retryable": retryable,
            "state": state,
            "request_id": request_id,
            "tool_call_id": tool_call_id,
            "user_message": user_message,
        },
        "meta": meta,
    }
