"""Stand-ins for the parts of a run that cannot be built any more: each open call still gets its one, honest result."""

from collections.abc import AsyncGenerator, Sequence

from app.agent.observing import told_text
from app.agent.ports import (
    CutReason,
    Decision,
    Delta,
    PlannedCall,
    Planner,
    Resumed,
    ToolDefinition,
    ToolOutcome,
    ToolRunner,
    Turn,
)
from app.core.errors import ModelError
from app.core.messages import Message


class _LostTools:
    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        return ()

    async def run(self, call: PlannedCall, *, sent_before: int = 0, resumed: Resumed | None = None) -> ToolOutcome:
        return self.cut(call, "lost")

    def cut(self, call: PlannedCall, reason: CutReason) -> ToolOutcome:
        name = call.action.tool
        if reason != "lost":
            return ToolOutcome("cancelled", f"{name} was cancelled before it was sent; it did nothing.")
        return ToolOutcome(
            "unknown", f"What became of {name} is unknown. It may have taken effect or not: do not assume either."
        )


class _LostPlanner:
    multi_action = True

    async def plan(self, turn: Turn) -> AsyncGenerator[Delta | Decision]:
        raise ModelError("The run's agent cannot be built any more.", code="model_unavailable")
        yield  # makes it a generator

    def conclude(self, turn: Turn) -> AsyncGenerator[Delta | Decision]:
        return self.plan(turn)

    def messages(self, turn: Turn) -> Sequence[Message]:
        return turn.messages

    def observe(self, call: PlannedCall, outcome: ToolOutcome) -> Message:
        """As the planner that is gone would have said it: a tool's message answers a call inside a message only."""
        text = told_text(outcome)
        if call.action.type == "AgentActionMessageLog":
            return Message("tool", text, tool_call_id=call.provider_call_id, name=call.action.tool or None)
        return Message("user", text, tool_call_id=call.provider_call_id)


LOST_TOOLS: ToolRunner = _LostTools()
LOST_PLANNER: Planner = _LostPlanner()
