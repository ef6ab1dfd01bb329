"""The answer of an HTTP hook: read strictly, since whoever answers may be broken or lie."""

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from app.core.errors import RunwireError
from app.core.json import decode_strict
from app.core.messages import Message
from app.core.values import immutable
from app.runs.middleware.kinds import Config
from app.runs.spec import MessageSpec
from app.runs.validation import check

Action = Literal["continue", "stop", "deny"]

_MEMBERS = ("action", "update", "request", "message")


class Misread(Exception):
    """The answer is none."""


@immutable
class HookSays:
    action: Action = "continue"
    update: Config | None = None
    request: Config | None = None
    message: str = ""


def read_answer(data: bytes) -> HookSays:
    """What a 2xx answer says; nothing at all means `continue`. Raises `Misread`."""
    if not data.strip():
        return HookSays()
    try:
        body = decode_strict(data)
    except (RunwireError, ValueError, RecursionError) as error:
        raise Misread(f"no JSON: {error}") from None
    if not isinstance(body, dict):
        raise Misread("no object")
    given = cast("Mapping[str, object]", body)
    unknown = [name for name in given if name not in _MEMBERS]
    if unknown:
        raise Misread(f"unknown member {unknown[0][:64]!r}")
    action, message = given.get("action", "continue"), given.get("message")
    if action not in ("continue", "stop", "deny"):
        raise Misread("its action is none of continue, stop, deny")
    if message is not None and not isinstance(message, str):
        raise Misread("its message is no text")
    return HookSays(action, _object(given, "update"), _object(given, "request"), message or "")


def messages_in(request: Config) -> list[Message] | None:
    """The messages of a request that a hook gave back; `None` where it left them. Raises `Misread`."""
    given = request.get("messages")
    if given is None:
        return None
    if not isinstance(given, list):
        raise Misread("its messages are no list")
    try:
        return [
            Message.from_json(check(MessageSpec, item).model_dump(exclude_unset=True))
            for item in cast("Sequence[object]", given)
        ]
    except RunwireError as error:
        raise Misread(f"a message is none: {'; '.join(item.detail for item in error.errors)[:500]}") from None


def only(request: Config, *names: str) -> None:
    """Raises `Misread` where a request has other members."""
    other = [name for name in request if name not in names]
    if other:
        raise Misread(f"its request has {other[0][:64]!r}, which cannot be changed here")


def _object(given: Mapping[str, object], name: str) -> Config | None:
    value = given.get(name)
    if value is not None and not isinstance(value, dict):
        raise Misread(f"its {name} is no object")
    return cast("Config | None", value)
