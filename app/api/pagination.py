"""Pages of a list: `{"data", "has_more", "next_cursor"}`."""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query
from starlette.responses import Response

from app.core.errors import FieldError, InvalidRequest
from app.core.json import encode

Limit = Annotated[int, Query(ge=1, le=100, description="How many items, 1 to 100.")]
After = Annotated[str | None, Query(max_length=200, description="`next_cursor` of the page before.")]

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
