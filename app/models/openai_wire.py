"""The Chat Completions wire: a request as its bytes, an answer from its chunks. Pure: no network, no clock.

A message and a tool definition are encoded once in their life and kept in their own `wire` cache, so a call joins bytes
that are there already, however long the conversation has grown.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, cast

import orjson

from app.agent.ports import Delta, ModelAnswer, ModelRequest, ReasoningDelta, TextDelta, ToolDefinition
from app.core.messages import Message, ToolCall
from app.core.usage import TokenUsage
from app.models.answer_formats import is_strict
from app.models.failures import ProviderError, of_error_object
from app.models.text import storable
from app.models.tokens import read_usage
from app.models.tool_fragments import ToolFragments

WIRE = "openai"
"""The key of our encoded form in `Message.wire` and `ToolDefinition.wire`."""

RESERVED_PARAMS = frozenset(("messages", "model", "stream", "tools", "n", "functions", "function_call"))
"""Request fields that `params` may not set: they are ours, or more than one answer would come."""

LEFT_OUT_BY_NULL = frozenset(("stream_options", "parallel_tool_calls", "tool_choice"))
"""Fields that we send on our own and that `params: {"<field>": null}` leaves out, for servers that refuse them."""

_FINISH: dict[str, Literal["stop", "tool_calls", "length", "content_filter"]] = {
    "stop": "stop", "tool_calls": "tool_calls", "function_call": "tool_calls", "length": "length",
    "max_tokens": "length", "content_filter": "content_filter",
}  # fmt: skip


def encode_request(model: str, request: ModelRequest, params: Mapping[str, object]) -> bytes:
    """The body of `POST /chat/completions`, always a streamed one.

    `params` goes along as it is (temperature, seed, …), but for `RESERVED_PARAMS`, which are ignored, and the nulls of
    `LEFT_OUT_BY_NULL`. A `response_format` of its own stands before the agent's.
    """
    head: dict[str, object] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    if request.tools:
        choice = _tool_choice(request.tool_choice)
        if choice is not None:
            head["tool_choice"] = choice
        head["parallel_tool_calls"] = request.parallel_tool_calls
    for name, value in params.items():
        if name in LEFT_OUT_BY_NULL:
            if value is None:
                head.pop(name, None)
            elif name == "stream_options":
                head[name] = value
        elif name not in RESERVED_PARAMS:
            head[name] = value
    form = request.answer_format
    if form is not None and "response_format" not in params:
        shape = {"name": form.name, "schema": form.schema, "strict": is_strict(form.schema)}
        head["response_format"] = {"type": "json_schema", "json_schema": shape}
    if request.stop and "stop" not in params:
        head["stop"] = list(request.stop)
    parts = [orjson.dumps(head)[:-1], b',"messages":[', b",".join(map(encode_message, request.messages))]
    if request.tools:
        parts += (b'],"tools":[', b",".join(map(encode_tool, request.tools)))
    parts.append(b"]}")
    return b"".join(parts)


def encode_message(message: Message) -> bytes:
    """A message as Chat Completions has it, from its cache when it was encoded before."""
    wire = message.wire.get(WIRE)
    if wire is None:
        wire = message.wire[WIRE] = orjson.dumps(_message(message))
    return wire


def encode_tool(tool: ToolDefinition) -> bytes:
    """A tool definition as Chat Completions has it, from its cache when it was encoded before."""
    wire = tool.wire.get(WIRE)
    if wire is None:
        function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        wire = tool.wire[WIRE] = orjson.dumps({"type": "function", "function": function})
    return wire


def _message(message: Message) -> dict[str, object]:
    # A refusal goes back as content: every server takes that, few know the field.
    content = message.content or message.refusal
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": content or ""}
    # Never null, beside tool calls neither: llama-cpp-python wants a text, others want the field, all take an empty one.
    body: dict[str, object] = {"role": message.role, "content": content or ""}
    if message.name is not None:
        body["name"] = message.name
    if message.tool_calls:
        body["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}
            for call in message.tool_calls
        ]
    return body


def _arguments(call: ToolCall) -> str:
    """Always the text of a JSON object: servers' chat templates parse it, also what was broken when it came."""
    args = call.args if isinstance(call.args, dict) else {"invalid_json": call.args}
    return orjson.dumps(args).decode()


def _tool_choice(choice: str | Mapping[str, object] | None) -> object:
    if choice is None or choice in ("auto", "none", "required"):
        return choice
    if isinstance(choice, str):
        return {"type": "function", "function": {"name": choice}}
    return dict(choice)


class Assembler:
    """Puts one answer together from decoded chunks, or from the one body of a server that does not stream."""

    __slots__ = ("_calls", "_content", "_finish", "_held", "_model", "_reasoning", "_refusal", "_secret", "_tokens")

    def __init__(self, *, secret: str | None = None) -> None:
        """`secret`: the key in use, kept out of errors that the stream reports."""
        self._calls = ToolFragments()
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._finish: str | None = None
        self._tokens = TokenUsage()
        self._model = ""
        self._held = ""
        self._secret = secret

    @property
    def finished(self) -> bool:
        """Whether the provider said why the answer ended: what follows can only be the usage."""
        return self._finish is not None

    def feed(self, chunk: Mapping[str, object]) -> Sequence[Delta]:
        """Take one chunk and give what it adds. Raises `ProviderError` for an error object."""
        error = chunk.get("error")
        if error:
            raise of_error_object(error, secret=self._secret)
        usage = chunk.get("usage")
        if usage:
            self._tokens = read_usage(usage)
        if not self._model:
            model = chunk.get("model")
            if isinstance(model, str):
                self._model = storable(model)
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices:
            return ()
        choice = cast("list[object]", choices)[0]
        if not isinstance(choice, dict):
            return ()
        fields = cast("dict[str, object]", choice)
        finish = fields.get("finish_reason")
        if isinstance(finish, str) and finish:
            self._finish = finish
        delta = fields.get("delta")
        if not isinstance(delta, dict):
            delta = fields.get("message")
        return self._add(cast("dict[str, object]", delta)) if isinstance(delta, dict) else ()

    def finish(self, *, done: bool = False) -> ModelAnswer:
        """The whole answer. `done`: the stream said `[DONE]`.

        Raises `ProviderError`: `model_stream_broken` when it ended without saying so, `model_empty_response` when it
        brought nothing.
        """
        if not (self._content or self._calls or self._reasoning or self._refusal or self._finish):
            raise ProviderError("The model's server sent no answer.", code="model_empty_response")
        if self._finish is None and not done:
            raise ProviderError("The model's stream broke off before its end.", code="model_stream_broken")
        finish = _FINISH.get(self._finish or "stop", "stop")
        calls = self._calls.calls(cut=finish == "length")
        if calls and finish == "stop":
            finish = "tool_calls"
        elif not calls and finish == "tool_calls":
            finish = "stop"
        return ModelAnswer(
            content="".join(self._content),
            calls=calls,
            tokens=self._tokens,
            finish_reason=finish,
            reasoning="".join(self._reasoning),
            refusal="".join(self._refusal) or None,
            model=self._model,
        )

    def _add(self, delta: dict[str, object]) -> Sequence[Delta]:
        deltas: list[Delta] = []
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning and isinstance(reasoning, str):
            reasoning = storable(reasoning)
            self._reasoning.append(reasoning)
            deltas.append(ReasoningDelta(reasoning))
        content = delta.get("content")
        if content:
            for kind, text in ((TextDelta, content),) if isinstance(content, str) else _parts(content):
                whole = self._whole(text)
                if whole:
                    (self._content if kind is TextDelta else self._reasoning).append(whole)
                    deltas.append(kind(whole))
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            self._refusal.append(storable(refusal))
        calls = delta.get("tool_calls")
        if calls:
            deltas += self._calls.feed(calls)
        elif delta.get("function_call"):
            deltas += self._calls.feed([{"index": 0, "function": delta["function_call"]}])
        return deltas

    def _whole(self, text: str) -> str:
        """Text that can be encoded: a character that a server cut in half is put together again, U+0000 is replaced."""
        if not text:
            return ""
        text = self._held + text
        self._held = ""
        if "\ud800" <= text[-1] <= "\udbff":
            self._held, text = text[-1], text[:-1]
        return storable(text)


def _parts(content: object) -> Iterable[tuple[type[TextDelta] | type[ReasoningDelta], str]]:
    """The texts of content that comes in parts; `thinking` parts are reasoning (Mistral's shape)."""
    if not isinstance(content, list):
        return
    for item in cast("list[object]", content):
        if isinstance(item, str):
            yield TextDelta, item
        elif isinstance(item, dict):
            part = cast("dict[str, object]", item)
            if part.get("type") == "thinking":
                for _, text in _parts(part.get("thinking")):
                    yield ReasoningDelta, text
            elif isinstance(text := part.get("text"), str):
                yield TextDelta, text


def decode_chunk(data: str | bytes) -> dict[str, object]:
    """One event's data as a chunk. Raises `ValueError` when it is no JSON object.

    Some servers cut an emoji's two UTF-16 halves apart; only the standard library reads such JSON.
    """
    try:
        value: object = orjson.loads(data)
    except ValueError:
        value = _decode_slowly(data)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return cast("dict[str, object]", value)


def _decode_slowly(data: str | bytes) -> object:
    import json

    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
