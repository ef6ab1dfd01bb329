"""The run that calls are made for: who acts, where attempts are journaled, what was agreed about errors."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from app.core.ids import new_id
from app.core.principal import Principal
from app.tools.approval import ApprovalRule
from app.tools.authority import DEFAULT, Authority
from app.tools.dispatch import RecordDispatch
from app.tools.keeping import Keeping
from app.tools.run_view import OUTSIDE, RunView
from app.tools.store_api import StoreAccess

LateResult = Callable[[str], Awaitable[Mapping[str, object] | None]]
"""By the call's id: what the tool has called back with so far."""


async def _nothing_came(_: str) -> None:
    """Nobody calls back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRunContext:
    """What the calls of one run share."""

    principal: Principal
    run_id: str | None
    thread_id: str | None
    record_dispatch: RecordDispatch
    context: Mapping[str, object] = field(default_factory=dict[str, object])
    handle_tool_errors: bool | str = True
    """What a tool's error does: the model reads its text, reads this text instead, or (false) the run ends."""
    new_id: Callable[[], str] = new_id
    late_result: LateResult = _nothing_came
    """Asked where an attempt's outcome is uncertain."""
    may_wait: bool = True
    """Whether a call may wait for an answer: in a run. Outside one nobody would be there to be asked."""
    approvals: Mapping[str, Sequence[ApprovalRule]] = field(default_factory=dict[str, Sequence[ApprovalRule]])
    """By tool: when the agent asks a person first, besides the tool's own rules."""
    authority: Authority = DEFAULT
    agent: str | None = None
    """The registered agent's name."""
    keeping: Keeping = field(default_factory=Keeping)
    """How much of long results is kept."""
    view: RunView = OUTSIDE
    """The run's state, and its stream."""
    store: StoreAccess | None = None
