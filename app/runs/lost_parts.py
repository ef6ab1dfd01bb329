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
from app.core.clock import now_ms
from app.core.errors import ModelError
from app.core.messages import Message
from app.tools.ending import earlier_attempts, first_sent_ms


class _LostTools:
    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        return ()

    async def run(self, call: PlannedCall, *, sent_before: int = 0, resumed: Resumed | None = None) -> ToolOutcome:
        return self.cut(call, "lost")

    def cut(self, call: PlannedCall, reason: CutReason) -> ToolOutcome:
        name = call.action.tool
        if reason != "lost":
            text = f"{name} was cancelled before it was sent; it did nothing."
            return ToolOutcome("cancelled", text, chain=call.noted)
        log = earlier_attempts(call, 0)
        sent_ms = first_sent_ms(log)
        return ToolOutcome(
            "unknown",
            f"What became of {name} is unknown. It may have taken effect or not: do not assume either.",
            attempts=tuple(log),
            chain=call.noted,
            started_at=sent_ms,
            duration_ms=0.0 if sent_ms is None else float(max(0, now_ms() - sent_ms)),
            sent_input=call.sent_input,
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
