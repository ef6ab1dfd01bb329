"""What callers post about the store, checked once at the border."""

from typing import Annotated

from pydantic import Field

from app.core.store import MAX_FILTERS, MAX_KEY, MAX_LABEL, MAX_LABELS, MAX_TTL_S
from app.runs.spec import JsonObject, Spec

Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]


class StorePut(Spec):
    """The body of `PUT /store/items`."""

    namespace: Annotated[list[Label], Field(min_length=1, max_length=MAX_LABELS)]
    """Labels from the outermost to the innermost; none has a `.`."""
    key: Annotated[str, Field(min_length=1, max_length=MAX_KEY)]
    value: JsonObject
    """Takes the place of what is there, as a whole."""
    ttl_s: Annotated[float, Field(gt=0, le=MAX_TTL_S, allow_inf_nan=False)] | None = None
    """Seconds until it is gone; left out: it stays."""
    if_version: Annotated[int, Field(ge=0)] | None = None
    """The version that must be there; 0: none."""


class StoreSearch(Spec):
    """The body of `POST /store/search`."""

    namespace_prefix: Annotated[list[Label], Field(max_length=MAX_LABELS)] = Field(default_factory=list)
    """The items of this namespace and of those in it; empty: all."""
    filter: Annotated[JsonObject, Field(max_length=MAX_FILTERS)] = Field(default_factory=dict)
    """Fields of the value, and what each must equal."""
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    after: Annotated[str, Field(max_length=200)] | None = None
    """`next_cursor` of the page before."""
