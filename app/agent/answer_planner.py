"""The answer planner: a planner whose finish must be a structured answer, and which asks again until it is one."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from app.agent.answer import AnswerSchema, Misfit
from app.agent.observing import told_text
from app.agent.parse_policy import Handled, handle
from app.agent.planners import answered
from app.agent.ports import (
    Decision,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    ParseError,
    Piece,
    PlannedCall,
    Planner,
    ProposedAction,
    ToolOutcome,
    Turn,
)
from app.agent.settings import AgentSettings
from app.core.actions import AgentFinish, observation_text
from app.core.json import encode_text
from app.core.messages import Message

BOTH = "Not taken: this answer gives `{name}` {count} times, and only one is wanted. Call it once."
"""What the model reads of each of several structured answers in one message."""

ENDINGS = ("refusal", "filtered")
"""What a provider says of an answer that no second question would mend: it ends the run as it is, and says so."""


class AnswerPlanner:
    """Wraps a planner of any kind. A misfit is told to the model as `handle_parsing_errors` says, and counts as a round."""

    def __init__(self, inner: Planner, answer: AnswerSchema, settings: AgentSettings, call_model: ModelCall) -> None:
        """`inner` asks the model by `asking(answer, call_model)`, and offers the answer's tool where there is one."""
        self.multi_action = inner.multi_action
        self._inner = inner
        self._answer = answer
        self._settings = settings
        self._call_model = call_model

    async def plan(self, turn: Turn) -> AsyncGenerator[Piece | Decision]:
        async with aclosing(self._inner.plan(turn)) as chunks:
            async for chunk in chunks:
                yield await self._checked(chunk) if isinstance(chunk, Decision) else chunk

    async def conclude(self, turn: Turn) -> AsyncGenerator[Piece | Decision]:
        """The last answer, which only counts if it fits: else its decision is a `ParseError`."""
        if self._answer.tool is not None:
            async with aclosing(self._conclude_by_tool(turn)) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        async with aclosing(self._inner.conclude(turn)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Decision) and isinstance(chunk.outcome, AgentFinish):
                    yield replace(chunk, outcome=self._finish(chunk.outcome))
                else:
                    yield chunk

    def messages(self, turn: Turn) -> Sequence[Message]:
        return self._inner.messages(turn)

    def observe(self, call: PlannedCall, outcome: ToolOutcome) -> Message:
        """What is told of an answer without a call answers no call, so it is the user's word."""
        if call.action.type == "AgentAction":
            return Message("user", told_text(outcome), tool_call_id=call.provider_call_id)
        return self._inner.observe(call, outcome)

    async def _checked(self, decision: Decision) -> Decision:
        outcome = decision.outcome
        if isinstance(outcome, AgentFinish):
            return replace(decision, outcome=self._finish(outcome))
        if isinstance(outcome, ParseError) or self._answer.tool is None:
            return decision
        given = [item for item in outcome if item.action.tool == self._answer.name and item.refusal is None]
        faults = [self._fault_of(item, len(given)) for item in given]
        wrong = {id(item): fault for item, fault in zip(given, faults, strict=True) if fault is not None}
        if not wrong:
            return decision
        if self._settings.handle_parsing_errors is False:
            return replace(decision, outcome=ParseError(next(iter(wrong.values()))))
        told = [
            replace(item, refusal=await self._told(wrong[id(item)])) if id(item) in wrong else item for item in outcome
        ]
        return replace(decision, outcome=tuple(told))

    def _fault_of(self, item: ProposedAction, count: int) -> str | None:
        name = self._answer.name
        if count > 1:
            return BOTH.format(name=name, count=count)
        try:
            self._answer.of_call(item.action.tool_input)
        except Misfit as misfit:
            return f"Not taken: the arguments of `{name}` do not fit its schema: {misfit}. Call it again with ones that do."
        return None

    async def _told(self, fault: str) -> str:
        handling = self._settings.handle_parsing_errors
        if isinstance(handling, bool):
            return fault
        handled = await handle(handling, ParseError(fault))
        return handled.observation if isinstance(handled, Handled) else fault

    def _finish(self, finish: AgentFinish) -> AgentFinish | ParseError:
        """A finish with its structured answer, or what to tell the model instead."""
        values = finish.return_values
        if any(values.get(mark) for mark in ENDINGS) or "output" not in values:
            return finish
        try:
            answer = self._answer.of_output(values["output"])
        except Misfit as misfit:
            return self._demand(finish, str(misfit))
        output = encode_text(answer) if self._answer.is_wrapped else values["output"]
        return AgentFinish({**values, "output": output, "structured": answer}, finish.log)

    def _demand(self, finish: AgentFinish, fault: str) -> ParseError:
        if finish.return_values.get("truncated"):
            fault = f"the output limit cut it off ({fault}); make it shorter"
        if self._answer.tool is not None:
            demand = f"Give your final answer by calling the tool `{self._answer.tool}`; as text it is not taken."
        else:
            demand = f"The final answer does not fit what is asked for: {fault}. Give it again, as JSON that fits the schema."
        said = finish.log or observation_text(finish.return_values["output"])
        return ParseError(demand, said, demand, send_to_llm=True)

    async def _conclude_by_tool(self, turn: Turn) -> AsyncGenerator[Piece | Decision]:
        """One forced call. It is kept as what it says: a call would want a result, and the run is over."""
        settings, answer = self._settings, self._answer
        demand = f"Give your final answer now, based on the previous steps, by calling `{answer.name}`. Nothing else can be called any more."
        request = ModelRequest(
            [*self._inner.messages(turn), Message("user", demand)],
            [answer.definition],
            tool_choice=None if settings.tool_choice is None else answer.name,
            stream=settings.stream_output,
            call_index=turn.iteration - 1,
            answer_tool=answer.name,
        )
        async with aclosing(answered(self._call_model(request))) as chunks:
            async for chunk in chunks:
                yield self._last(chunk) if isinstance(chunk, ModelAnswer) else chunk

    def _last(self, answer: ModelAnswer) -> Decision:
        given = next((call for call in answer.calls if call.name == self._answer.name and call.args is not None), None)
        text = answer.content or answer.refusal or ""
        outcome: AgentFinish | ParseError
        if given is None:
            refused = {} if answer.refusal is None else {"refusal": True}
            outcome = self._finish(AgentFinish({"output": text, **refused}, text))
        else:
            try:
                outcome = self._answer.finish(self._answer.of_call(given.args or {}), text)
                text = str(outcome.return_values["output"])
            except Misfit as misfit:
                outcome = ParseError(str(misfit))
        return Decision(outcome, Message("assistant", text, refusal=answer.refusal), answer.tokens, answer.model)


def asking(answer: AnswerSchema, call_model: ModelCall) -> ModelCall:
    """`call_model`, with each request saying what the answer is to be."""
    if answer.strategy == "text":
        return call_model

    def ask(request: ModelRequest) -> AsyncGenerator[Piece | ModelAnswer]:
        if answer.tool is not None:
            return call_model(replace(request, answer_tool=answer.tool))
        return call_model(replace(request, answer_format=answer.format))

    return ask


def offering(answer: AnswerSchema, settings: AgentSettings) -> AgentSettings:
    """The settings of the planner within: a model that is to call the answer's tool must call something.

    `tool_choice` `None` leaves the choice out, for servers that refuse it; a choice of the agent's own stands.
    """
    if answer.strategy == "text":
        return replace(settings, instructions=answer.instructions(settings.instructions))
    choice = settings.tool_choice
    if answer.tool is None or choice not in ("auto", "none"):
        return settings
    return replace(settings, tool_choice="required" if choice == "auto" else answer.tool)
