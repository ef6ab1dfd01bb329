"""Middleware `summarization`: a conversation that grows too long is shown to the model as a summary and its last messages.

What is stored stays whole. The summary is a field of the thread's state that is the server's own, with the place up to
which it goes; a later one goes on from it (LangChain's SummarizationMiddleware).
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Self, cast

import structlog
from pydantic import Field, field_validator, model_validator

from app.agent.middleware import HookResult, Middleware
from app.agent.ports import ModelAnswer, ModelCall, ModelRequest, Piece
from app.agent.state import LoopState
from app.agent.state_schema import FieldUpdate, Values
from app.core.errors import ModelError
from app.core.json import encode, encode_text
from app.core.messages import Message
from app.runs.middleware.kinds import Config, Scope
from app.runs.middleware.models import ModelPins, later, pinned
from app.runs.middleware.spec_kind import SpecKind
from app.runs.middleware.texts import TokenCount, text_of
from app.runs.spec import JsonObject, Spec

FIELD = "__summary"
"""`{"upto": messages that it stands for, "last": digest of the last of them, "text", "number"}`."""

PROMPT = """Summarize the conversation below for whoever continues it. Keep what later turns may need: the user's goals and \
constraints, decisions and their reasons, names, numbers and ids exactly as they are, results of tools, and what is still open. \
Leave out greetings and repetition. Answer with the summary alone.

{messages}"""

INTRODUCTION = "Here is a summary of the conversation to date:\n\n"
"""LangChain's words."""

Size = Annotated[int, Field(ge=1)]

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


Look = Callable[[], tuple[Sequence[Message], Values]]
"""The thread's messages and fields as they are now."""


class SizeSpec(Spec):
    """An amount: of messages or of tokens."""

    messages: Size | None = None
    tokens: Size | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.messages is None) == (self.tokens is None):
            raise ValueError("say either `messages` or `tokens`")
        return self


class SummarizationSpec(Spec):
    """The config of `summarization`."""

    trigger: SizeSpec
    """The conversation is summarized when it has come to this, a summary before it counted as one message."""
    keep: SizeSpec = SizeSpec(messages=20)
    """What of its end is kept as it is; a call and its results stay together."""
    model: str | JsonObject | None = None
    """Who summarizes; `null`: the agent's model."""
    summary_prompt: Annotated[str, Field(max_length=16384)] = PROMPT
    """`{messages}` stands for the conversation."""

    @field_validator("summary_prompt")
    @classmethod
    def _whole(cls, prompt: str) -> str:
        if "{messages}" not in prompt:
            raise ValueError("must hold {messages}, where the conversation goes")
        return prompt


class SummarizationKind(SpecKind[SummarizationSpec]):
    name = "summarization"
    description = "Shows the model a summary of a long conversation and its last messages; what is stored stays whole."
    spec = SummarizationSpec

    def __init__(self, models: ModelPins) -> None:
        self._models = models

    async def pin(self, tenant: str, config: Config, pointer: str, old: Config | None = None) -> Config:
        checked = dict(await super().pin(tenant, config, pointer))
        if checked.get("model") is not None:
            before = [(old or {}).get("model")]
            (checked["model"],) = await pinned(self._models, tenant, [checked["model"]], [f"{pointer}/model"], before)
        return checked

    async def made(self, spec: SummarizationSpec, scope: Scope) -> Middleware:
        model = cast("JsonObject", scope.run.spec["model"] if spec.model is None else spec.model)
        tokens = TokenCount(await scope.count_tokens())
        run = _Summarization(spec, later(scope, model), tokens, lambda: (scope.view.messages(), scope.view.values()))
        return Middleware(self.name, before_model=run.before_model, wrap_model=run.wrap_model, shows=run.shown)


class _Summarization:
    """The summary of one run's thread."""

    def __init__(self, spec: SummarizationSpec, call: ModelCall, tokens: TokenCount, look: Look) -> None:
        self._spec = spec
        self._call = call
        self._tokens = tokens
        self._look = look
        self._covered: tuple[int, dict[int, Message]] = (0, {})
        """The messages that the summary stands for, by identity."""

    async def before_model(self, state: LoopState) -> HookResult | None:
        messages = state.messages
        upto, text, number = _summary(messages, state.values)
        if not self._reached(messages[upto:], text):
            return None
        cut = self._cut(messages, upto)
        if cut <= upto:
            return None
        said = [f"Summary so far: {text}"] if text else []
        said += [_line(message) for message in messages[upto:cut]]
        answer = await self._asked("\n".join(said), number)
        if answer is None:
            return None
        state.usage.add_model_call(answer.tokens)
        kept = {"upto": cut, "last": _digest(messages[cut - 1]), "text": answer.content, "number": number + 1}
        return HookResult(own=(FieldUpdate(FIELD, "replace", kept),))

    async def wrap_model(self, request: ModelRequest, call_next: ModelCall) -> AsyncGenerator[Piece | ModelAnswer]:
        messages = self.shown(request.messages)
        async with aclosing(
            call_next(request if messages is request.messages else request.override(messages=messages))
        ) as pieces:
            async for piece in pieces:
                yield piece

    def shown(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages, with the summary in the place of those that it stands for."""
        stored, values = self._look()
        upto, text, _ = _summary(stored, values)
        if not text:
            return messages
        if self._covered[0] != upto:
            self._covered = upto, {id(message): message for message in stored[:upto]}
        covered = self._covered[1]
        gone = {call.id for message in covered.values() for call in message.tool_calls}
        kept: list[Message] = []
        place: int | None = None
        for message in messages:
            trimmed = bool(message.tool_calls) and all(call.id in gone for call in message.tool_calls)
            if id(message) not in covered and not trimmed:
                kept.append(message)
            elif place is None:
                place = len(kept)
        if place is None:
            return messages
        return [*kept[:place], Message("user", INTRODUCTION + text), *kept[place:]]

    def _reached(self, messages: Sequence[Message], text: str) -> bool:
        trigger = self._spec.trigger
        if trigger.messages is not None:
            return len(messages) + bool(text) >= trigger.messages
        size = self._tokens.of(messages) + (self._tokens.of([Message("user", text)]) if text else 0)
        return size >= (trigger.tokens or 0)

    def _cut(self, messages: Sequence[Message], upto: int) -> int:
        """Where what is kept begins: never between calls and their results."""
        keep = self._spec.keep
        cut = len(messages)
        if keep.messages is not None:
            cut = max(upto, len(messages) - keep.messages)
        else:
            left = keep.tokens or 0
            while cut > upto and (size := self._tokens.of([messages[cut - 1]])) <= left:
                left -= size
                cut -= 1
        cut = min(cut, len(messages) - 1)  # the model is to have something to answer
        while cut > upto and messages[cut].tool_call_id is not None:
            cut -= 1
        return cut

    async def _asked(self, conversation: str, number: int) -> ModelAnswer | None:
        """The summary; `None` where there is none this time, and the model is shown the conversation as it is."""
        prompt = self._spec.summary_prompt.replace("{messages}", conversation)
        request = ModelRequest([Message("user", prompt)], stream=False, call_index=number)
        try:
            async with aclosing(self._call(request)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, ModelAnswer):
                        return piece if piece.content.strip() else None
        except ModelError as error:
            _log.warning("summary_failed", code=error.code)
        return None


def _summary(messages: Sequence[Message], values: Values) -> tuple[int, str, int]:
    """(how many messages it stands for, its text, how many there were); none where the conversation was overwritten since."""
    kept = values.get(FIELD)
    if not isinstance(kept, dict):
        return 0, "", 0
    found = cast("Mapping[str, object]", kept)
    upto, number = cast("int", found["upto"]), cast("int", found["number"])
    if upto > len(messages) or _digest(messages[upto - 1]) != found["last"]:
        return 0, "", number
    return upto, str(found["text"]), number


def _digest(message: Message) -> str:
    return hashlib.sha256(encode(message.to_json())).hexdigest()[:16]


_NAMES = {"user": "Human", "assistant": "AI", "system": "System", "tool": "Tool"}


def _line(message: Message) -> str:
    calls = "".join(f" [calls {call.name}({encode_text(call.args)})]" for call in message.tool_calls)
    return f"{_NAMES[message.role]}: {text_of(message.content)}{calls}"
