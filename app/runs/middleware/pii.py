"""Middleware `pii`: personal data does not reach the model, the readers or the tools, or ends the run (LangChain's PIIMiddleware)."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Self

from pydantic import Field, model_validator

from app.agent.middleware import Middleware
from app.agent.ports import (
    ModelAnswer,
    ModelCall,
    ModelRequest,
    Piece,
    PlannedCall,
    ReasoningDelta,
    Restart,
    TextDelta,
    ToolCallDelta,
    ToolCallNext,
    ToolOutcome,
    Waiting,
)
from app.core.errors import MiddlewareFailed
from app.core.json import encode_text
from app.core.messages import Message
from app.runs.middleware.detectors import BUILT_IN, Detector, Strategy, built_in, own
from app.runs.middleware.kinds import Config, Scope
from app.runs.middleware.spec_kind import SpecKind
from app.runs.middleware.texts import in_answer, in_message, in_outcome
from app.runs.spec import Name, Spec
from app.tools.patterns import is_catastrophic


def checked_pattern(pattern: str) -> str:
    """Raises `ValueError`: no pattern, or one that could take exponential time, or that finds nothing at all everywhere."""
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    if is_catastrophic(pattern):
        raise ValueError("could take exponential time: nested or overlapping repetition; write it without")
    if compiled.match(""):
        raise ValueError("finds the empty text everywhere")
    return pattern


class PiiSpec(Spec):
    """The config of `pii`. An agent may have one for each type."""

    pii_type: Name
    """`email`, `credit_card`, `ip`, `mac_address`, `url`, or a name of your own with a `detector`."""
    strategy: Strategy = "redact"
    """`redact`: `[REDACTED_EMAIL]`; `mask`: `****-****-****-5100`; `hash`: `<email_hash:a6f1bad1>`; `block`: the run ends as `pii_detected`."""
    detector: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """A regular expression, for a type of your own or in a built-in one's place."""
    apply_to_input: bool = True
    """What users say, as the model is shown it."""
    apply_to_output: bool = False
    """What the model says."""
    apply_to_tool_calls: bool | None = None
    """The arguments of its calls; `null`: as `apply_to_output`."""
    apply_to_tool_results: bool = False

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.detector is not None:
            checked_pattern(self.detector)
        elif self.pii_type not in BUILT_IN:
            known = encode_text(list(BUILT_IN))
            raise ValueError(f"Unknown PII type: {self.pii_type}. Must be one of {known} or provide a custom detector.")
        return self


class PiiKind(SpecKind[PiiSpec]):
    name = "pii"
    description = "Redacts, masks, hashes or blocks personal data in input, output, tool arguments and results."
    spec = PiiSpec

    def label(self, config: Config) -> str:
        return f"pii[{config.get('pii_type')}]"

    async def made(self, spec: PiiSpec, scope: Scope) -> Middleware:
        detector = built_in(spec.pii_type) if spec.detector is None else own(spec.pii_type, spec.detector)
        run = _Pii(spec, detector)
        sees = spec.apply_to_input or spec.apply_to_tool_results or spec.apply_to_output or spec.apply_to_tool_calls
        return Middleware(
            self.name,
            wrap_model=run.wrap_model if sees else None,
            wrap_tool=run.wrap_tool if spec.apply_to_tool_results else None,
            shows=run.shown if spec.strategy != "block" else None,
        )


class _Pii:
    """One `pii` in one run."""

    def __init__(self, spec: PiiSpec, detector: Detector) -> None:
        self._spec = spec
        self._detector = detector
        self._calls = spec.apply_to_output if spec.apply_to_tool_calls is None else spec.apply_to_tool_calls
        self._roles = {"user"} if spec.apply_to_input else set[str]()
        if spec.apply_to_tool_results:
            self._roles.add("tool")  # results of runs before this middleware was there
        self._seen: dict[int, tuple[Message, Message]] = {}
        """By identity: messages never change, and all are shown again with every call of the model."""

    def shown(self, messages: Sequence[Message]) -> list[Message]:
        """Messages as the model is shown them. Raises `MiddlewareFailed` where the run is to end."""
        return [self._message(message) if message.role in self._roles else message for message in messages]

    async def wrap_model(self, request: ModelRequest, call_next: ModelCall) -> AsyncGenerator[Piece | ModelAnswer]:
        if self._roles:
            request = replace(request, messages=self.shown(request.messages))
        output = self._spec.apply_to_output
        text, thought = (_Held(self), _Held(self)) if output else (None, None)
        async with aclosing(call_next(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ModelAnswer):
                    for held, kind in ((thought, ReasoningDelta), (text, TextDelta)):
                        if held is not None and (rest := held.rest()):
                            yield kind(rest)
                    yield self._answer(piece)
                elif isinstance(piece, ToolCallDelta):
                    if not self._calls:
                        yield piece
                elif isinstance(piece, TextDelta) and text is not None:
                    if certain := text.feed(piece.text):
                        yield TextDelta(certain)
                elif isinstance(piece, ReasoningDelta) and thought is not None:
                    if certain := thought.feed(piece.text):
                        yield ReasoningDelta(certain)
                else:
                    if isinstance(piece, Restart) and output:
                        text, thought = _Held(self), _Held(self)
                    yield piece

    async def wrap_tool(self, call: PlannedCall, call_next: ToolCallNext) -> ToolOutcome | Waiting:
        outcome = await call_next(call)
        return outcome if isinstance(outcome, Waiting) else in_outcome(outcome, self.changed)

    def changed(self, text: str) -> str:
        """A text without what was looked for. Raises `MiddlewareFailed` (`pii_detected`) where that ends the run."""
        spec = self._spec
        if spec.strategy != "block":
            return self._detector.replaced(text, spec.strategy)
        if self._detector.found_in(text):
            raise MiddlewareFailed(
                f"The middleware `pii` found data of the type {spec.pii_type}, which it is to block.",
                code="pii_detected",
            )
        return text

    def certain(self, text: str) -> int:
        return self._detector.certain(text)

    def _message(self, message: Message) -> Message:
        known = self._seen.get(id(message))
        if known is None or known[0] is not message:
            known = self._seen[id(message)] = (message, in_message(message, self.changed))
        return known[1]

    def _answer(self, answer: ModelAnswer) -> ModelAnswer:
        if self._spec.apply_to_output:
            return in_answer(answer, self.changed, calls=self._calls)
        if not self._calls:
            return answer
        only_calls = in_answer(replace(answer, content="", reasoning="", refusal=None), self.changed, calls=True)
        return answer if only_calls.calls == answer.calls else answer.override(calls=only_calls.calls)


class _Held:
    """Text on its way to readers: held back until it is certain that no find begins in it."""

    __slots__ = ("_held", "_pii")

    def __init__(self, pii: _Pii) -> None:
        self._pii = pii
        self._held: list[str] = []

    def feed(self, text: str) -> str:
        certain = self._pii.certain(text)
        if not certain:
            self._held.append(text)
            return ""
        done = "".join([*self._held, text[:certain]])
        self._held = [text[certain:]]
        return self._pii.changed(done)

    def rest(self) -> str:
        done, self._held = "".join(self._held), []
        return self._pii.changed(done) if done else ""
