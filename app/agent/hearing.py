"""Hearing: one answer of a planner while it is spoken, as the loop tells it."""

from dataclasses import dataclass, field

from app.agent.ports import Decision, Delta, Restart
from app.agent.records import Output
from app.core.ids import IdFactory


@dataclass(slots=True)
class Hearing:
    iteration: int
    new_id: IdFactory
    message_id: str = field(init=False)
    """Of what is spoken now: it is another one when the answer begins anew."""
    decision: Decision | None = None
    """What came of it; last."""

    def __post_init__(self) -> None:
        self.message_id = self.new_id()

    def hear(self, chunk: Delta | Restart | Decision) -> Output | None:
        """The record that tells a piece; `None` where there is nothing to tell."""
        if isinstance(chunk, Decision):
            self.decision = chunk
        elif isinstance(chunk, Restart):
            self.message_id = self.new_id()
        else:
            return Output(self.iteration, self.message_id, chunk)
        return None
