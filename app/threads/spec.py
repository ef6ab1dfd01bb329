"""What callers post about threads, checked once at the border."""

from typing import Annotated

from pydantic import Field

from app.runs.spec import JsonObject, Metadata, Name, Spec


class ThreadCreate(Spec):
    """The body of `POST /threads`."""

    metadata: Metadata = Field(default_factory=dict)


class ThreadPatch(Spec):
    """The body of `PATCH /threads/{id}`: labels to set beside those that are there."""

    metadata: Metadata


class ThreadFork(Spec):
    """The body of `POST /threads/{id}/fork`."""

    checkpoint_id: str | None = None
    """Whose state the new thread begins with; the newest one where it is left out."""
    metadata: Metadata | None = None
    """Left out: the origin's."""


class StateUpdate(Spec):
    """The body of `POST /threads/{id}/state`."""

    values: JsonObject
    """`messages` to append, and updates of other fields for their reducers."""
    checkpoint_id: str | None = None
    """The checkpoint to go on from; the thread's head where it is left out."""
    overwrite: Annotated[list[str], Field(max_length=128)] = Field(default_factory=list)
    """Names among `values` that take the place of what is there, past their reducers."""
    agent: Name | None = None
    """A registered agent whose `state_schema` holds; the last run's where it is left out."""
