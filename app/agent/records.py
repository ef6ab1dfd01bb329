"""What the loop tells its driver: values to be journaled, in order.

The driver appends a yielded tuple in one transaction, after all that was yielded before it. The loop may go on while that
is being written, but no tool is sent anything before the answer that called it is durable ("intent before effect": the
runner's dispatch record waits for it), nothing is shown before it is durable, and no round passes without such a wait.
"""

from typing import Literal

from app.agent.ports import Delta, PlannedCall, ToolOutcome, Waiting
from app.agent.state_schema import FieldUpdate
from app.core.actions import AgentFinish
from app.core.messages import Message
from app.core.usage import TokenUsage
from app.core.values import immutable

StopReason = Literal[
    "finish", "return_direct", "max_iterations", "max_execution_time", "usage_limit", "max_repeats",
    "cancelled", "awaiting_input", "error",
]  # fmt: skip


@immutable
class Output:
    """A piece of the answer as the model speaks it."""

    iteration: int
    message_id: str
    delta: Delta


@immutable
class Answered:
    """A complete model answer: its usage, the message it adds to the conversation, the calls it proposes."""

    iteration: int
    message_id: str
    message: Message | None
    calls: tuple[PlannedCall, ...]
    tokens: TokenUsage
    model: str


@immutable
class StepDone:
    """One call has its result. Steps come in finishing order."""

    call: PlannedCall
    outcome: ToolOutcome


@immutable
class CallWaits:
    """One call waits for an answer; its siblings go on."""

    call: PlannedCall
    waiting: Waiting


@immutable
class Parked:
    """Nothing more can be done before an answer comes: the loop ends here and goes on from the stored state."""


@immutable
class RoundClosed:
    """All calls of the round have their results: the messages for the model, in call order."""

    messages: tuple[Message, ...]


@immutable
class StateChanged:
    """The thread's state changed beside a round's own messages."""

    updates: tuple[FieldUpdate, ...]
    by: str
    """Who wrote it: `tool:NAME`, `middleware:NAME`."""
    messages: tuple[Message, ...] = ()
    """Appended to the conversation."""
    tool_call_id: str | None = None


@immutable
class Finished:
    """The run's end by the agent or by a limit."""

    finish: AgentFinish
    stop_reason: StopReason
    message: Message | None = None
    """What the stop adds to the conversation (a limit's text); a normal answer is in its `Answered`."""


@immutable
class Failed:
    """The run's end by a rule of the loop: `output_parsing_error`, `missing_output_keys`, `tool_error`."""

    code: str
    message: str


Record = Output | Answered | StepDone | CallWaits | Parked | RoundClosed | StateChanged | Finished | Failed
