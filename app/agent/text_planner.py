"""The text planner: an agent whose model knows no tool calls and writes its decisions as text, one action at a time."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from app.agent.observing import told_text
from app.agent.parsers.port import Parsed, TextParser
from app.agent.planners import answered
from app.agent.ports import (
    Decision,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    ParseError,
    Piece,
    PlannedCall,
    ProposedAction,
    ReasoningDelta,
    Restart,
    Round,
    TextDelta,
    ToolOutcome,
    Turn,
)
from app.agent.settings import AgentSettings
from app.agent.stop_words import StopCut
from app.agent.text_input import TextInputs
from app.agent.trimming import Trimmer
from app.core.actions import AgentAction, AgentFinish
from app.core.errors import ModelError
from app.core.messages import Message
from app.core.values import immutable

FINAL_DEMAND = "\n\nI now need to return a final answer based on the previous steps:"
"""AgentExecutor's words, at the end of the scratchpad: the model goes on from them."""


CUT_OFF = (
    "Not run: the answer reached the model's output limit, so this input may not be whole. Write a shorter answer."
)
"""What the model reads of an action that its own output limit may have cut: half an input could do harm."""


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
    inputs: TextInputs


class TextPlanner:
    """Single-action: the answer's text is an action, a finish or cannot be read."""

    multi_action = False

    def __init__(self, settings: AgentSettings, call_model: ModelCall, form: TextFormat, trimmer: Trimmer) -> None:
        self._settings = settings
        self._call_model = call_model
        self._form = form
        self._trimmer = trimmer

    async def plan(self, turn: Turn) -> AsyncGenerator[Piece | Decision]:
        async with aclosing(self._read(turn, self.messages(turn))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def conclude(self, turn: Turn) -> AsyncGenerator[Piece | Decision]:
        """What cannot be read as a finish is the answer as it is, in one piece unless a part of it was told before."""
        messages = self._form.prompt.messages(turn, self._seen(turn), FINAL_DEMAND)
        told = not self._settings.stream_output
        async with aclosing(self._read(turn, messages)) as chunks:
            async for chunk in chunks:
                if not isinstance(chunk, Decision) or isinstance(chunk.outcome, AgentFinish):
                    told = (
                        not self._settings.stream_output
                        or isinstance(chunk, TextDelta)
                        or (told and not isinstance(chunk, Restart))
                    )
                    yield chunk
                    continue
                text = _raw_text(chunk)
                if not told:
                    yield TextDelta(text)
                yield Decision(AgentFinish({"output": text}, text), chunk.message, chunk.tokens, chunk.model)

    def messages(self, turn: Turn) -> Sequence[Message]:
        return self._form.prompt.messages(turn, self._seen(turn))

    def observe(self, call: PlannedCall, outcome: ToolOutcome) -> Message:
        return Message("user", told_text(outcome), tool_call_id=call.provider_call_id)

    def _seen(self, turn: Turn) -> Sequence[Round]:
        """One action a round, so a round is kept whole or not at all."""
        kept = self._trimmer.kept(turn.rounds)
        return turn.rounds if kept is None else [item for item, _ in kept]

    async def _read(self, turn: Turn, messages: Sequence[Message]) -> AsyncGenerator[Piece | Decision]:
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
                if isinstance(chunk, Restart):
                    cut, reader, said = StopCut(self._form.stop), self._form.parser.reader(), []
                    yield chunk
                elif isinstance(chunk, ReasoningDelta):
                    yield chunk
                elif isinstance(chunk, TextDelta):
                    said.append(cut.feed(chunk.text))
                    for spoken in reader.feed(said[-1]):
                        yield spoken
                elif isinstance(chunk, ModelAnswer):
                    whole = "" if said else cut.feed(chunk.content or chunk.refusal or "")
                    said += (whole, cut.rest())
                    last = [*reader.feed(said[-2]), *reader.feed(said[-1])]
                    ended = reader.finish(refused=chunk.refusal is not None)
                    for spoken in (*last, *ended.deltas) if stream else ():
                        yield spoken
                    yield self._decision(chunk, "".join(said), ended.outcome, whole=cut.cut)

    def _decision(self, answer: ModelAnswer, text: str, outcome: Parsed, *, whole: bool) -> Decision:
        """`whole`: a stop word ended the text, so whatever limit the model reached came after it."""
        if answer.finish_reason == "content_filter" and not text:
            raise ModelError("The provider's content filter withheld the answer.", code="content_filtered")
        message = Message("assistant", text, refusal=answer.refusal)
        decided: tuple[ProposedAction, ...] | AgentFinish | ParseError
        if isinstance(outcome, ParseError):
            decided = outcome
        elif isinstance(outcome, AgentFinish):
            decided = _marked(outcome, answer)
        else:
            refusal = CUT_OFF if answer.finish_reason == "length" and not whole else None
            actions = (outcome,) if isinstance(outcome, AgentAction) else outcome
            decided = tuple(ProposedAction(self._form.inputs.read(action), refusal=refusal) for action in actions)
        return Decision(decided, message, answer.tokens, answer.model)


def _marked(finish: AgentFinish, answer: ModelAnswer) -> AgentFinish:
    """The finish with what the provider says of it, in the words of every agent."""
    marks: dict[str, object] = {}
    if answer.finish_reason == "length":
        marks["truncated"] = True
    if answer.finish_reason == "content_filter":
        marks["filtered"] = True
    if answer.refusal is not None:
        marks["refusal"] = True
    return AgentFinish({**finish.return_values, **marks}, finish.log) if marks else finish


def _raw_text(decision: Decision) -> str:
    text = "" if decision.message is None else str(decision.message.content or "")
    if not text:
        raise ModelError("The model gave an empty answer.", code="model_empty_response", retryable=True)
    return text
