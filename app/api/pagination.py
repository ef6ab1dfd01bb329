"""Pages of a list: `{"data", "has_more", "next_cursor"}`."""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from app.core.errors import FieldError, InvalidRequest
from app.core.ids import NAME_PATTERN, is_id
from app.core.json import encode

Limit = Annotated[int, Query(ge=1, le=100, description="How many items, 1 to 100.")]
After = Annotated[str | None, Query(max_length=200, description="`next_cursor` of the page before.")]

MAX_FILTERS = 16
"""`metadata.<key>` filters of a list: each is a condition of its query."""

_NAMED = "~"

ItemT = TypeVar("ItemT")


def page(
    items: Sequence[ItemT], limit: int, cursor: Callable[[ItemT], str], view: Callable[[ItemT], object]
) -> Response:
    """A page of `items`, of which one more than `limit` was asked for to know whether there are more."""
    shown = items[:limit]
    more = len(items) > limit
    body = {
        "data": [view(item) for item in shown],
        "has_more": more,
        "next_cursor": cursor(shown[-1]) if more else None,
    }
    return Response(encode(body), media_type="application/json")


def number_cursor(after: str | None, *, at: str = "/query/after") -> int:
    """A cursor that is a number (steps, events). `at`: where it came from. Raises `InvalidRequest` (`invalid_cursor`)."""
    if after is None:
        return 0
    if not after.isascii() or not after.isdigit() or len(after) > 18:
        raise InvalidRequest(
            f"`{at.rpartition('/')[2]}` must be a whole number from 0 on.",
            code="invalid_cursor",
            errors=(FieldError(at, "not a number"),),
        )
    return int(after)


def check_id_cursor(after: str | None) -> None:
    """A cursor that is a resource's id. Raises `InvalidRequest` (`invalid_cursor`)."""
    if after is not None and not is_id(after):
        raise _not_a_cursor()


def cursor_of_name(name: str) -> str:
    """The cursor of a list in name order. Marked, so that a mere name is told from one."""
    return _NAMED + name


def name_cursor(after: str | None) -> str | None:
    """The name in a cursor of `cursor_of_name`. Raises `InvalidRequest` (`invalid_cursor`)."""
    if after is None:
        return None
    name = after.removeprefix(_NAMED)
    if name == after or not re.fullmatch(NAME_PATTERN, name):
        raise _not_a_cursor()
    return name


def _not_a_cursor() -> InvalidRequest:
    return InvalidRequest(
        "`after` must be a `next_cursor` of this list.",
        code="invalid_cursor",
        errors=(FieldError("/query/after", "not a cursor"),),
    )


def metadata_filter(request: Request) -> dict[str, str]:
    """The `metadata.<key>=<value>` filters of a list. Raises `InvalidRequest`."""
    metadata: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name.startswith("metadata."):
            key = name.removeprefix("metadata.")
            if not key or len(key) > 64 or not key.replace("_", "").replace("-", "").isalnum():
                raise InvalidRequest(
                    "A metadata filter is `metadata.<key>=<value>`; the key has letters, digits, `_` and `-`.",
                    errors=(FieldError(f"/query/{name[:80]}", "not a key"),),
                )
            metadata[key] = value
    if len(metadata) > MAX_FILTERS:
        raise InvalidRequest(
            f"A list is filtered by {MAX_FILTERS} metadata keys at most.",
            errors=(FieldError("/query", "too many filters"),),
        )
    return metadata
