"""The Anthropic Messages answer: put together from the events of a stream, or from one whole message. Pure."""

from collections.abc import Mapping, Sequence
from typing import Literal, cast

import orjson

from app.agent.ports import Delta, ModelAnswer, ReasoningDelta, TextDelta
from app.core.errors import InvalidRequest
from app.core.json import check_value, encode_text
from app.models.anthropic_wire import PROVIDER
from app.models.failures import ProviderError, of_error_object
from app.models.text import storable
from app.models.tokens import read_split_usage
from app.models.tool_fragments import ToolFragments

MAX_BLOCKS = 4096
"""Blocks in one answer; real ones have a few."""

_FINISH: dict[str, Literal["stop", "tool_calls", "length", "content_filter"]] = {
    "end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length",
    "model_context_window_exceeded": "length", "pause_turn": "length", "refusal": "content_filter",
}  # fmt: skip


class _Block:
    """A block while it is put together. `pieces` is its text, thinking or input JSON, whichever its type has."""

    __slots__ = ("closed", "fields", "kind", "more", "pieces", "position")

    def __init__(self, kind: str, fields: dict[str, object]) -> None:
        self.kind = kind
        self.fields = fields
        self.pieces: list[str] = []
        self.more: dict[str, list[str]] = {}
        """Texts that go on in other fields, the signature for one."""
        self.position = -1
        """Of a tool_use block: its call's number."""
        self.closed = False


class Assembler:
    """Puts one answer together. A second `message_start` begins anew: the request was sent again before any content."""

    __slots__ = ("_blocks", "_calls", "_last", "_model", "_order", "_secret", "_stop", "_usage")

    def __init__(self, *, secret: str | None = None) -> None:
        """`secret`: the key in use, kept out of errors that the stream reports."""
        self._secret = secret
        self._begin({})

    @property
    def finished(self) -> bool:
        """Whether the provider said why the answer ended: its content is whole."""
        return self._stop is not None

    def feed(self, event: Mapping[str, object]) -> Sequence[Delta]:
        """Take one event, or one whole message, and give what it adds. Raises `ProviderError` for an error."""
        match event.get("type"):
            case "content_block_delta":
                block = self._blocks.get(_index(event))
                delta = event.get("delta")
                if block is None or not isinstance(delta, dict):
                    return ()
                return self._add(block, cast("dict[str, object]", delta))
            case "content_block_start":
                return self._open(_index(event), _object(event.get("content_block")))
            case "content_block_stop":
                block = self._blocks.get(_index(event))
                return () if block is None else self._close(block)
            case "message_start":
                self._begin(_object(event.get("message")))
            case "message_delta":
                self._end(_object(event.get("delta")).get("stop_reason"), event.get("usage"))
            case "message":
                return self._whole(event)
            case "error":
                raise of_error_object(event.get("error") or event, secret=self._secret)
            case _:  # ping, message_stop, and what a later version adds
                pass
        return ()

    def finish(self) -> ModelAnswer:
        """The whole answer.

        Raises `ProviderError`: `model_stream_broken` when it ended without its reason, `model_empty_response` when
        nothing came, `model_invalid_response` for a block that could not be kept.
        """
        if self._stop is None:
            if not self._order and not self._model:
                raise ProviderError("The model's server sent no answer.", code="model_empty_response")
            raise ProviderError("The model's stream broke off before its end.", code="model_stream_broken")
        finish = _FINISH.get(self._stop, "stop")
        # What a refused answer called is not to be done: it was stopped while it was written.
        calls = () if finish == "content_filter" else self._calls.calls(cut=finish == "length")
        if calls and finish == "stop":
            finish = "tool_calls"
        elif not calls and finish == "tool_calls":
            finish = "stop"
        return ModelAnswer(
            content="".join(self._texts("text")),
            calls=calls,
            tokens=read_split_usage(self._usage),
            finish_reason=finish,
            reasoning="".join(self._texts("thinking")),
            model=self._model,
            provider_blocks=self._own_blocks(len(calls)),
        )

    def _begin(self, message: dict[str, object]) -> None:
        self._calls = ToolFragments()
        self._blocks: dict[int, _Block] = {}
        self._order: list[_Block] = []
        self._usage: dict[str, object] = {}
        self._stop: str | None = None
        model = message.get("model")
        self._model = storable(model) if isinstance(model, str) else ""
        self._end(message.get("stop_reason"), message.get("usage"))

    def _end(self, reason: object, usage: object) -> None:
        if isinstance(reason, str) and reason:
            self._stop = reason
        if isinstance(usage, dict):
            # The counts are cumulative; a later event may leave out what did not change.
            counts = cast("dict[str, object]", usage)
            self._usage.update((name, count) for name, count in counts.items() if count is not None)

    def _whole(self, message: Mapping[str, object]) -> Sequence[Delta]:
        deltas: list[Delta] = []
        self._begin(dict(message))
        content = message.get("content")
        for index, block in enumerate(cast("list[object]", content) if isinstance(content, list) else ()):
            deltas += self._open(index, _object(block))
            deltas += self._close(self._blocks[index])
        return deltas

    def _open(self, index: int, fields: dict[str, object]) -> Sequence[Delta]:
        if len(self._order) >= MAX_BLOCKS:
            raise _unusable(f"The model's answer has more than {MAX_BLOCKS} blocks, the server's limit.")
        kind = fields.get("type")
        block = _Block(kind if isinstance(kind, str) else "", fields)
        self._blocks[index] = block
        self._order.append(block)
        if block.kind == "tool_use":
            block.position = len(self._calls)
            return self._calls.feed(
                [{"index": block.position, "id": fields.get("id"), "name": fields.get("name") or "", "arguments": ""}]
            )
        first = fields.get(block.kind) if block.kind in ("text", "thinking") else None
        return self._say(block, first)

    def _add(self, block: _Block, delta: dict[str, object]) -> Sequence[Delta]:
        match delta.get("type"):
            case "text_delta" if block.kind == "text":
                return self._say(block, delta.get("text"))
            case "thinking_delta" if block.kind == "thinking":
                return self._say(block, delta.get("thinking"))
            case "input_json_delta":
                text = delta.get("partial_json")
                if not isinstance(text, str) or not text:
                    return ()
                block.pieces.append("" if block.position >= 0 else text)  # a call's text is kept once
                return self._argue(block, text) if block.position >= 0 else ()
            case "citations_delta":
                return ()
            case _:  # signature_delta, and a later version's: texts that add up in the field of their name
                for name, text in delta.items():
                    if name != "type" and isinstance(text, str):
                        block.more.setdefault(name, []).append(text)
                return ()

    def _say(self, block: _Block, text: object) -> Sequence[Delta]:
        if not isinstance(text, str) or not text:
            return ()
        text = storable(text)
        block.pieces.append(text)
        return (TextDelta(text) if block.kind == "text" else ReasoningDelta(text),)

    def _argue(self, block: _Block, text: str) -> Sequence[Delta]:
        return self._calls.feed([{"index": block.position, "arguments": text}])

    def _close(self, block: _Block) -> Sequence[Delta]:
        block.closed = True
        given = block.fields.get("input")
        if block.position >= 0 and not block.pieces and given:
            return self._argue(block, given if isinstance(given, str) else _text_of(given))
        return ()

    def _texts(self, kind: str) -> list[str]:
        return [piece for block in self._order if block.kind == kind for piece in block.pieces]

    def _own_blocks(self, calls: int) -> Mapping[str, Sequence[dict[str, object] | int]] | None:
        """The answer's blocks where text and calls alone do not say it all; `calls` that count are kept."""
        kinds = [block.kind for block in self._order]
        texts = kinds.count("text")
        if kinds == ["text"] * texts + ["tool_use"] * (len(kinds) - texts):
            return None
        blocks: list[dict[str, object] | int] = []
        for block in self._order:
            if block.position >= 0:
                blocks += (block.position,) if block.position < calls else ()
            elif block.kind == "text":
                text = "".join(block.pieces)
                if text and not text.isspace():
                    blocks.append({"type": "text", "text": text})
            elif block.closed:  # half a thought has no signature, so it would be refused
                blocks.append(_kept(block))
        return {PROVIDER: blocks} if blocks else None


def _kept(block: _Block) -> dict[str, object]:
    """A block of the provider's own as it goes back. Raises `ProviderError` when it could not be stored unchanged."""
    fields = dict(block.fields)
    for name, pieces in block.more.items():
        before = fields.get(name)
        fields[name] = "".join([before if isinstance(before, str) else "", *pieces])
    if block.kind == "thinking":
        fields["thinking"] = "".join(block.pieces)
    elif block.pieces:
        try:
            fields["input"] = orjson.loads("".join(block.pieces))
        except ValueError as error:
            raise _unusable(f'The input of a "{block.kind}" block is not valid JSON.') from error
    try:
        check_value(fields)
        orjson.dumps(fields)
    except (InvalidRequest, TypeError) as error:
        raise _unusable("The model's answer holds a block that cannot be kept.") from error
    return fields


def _text_of(value: object) -> str:
    try:
        return encode_text(value)
    except TypeError as error:  # nested too deep, or text that is not Unicode
        return f"({storable(str(error))})"


def _unusable(message: str) -> ProviderError:
    return ProviderError(message, code="model_invalid_response")


def _index(event: Mapping[str, object]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0


def _object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
