"""The text planner: an agent whose model knows no tool calls and writes its decisions as text, one action at a time."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from app.agent.parsers.port import TextParser
from app.agent.planners import answered
from app.agent.ports import (
    Decision,
    Delta,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    ParseError,
    PlannedCall,
    ProposedAction,
    ReasoningDelta,
    Round,
    TextDelta,
    ToolOutcome,
    Turn,
)
from app.agent.settings import AgentSettings
from app.agent.stop_words import StopCut
from app.agent.trimming import Trimmer
from app.core.actions import AgentAction, AgentFinish, observation_text
from app.core.errors import ModelError
from app.core.messages import Message
from app.core.values import immutable

FINAL_DEMAND = "\n\nI now need to return a final answer based on the previous steps:"
"""AgentExecutor's words, at the end of the scratchpad: the model goes on from them."""


class TextPrompt(Protocol):
    """What a text agent's model is shown: the prompt with the run's input and the steps so far in it."""

    def messages(self, turn: Turn, rounds: Sequence[Round], demand: str = "") -> Sequence[Message]:
        """`rounds`: those the model may see. `demand`: added at the end of the scratchpad."""
        ...


@immutable
class TextFormat:
    """How one type of text agent speaks."""

    parser: TextParser
    prompt: TextPrompt
    stop: Sequence[str]


class TextPlanner:
    """Single-action: the answer's text is an action, a finish or cannot be read."""

    multi_action = False

    def __init__(self, settings: AgentSettings, call_model: ModelCall, form: TextFormat, trimmer: Trimmer) -> None:
        self._settings = settings
        self._call_model = call_model
        self._form = form
        self._trimmer = trimmer

    async def plan(self, turn: Turn) -> AsyncGenerator[Delta | Decision]:
        async with aclosing(self._read(turn, self.messages(turn))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def conclude(self, turn: Turn) -> AsyncGenerator[Delta | Decision]:
        """What cannot be read as a finish is the answer as it is."""
        messages = self._form.prompt.messages(turn, self._seen(turn), FINAL_DEMAND)
        async with aclosing(self._read(turn, messages)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Decision) and not isinstance(chunk.outcome, AgentFinish):
                    yield self._raw(chunk)
                else:
                    yield chunk

    def messages(self, turn: Turn) -> Sequence[Message]:
        return self._form.prompt.messages(turn, self._seen(turn))

    def observe(self, call: PlannedCall, outcome: ToolOutcome) -> Message:
        return Message("user", observation_text(outcome.observation), tool_call_id=call.provider_call_id)

    def _seen(self, turn: Turn) -> Sequence[Round]:
        """One action a round, so a round is kept whole or not at all."""
        kept = self._trimmer.kept(turn.rounds)
        return turn.rounds if kept is None else [item for item, _ in kept]

    async def _read(self, turn: Turn, messages: Sequence[Message]) -> AsyncGenerator[Delta | Decision]:
        """Ask the model and read what it says while it speaks."""
        stream = self._settings.stream_output
        request = ModelRequest(
            messages,
            stream=stream,
            stop=self._form.stop,
            call_index=turn.iteration - 1,
        )
        cut, reader, said = StopCut(self._form.stop), self._form.parser.reader(), list[str]()
        async with aclosing(answered(self._call_model(request))) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, ReasoningDelta):
                    yield chunk
                elif isinstance(chunk, TextDelta):
                    said.append(cut.feed(chunk.text))
                    for spoken in reader.feed(said[-1]):
                        yield spoken
                elif isinstance(chunk, ModelAnswer):
                    whole = "" if said else cut.feed(chunk.content or chunk.refusal or "")
                    said += (whole, cut.rest())
                    last = [*reader.feed(said[-2]), *reader.feed(said[-1])]
                    ended = reader.finish()
                    for spoken in (*last, *ended.deltas) if stream else ():
                        yield spoken
                    yield _decision(chunk, "".join(said), ended.outcome)

    def _raw(self, decision: Decision) -> Decision:
        text = "" if decision.message is None else str(decision.message.content or "")
        if not text:
            raise ModelError("The model gave an empty answer.", code="model_empty_response", retryable=True)
        return Decision(AgentFinish({"output": text}, text), decision.message, decision.tokens, decision.model)


def _decision(
    answer: ModelAnswer, text: str, outcome: AgentAction | tuple[AgentAction, ...] | AgentFinish | ParseError
) -> Decision:
    if answer.finish_reason == "content_filter" and not text:
        raise ModelError("The provider's content filter withheld the answer.", code="content_filtered")
    message = Message("assistant", text, refusal=answer.refusal)
    if isinstance(outcome, AgentFinish) and answer.finish_reason in ("length", "content_filter"):
        mark = "truncated" if answer.finish_reason == "length" else "filtered"
        outcome = AgentFinish({**outcome.return_values, mark: True}, outcome.log)
    if isinstance(outcome, AgentAction):
        outcome = (outcome,)
    decided = tuple(ProposedAction(action) for action in outcome) if isinstance(outcome, tuple) else outcome
    return Decision(decided, message, answer.tokens, answer.model)
