"""What a model plugin yields, checked: only what the loop can use and both databases can store comes through. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast, get_args

from app.agent.ports import Delta, ModelAnswer, ProposedCall, ReasoningDelta, TextDelta, ToolCallDelta
from app.core.errors import InvalidRequest
from app.core.json import decode_strict, encode
from app.core.usage import TokenUsage
from app.models.text import storable
from app.models.tokens import MAX_TOKENS
from app.models.tool_fragments import MAX_CALL_BYTES, MAX_CALLS

MAX_TEXT = 32 * 1024 * 1024
"""Characters of one text: as much as an answer over HTTP may have bytes."""

FINISH_REASONS = frozenset(("stop", "tool_calls", "length", "content_filter"))


class WrongItem(Exception):
    """The plugin yielded something that cannot be used. The message says what, in words for its author."""


def checked_delta(delta: Delta) -> Delta:
    """Raises `WrongItem`."""
    if isinstance(delta, ToolCallDelta):
        if type(delta.index) is not int or not 0 <= delta.index < MAX_CALLS:
            raise WrongItem("a ToolCallDelta's index must be a whole number from 0 on")
        return ToolCallDelta(
            delta.index,
            _text_or_none(delta.id, "a ToolCallDelta's id"),
            _text_or_none(delta.name, "a ToolCallDelta's name"),
            _text(delta.args, "a ToolCallDelta's args"),
        )
    kind = ReasoningDelta if isinstance(delta, ReasoningDelta) else TextDelta
    return kind(_text(delta.text, f"a {kind.__name__}'s text"))


def checked_answer(answer: ModelAnswer, model: str) -> ModelAnswer:
    """`model`: the name where the answer gives none. Raises `WrongItem`."""
    calls: object = answer.calls
    if not isinstance(calls, tuple | list):
        raise WrongItem("a ModelAnswer's calls must be a tuple of ProposedCall")
    proposed = tuple(_call(item) for item in cast("tuple[object, ...]", calls))
    if len(proposed) > MAX_CALLS:
        raise WrongItem(f"a ModelAnswer may have at most {MAX_CALLS} calls")
    reason = answer.finish_reason
    if reason not in FINISH_REASONS:
        raise WrongItem(f"a ModelAnswer's finish_reason must be one of {', '.join(sorted(FINISH_REASONS))}")
    return ModelAnswer(
        content=_text(answer.content, "a ModelAnswer's content"),
        calls=proposed,
        tokens=_tokens(answer.tokens),
        finish_reason=reason,
        reasoning=_text(answer.reasoning, "a ModelAnswer's reasoning"),
        refusal=_text_or_none(answer.refusal, "a ModelAnswer's refusal"),
        model=_text(answer.model, "a ModelAnswer's model") or model,
    )


def _call(call: object) -> ProposedCall:
    if not isinstance(call, ProposedCall):
        raise WrongItem("a ModelAnswer's calls must be a tuple of ProposedCall")
    args, raw = _args(call.args), _text(call.raw_args, "a ProposedCall's raw_args")
    return ProposedCall(
        _text(call.name, "a ProposedCall's name"),
        args,
        _text_or_none(call.provider_id, "a ProposedCall's provider_id"),
        raw or ("" if args is None else encode(args).decode()),
        _text_or_none(call.error, "a ProposedCall's error"),
    )


def _args(args: object) -> dict[str, object] | None:
    if args is None:
        return None
    if not isinstance(args, Mapping):
        raise WrongItem("a ProposedCall's args must be a dict, or None where they could not be read")
    try:
        data = encode(dict(cast("Mapping[str, object]", args)))
        if len(data) > MAX_CALL_BYTES:
            raise WrongItem(f"a ProposedCall's args must have at most {MAX_CALL_BYTES} bytes")
        return cast("dict[str, object]", decode_strict(data))
    except (TypeError, ValueError, RecursionError, InvalidRequest) as error:
        raise WrongItem("a ProposedCall's args must be plain JSON") from error


def _tokens(tokens: object) -> TokenUsage:
    if not isinstance(tokens, TokenUsage):
        raise WrongItem("a ModelAnswer's tokens must be a TokenUsage")
    counts = (
        tokens.input_tokens,
        tokens.output_tokens,
        tokens.total_tokens,
        tokens.cache_read_tokens,
        tokens.cache_write_tokens,
    )
    if any(type(count) is not int or not 0 <= count <= MAX_TOKENS for count in counts):
        raise WrongItem(f"a TokenUsage holds whole numbers from 0 to {MAX_TOKENS}")
    total = tokens.total_tokens or tokens.input_tokens + tokens.output_tokens
    return replace(tokens, total_tokens=total, cost_usd=None)  # what it costs is the operator's to say


def _text_or_none(text: object, what: str) -> str | None:
    return None if text is None else _text(text, what)


def _text(text: object, what: str) -> str:
    if not isinstance(text, str):
        raise WrongItem(f"{what} must be text")
    if len(text) > MAX_TEXT:
        raise WrongItem(f"{what} is longer than {MAX_TEXT} characters")
    return storable(text)


DELTAS = cast("tuple[type, ...]", get_args(Delta))
"""The types of what may come before the answer."""
