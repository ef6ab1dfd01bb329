"""Where a run stands: enough to go on from any point, the middle of a round included."""

from dataclasses import dataclass, field

from app.agent.ports import PlannedCall, Resumed, Round, ToolOutcome, Waiting
from app.agent.records import Record
from app.agent.state_schema import NO_FIELDS, StateSchema, Values
from app.core.messages import Message
from app.core.usage import Usage


@dataclass(slots=True)
class OpenCall:
    """A call of the unfinished round."""

    call: PlannedCall
    sent: int = 0
    """Dispatches recorded before a crash."""
    outcome: ToolOutcome | None = None
    """Set once it has a result."""
    waiting: Waiting | None = None
    """What it waits for; told already."""
    resumed: Resumed | None = None
    """Its answer, which came while the run was parked."""
    told: bool = False
    """Whether the result's `StepDone` has been yielded (or was read back from the journal)."""

    @property
    def waits(self) -> bool:
        """There is nothing to do for it until someone answers."""
        return self.outcome is None and self.waiting is not None and self.resumed is None


@dataclass(slots=True)
class LoopState:
    """The fold of a run's records. The loop changes it in place as it yields what changed it."""

    messages: list[Message]
    """The conversation: the thread's history, this run's input, then its rounds. Grows only at its end."""
    before: int
    """How many of `messages` come before the run's first round."""
    iteration: int = 0
    """Complete model answers so far."""
    step: int = 0
    """The last step number given."""
    rounds: list[Round] = field(default_factory=list[Round])
    open_message: Message | None = None
    open_calls: list[OpenCall] = field(default_factory=list[OpenCall])
    """The round that was under way, in call order; empty between rounds."""
    active_s: float = 0.0
    """Seconds the run was active before now (waiting for a person or being down does not count)."""
    usage: Usage = field(default_factory=Usage)
    out_of_repeats: bool = False
    """The open round, or the last one, repeats the one before more often than allowed: nothing of it is sent."""
    values: Values = field(default_factory=dict[str, object])
    """The thread's fields beside `messages`. A change makes a new mapping: whoever holds one sees it as it was."""
    schema: StateSchema = NO_FIELDS
    """What the fields may hold: the agent's own and its middleware's."""
    untold: list[Record] = field(default_factory=list[Record])
    """What is in this state and was not told yet: it is held until hooks have looked at it, or the run is cut."""

    def take_untold(self) -> tuple[Record, ...]:
        told, self.untold = tuple(self.untold), []
        return told
