"""The scripted model: plays turns written down beforehand (contract, section 9), so that nothing needs a model service.

Stateless: the turn is chosen by the request's `call_index`, so a script goes on where it was after a restart.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Literal, cast

from app.agent.ports import Delta, ModelAnswer, ModelRequest, ProposedCall, TextDelta, ToolCallDelta
from app.core.errors import ModelError
from app.core.json import encode_text
from app.models.failures import MODEL_ERROR_CODES, RETRYABLE_CODES
from app.models.tokens import read_usage
from app.models.tool_fragments import MAX_CALLS, too_many_calls

DEFAULT_CHUNK_SIZE = 8
"""Characters of content in one delta."""

_SHORT_CODES = {
    "overloaded": "model_unavailable",
    "server_error": "model_unavailable",
    "context_length": "context_length_exceeded",
    "content_filter": "content_filtered",
}


def error_code(code: str) -> str | None:
    """The `ModelError` code that a script's short code stands for (`rate_limited` → `model_rate_limited`), if any."""
    for name in (code, f"model_{code}", _SHORT_CODES.get(code, "")):
        if name in MODEL_ERROR_CODES:
            return name
    return None


class _Turn:
    """One turn, ready to play."""

    __slots__ = ("answer", "chunk_delay_s", "chunk_size", "delay_s", "deltas", "error", "error_after_s")

    def __init__(self, turn: Mapping[str, object], model: str) -> None:
        self.delay_s = _seconds(turn.get("delay_ms"))
        self.chunk_delay_s = _seconds(turn.get("chunk_delay_ms"))
        self.chunk_size = cast("int | None", turn.get("chunk_size")) or DEFAULT_CHUNK_SIZE
        self.deltas: tuple[Delta, ...] | None = None
        self.answer = _answer(turn, model)
        self.error: str | None = None
        self.error_after_s = 0.0
        error = cast("Mapping[str, object] | None", turn.get("error"))
        if error is not None:
            self.error = error_code(str(error.get("code"))) or "model_unavailable"
            self.error_after_s = _seconds(error.get("after_ms"))


class ScriptedModel:
    """A `ChatModel` that plays `script`, a list of checked turns (`app.models.spec`)."""

    def __init__(
        self, script: Sequence[Mapping[str, object]], *, model: str = "scripted", repeat: bool = False
    ) -> None:
        """`repeat`: past its end the script's last turn is played again, for ever."""
        self._script = script
        self._turns: dict[int, _Turn] = {}
        self._model = model
        self._repeat = repeat

    @property
    def name(self) -> str:
        return self._model

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]:
        """Play the turn of `request.call_index`. Raises `ModelError`: the turn's own, or `script_exhausted`."""
        turn = self._turn(request.call_index)
        if turn.delay_s:
            await asyncio.sleep(turn.delay_s)
        if request.stream:
            if turn.deltas is None:
                turn.deltas = tuple(_deltas(turn.answer, turn.chunk_size))
            for delta in turn.deltas:
                yield delta
                if turn.chunk_delay_s:
                    await asyncio.sleep(turn.chunk_delay_s)
        if turn.error is not None:
            if turn.error_after_s:
                await asyncio.sleep(turn.error_after_s)
            raise ModelError(
                f"The script says that the model fails here with {turn.error}.",
                code=turn.error,
                retryable=turn.error in RETRYABLE_CODES,
            )
        yield turn.answer

    def _turn(self, index: int) -> _Turn:
        last = len(self._script) - 1
        if index > last:
            if not self._repeat or last < 0:
                raise ModelError(
                    f"The script has {last + 1} turns and the run asked for turn {index + 1}. "
                    'Add turns, or set "repeat": true to play the last one again.',
                    code="script_exhausted",
                )
            index = last
        turn = self._turns.get(index)
        if turn is None:
            turn = self._turns[index] = _Turn(self._script[index], self._model)
        return turn


def _answer(turn: Mapping[str, object], model: str) -> ModelAnswer:
    calls: list[ProposedCall] = []
    for call in cast("Sequence[Mapping[str, object]]", turn.get("tool_calls") or ()):
        args = cast("dict[str, object]", call.get("args") or {})
        calls.append(ProposedCall(str(call["name"]), args, cast("str | None", call.get("id")), encode_text(args)))
    for call in cast("Sequence[Mapping[str, object]]", turn.get("invalid_tool_calls") or ()):
        error = str(call.get("error") or "The arguments are not valid JSON. Call the tool again with one JSON object.")
        calls.append(
            ProposedCall(
                str(call.get("name") or ""),
                None,
                cast("str | None", call.get("id")),
                str(call.get("args") or ""),
                error,
            )
        )
    if len(calls) > MAX_CALLS:
        raise too_many_calls()
    finish: Literal["tool_calls", "stop"] = "tool_calls" if calls else "stop"
    content = str(turn.get("content") or "")
    return ModelAnswer(content, tuple(calls), read_usage(turn.get("usage")), finish, model=model)


def _deltas(answer: ModelAnswer, size: int) -> list[Delta]:
    text = answer.content
    deltas: list[Delta] = [TextDelta(text[at : at + size]) for at in range(0, len(text), size)]
    for index, call in enumerate(answer.calls):
        if call.name:
            deltas.append(ToolCallDelta(index, call.provider_id, call.name, call.raw_args))
    return deltas


def _seconds(ms: object) -> float:
    return ms / 1000 if isinstance(ms, (int, float)) else 0.0
