"""A dispatch: what is journaled just before a call leaves the server, in the transaction that says whether it may."""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from app.core.values import immutable

Attempts = Sequence[Mapping[str, object]]
"""As in `ToolOutcome.attempts`; one that has not come back has the outcome `running`."""


@immutable
class Dispatch:
    """A call that is about to be sent, or to be handed to the caller."""

    tool_call_id: str
    log: tuple[Mapping[str, object], ...]
    """The call's attempts so far, as in `ToolOutcome.attempts`, this one last. Empty where the caller runs the call."""
    tool: str
    registered: bool
    """Whether the tool's row in `tools` must still be there (false for in-process and inline tools)."""
    approved: bool = False
    """A person allowed it: of a registered tool, what that was said about must still be its newest version."""
    sent_input: Mapping[str, object] | None = None
    """The input that is sent, where that is not the one that was asked for."""
    arguments_sha256: str | None = None
    """Of `sent_input`."""

    @property
    def attempt(self) -> int:
        """Its number, from 1."""
        return cast("int", self.log[-1]["attempt"])

    @property
    def at(self) -> int:
        return cast("int", self.log[-1]["at"])


class RecordDispatch(Protocol):
    """Journals a dispatch; durable when it returns, and only then does the call leave.

    Raises `RunCancelled`, `Fenced` (the runner lets them out), or `ToolWithdrawn`, `ToolDisabled`, `ApprovalVoid` (the call is
    denied).
    """

    async def __call__(self, dispatch: Dispatch, /) -> None: ...
