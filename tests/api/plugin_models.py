"""A model plugin that does what its model name says, well or badly."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

from runwire import (
    ModelAnswer,
    ModelError,
    ModelRequest,
    ProposedCall,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    model,
)

SECRET = "detail-for-the-log-only-4711"

ENDINGS: Mapping[str, object] = {
    "a content that is a number": ModelAnswer(cast("Any", 7)),
    "calls that are text": ModelAnswer("x", cast("Any", ("echo",))),
    "calls that are missing": ModelAnswer("x", cast("Any", None)),
    "arguments that are a list": ModelAnswer("", (ProposedCall("echo", cast("Any", ["a"])),)),
    "arguments that are no JSON": ModelAnswer("", (ProposedCall("echo", {"text": object()}),)),
    "arguments with U+0000": ModelAnswer("", (ProposedCall("echo", {"text": "\x00"}),)),
    "arguments with keys that are numbers": ModelAnswer("", (ProposedCall("echo", cast("Any", {1: "a"})),)),
    "arguments beyond 64 bits": ModelAnswer("", (ProposedCall("echo", {"text": 2**70}),)),
    "a name that is missing": ModelAnswer("", (ProposedCall(cast("Any", None), {}),)),
    "too many calls": ModelAnswer("", (ProposedCall("echo", {}),) * 1025),
    "negative tokens": ModelAnswer("x", tokens=TokenUsage(-1)),
    "tokens that are text": ModelAnswer("x", tokens=cast("Any", "many")),
    "tokens beyond any count": ModelAnswer("x", tokens=TokenUsage(10**30)),
    "half a token": ModelAnswer("x", tokens=TokenUsage(cast("Any", 0.5))),
    "an unknown reason": ModelAnswer("x", finish_reason=cast("Any", "tired")),
    "a text": "x",
    "nothing at all": None,
    "a delta without text": TextDelta(cast("Any", None)),
    "a delta of bytes": ReasoningDelta(cast("Any", b"x")),
    "a call's delta with a name that is a number": ToolCallDelta(0, None, cast("Any", 1), ""),
    "a call's delta with a negative index": ToolCallDelta(-1, None, "echo", ""),
}
"""What it yields last, by the name of the model; none of it can be used."""


@model("odd")
class Odd:
    """Does what its model name says."""

    def __init__(self, model: str, params: Mapping[str, object]) -> None:
        if model == "no factory":
            raise RuntimeError(SECRET)
        if model == "refused params":
            raise ModelError(f"There is no param of this name: {next(iter(params))}.", code="model_bad_request")
        self.name = model
        self._params = params
        if model == "no generator":
            self.stream = cast("Any", self._wrong)
        if model == "a list":
            self.stream = cast("Any", lambda request: [ModelAnswer("x")])  # pyright: ignore[reportUnknownLambdaType]
        if model == "no stream":
            self.stream = cast("Any", None)

    async def _wrong(self, request: ModelRequest) -> ModelAnswer:
        return ModelAnswer("x")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelAnswer]:
        name = self.name
        if name in ENDINGS:
            yield cast("Any", ENDINGS[name])
            return
        if name == "calls" and request.call_index == 0:
            yield cast("Any", ToolCallDelta(0, "c1", "echo", '{"text": "a"}'))
            yield ModelAnswer("", (ProposedCall("echo", {"text": "a"}, "c1"),), TokenUsage(10, 5))
            return
        yield TextDelta("so ")
        if name == "raises":
            raise RuntimeError(SECRET)
        if name == "exits":
            raise SystemExit(3)
        if name == "cancels itself":
            raise asyncio.CancelledError
        if name == "times out":
            raise TimeoutError(SECRET)
        if name == "a model's error":
            raise ModelError("Too many\nquestions.", code="model_rate_limited", retryable=True)
        if name == "an odd error":
            raise ModelError("x", code="No Code\r\n")
        if name == "no answer":
            return
        if name == "hangs":
            await asyncio.Event().wait()
        if name == "does not let go":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                yield TextDelta("never mind")
        if name == "fails at its end":
            try:
                yield TextDelta("far")
                await asyncio.Event().wait()
            finally:
                raise RuntimeError(SECRET)
        said = "so \ud83d far" if name == "half a character" else f"so {self._params.get('said', 'far')}"
        yield ModelAnswer(said, tokens=TokenUsage(1000, 200, cost_usd=99.0))
        if name == "two answers":
            yield ModelAnswer("and more")
        if name == "talks on":
            yield TextDelta("and more")
