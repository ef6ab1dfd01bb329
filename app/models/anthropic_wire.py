"""The Anthropic Messages request: a conversation as its bytes. Pure: no network, no clock.

The API wants user and assistant in turn and every tool call answered at once, so messages that follow each other under one
role are joined into one. What is joined is bytes: each message's blocks are encoded once in its life (`Message.wire`).
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import orjson

from app.agent.ports import ModelRequest, ToolDefinition
from app.core.messages import Message, ToolCall
from app.models.answer_formats import closed

PROVIDER = "anthropic"
"""The key of our encoded form in `Message.wire` and `ToolDefinition.wire`, and of our blocks in `Message.provider_blocks`."""

MAX_TOKENS = 4096
"""`max_tokens` where `params` has none: the API demands one."""

RESERVED_PARAMS = frozenset(("messages", "model", "stream", "system", "tools", "tool_choice"))
"""Request fields that `params` may not set: they are ours."""

OWN_PARAMS = frozenset(("anthropic_beta", "betas", "cache_control"))
"""Params that are ours to carry out: a header's value, and where to put the markers of the prompt cache."""

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_OF_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:(image/[a-zA-Z0-9.+-]+);base64,", re.IGNORECASE)

_FORCING = ("any", "tool")

Block = dict[str, object]


def encode_request(model: str, request: ModelRequest, params: Mapping[str, object]) -> bytes:
    """The body of `POST /v1/messages`, always a streamed one.

    `params` goes along as it is (temperature, thinking, …), but for `RESERVED_PARAMS` and `OWN_PARAMS`. All system messages
    become `system`, wherever they stood. `params["cache_control"]` marks the last block of the system text, of the tools
    and of the messages.
    """
    head: dict[str, object] = {"model": model, "max_tokens": MAX_TOKENS, "stream": True}
    for name, value in params.items():
        if name not in RESERVED_PARAMS and name not in OWN_PARAMS and not (name == "max_tokens" and value is None):
            head[name] = value
    stop = [text for text in request.stop if text and not text.isspace()]  # the API refuses white space
    if stop and "stop_sequences" not in params:
        head["stop_sequences"] = stop
    if request.answer_format is not None:
        given = head.get("output_config")
        form: dict[str, object] = {"format": {"type": "json_schema", "schema": closed(request.answer_format.schema)}}
        head["output_config"] = form | cast("dict[str, object]", given) if isinstance(given, dict) else form
    marker = params.get("cache_control")
    system = [block for message in request.messages if message.role == "system" for block in _blocks(message)]
    if system:
        if marker is not None:
            _mark(system, marker)
        head["system"] = system
    tools = request.tools
    if tools:
        choice = _tool_choice(request)
        if choice is not None and request.answer_tool is not None and _thinks(params) and choice["type"] in _FORCING:
            choice["type"] = (
                "auto"  # the API takes no forced call beside thinking; the planner asks again if none comes
            )
            choice.pop("name", None)
        if choice is not None:
            head["tool_choice"] = choice
    else:
        tools = _mentioned(request.messages)
        if tools:
            head["tool_choice"] = {"type": "none"}
    parts = [orjson.dumps(head)[:-1], b',"messages":[', b",".join(_turns(request.messages, marker))]
    if tools:
        parts += (b'],"tools":[', b",".join(_tools(tools, marker)))
    parts.append(b"]}")
    return b"".join(parts)


def _thinks(params: Mapping[str, object]) -> bool:
    thinking = params.get("thinking")
    return isinstance(thinking, Mapping) and cast("Mapping[str, object]", thinking).get("type") != "disabled"


def beta_header(params: Mapping[str, object]) -> str | None:
    """The value of the header `anthropic-beta` that `params` asks for, under either of its names: a text or a list."""
    named: list[str] = []
    for name in ("anthropic_beta", "betas"):
        value = params.get(name)
        named += (str(item) for item in cast("list[object]", value)) if isinstance(value, list) else ()
        named += (value,) if isinstance(value, str) else ()
    return ",".join(named) or None


def encode_blocks(message: Message) -> bytes:
    """A message's content blocks, joined by commas, from its cache when it was encoded before; empty for none."""
    wire = message.wire.get(PROVIDER)
    if wire is None:
        wire = message.wire[PROVIDER] = _join(_blocks(message))
    return wire


def encode_tool(tool: ToolDefinition) -> bytes:
    """A tool definition as the API has it, from its cache when it was encoded before."""
    wire = tool.wire.get(PROVIDER)
    if wire is None:
        wire = tool.wire[PROVIDER] = orjson.dumps(_tool(tool))
    return wire


# --- turns ------------------------------------------------------------------------------------------------------------


def _turns(messages: Sequence[Message], marker: object) -> list[bytes]:
    """The conversation as user and assistant in turn. Messages without a block are left out: the API refuses empty ones."""
    turns: list[bytes] = []
    side, turn = "", _Turn()
    for message in messages:
        role = message.role
        if role == "system":
            continue
        wire = message.wire.get(PROVIDER)
        if wire is None:
            wire = encode_blocks(message)
        if not wire:
            continue
        if role != "assistant":
            if side != "user":
                turns += turn.encoded(side)
                side, turn = "user", _Turn()
            if role == "tool":
                turn.results.append(wire)
                turn.last_result = message
                continue
        elif side != role:
            turns += turn.encoded(side)
            side, turn = role, _Turn()
        turn.others.append(wire)
        turn.last_other = message
    return [*turns, *turn.encoded(side, marker, at_the_end=True)]


class _Turn:
    """What follows each other under one role. The API wants the results at the beginning of the turn after the calls."""

    __slots__ = ("last_other", "last_result", "others", "results")

    def __init__(self) -> None:
        self.results: list[bytes] = []
        self.others: list[bytes] = []
        self.last_result: Message | None = None
        self.last_other: Message | None = None

    def encoded(self, side: str, marker: object = None, *, at_the_end: bool = False) -> tuple[bytes, ...]:
        """The turn as one message, none when nothing is in it; at the end of the request with its ending put right."""
        last = self.last_other or self.last_result
        if last is None:
            return ()
        parts = [*self.results, *self.others]
        if at_the_end and (marker is not None or side == "assistant"):
            parts[-1] = _ending(last, marker)
        return (b'{"role":"%b","content":[%b]}' % (side.encode(), b",".join(parts)),)


def _ending(last: Message, marker: object) -> bytes:
    """The last message's blocks with the cache's marker; an answer that is to be continued may not end in white space."""
    blocks = _blocks(last)
    if last.role == "assistant" and blocks[-1].get("type") == "text":
        blocks[-1]["text"] = str(blocks[-1]["text"]).rstrip()
    if marker is not None:
        _mark(blocks, marker)
    return _join(blocks)


def _mark(blocks: list[Block], marker: object) -> None:
    """Put the cache's marker on the last block that may carry one (thinking may not); one that has its own keeps it."""
    for block in reversed(blocks):
        if block.get("type") not in ("thinking", "redacted_thinking"):
            block.setdefault("cache_control", marker)
            return


# --- blocks -----------------------------------------------------------------------------------------------------------


def _blocks(message: Message) -> list[Block]:
    """A message's blocks; the outer objects are new ones."""
    if message.role == "tool":
        result: Block = {"type": "tool_result", "tool_use_id": _id(message.tool_call_id or "")}
        content = _content(message.content)
        if content:
            plain = message.content if isinstance(message.content, str) else None
            result["content"] = plain or content
        if message.status == "error":
            result["is_error"] = True
        return [result]
    if message.role != "assistant":
        return _content(message.content)
    own = None if message.provider_blocks is None else message.provider_blocks.get(PROVIDER)
    if own is None:
        return [*_content(message.content or message.refusal), *map(_tool_use, message.tool_calls)]
    calls = {call.id: call for call in message.tool_calls}
    return [
        _tool_use(calls[block]) if isinstance(block, str) else dict(block)
        for block in own
        if not isinstance(block, str) or block in calls
    ]


def _content(content: str | list[dict[str, object]] | None) -> list[Block]:
    """Text or parts as blocks, without the empty texts that the API refuses."""
    if not content:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if not content.isspace() else []
    return [block for part in content if (block := _part(part)) is not None]


def _part(part: dict[str, object]) -> Block | None:
    """A part of Chat Completions' kinds as a block; what is none of them is taken for one of the API's own."""
    kind = part.get("type")
    if kind == "text":
        text = part.get("text")
        return dict(part) if isinstance(text, str) and text and not text.isspace() else None
    if kind != "image_url":
        return dict(part)
    given = part.get("image_url")
    url = cast("Mapping[str, object]", given).get("url") if isinstance(given, Mapping) else given
    text = url if isinstance(url, str) else ""
    data = _DATA_URL.match(text)
    if data is not None:
        kind = {"type": "base64", "media_type": data[1].lower(), "data": text[data.end() :]}
    else:
        kind = {"type": "url", "url": text}
    block: Block = {"type": "image", "source": kind}
    if "cache_control" in part:
        block["cache_control"] = part["cache_control"]
    return block


def _tool_use(call: ToolCall) -> Block:
    args = call.args if isinstance(call.args, dict) else {"invalid_json": call.args}
    # A name that the model made up must not make every later request of the thread fail.
    return {"type": "tool_use", "id": _id(call.id), "name": _name(call.name), "input": args}


def _name(name: str) -> str:
    """A tool's name in the letters that the API takes."""
    return _NOT_OF_A_NAME.sub("_", name)[:64] or "_"


def _id(call_id: str) -> str:
    """A call's id in the letters that the API takes; one of another provider's is always mapped to the same."""
    if _ID.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode()).hexdigest()[:32]


# --- tools ------------------------------------------------------------------------------------------------------------


def _tools(tools: Sequence[ToolDefinition], marker: object) -> Iterable[bytes]:
    if marker is None:
        return map(encode_tool, tools)
    marked = orjson.dumps({**_tool(tools[-1]), "cache_control": marker})
    return [*map(encode_tool, tools[:-1]), marked]


def _mentioned(messages: Sequence[Message]) -> list[ToolDefinition]:
    """The tools that a conversation called, where none is offered any more: the API takes no call of an unknown tool."""
    names = dict.fromkeys(_name(call.name) for message in messages for call in message.tool_calls)
    return [ToolDefinition(name, "", {}) for name in names]


def _tool(tool: ToolDefinition) -> dict[str, object]:
    body: dict[str, object] = {"name": tool.name}
    if tool.description:
        body["description"] = tool.description
    body["input_schema"] = {"type": "object", **tool.parameters}
    return body


def _tool_choice(request: ModelRequest) -> dict[str, object] | None:
    choice = request.tool_choice
    body: dict[str, object]
    if isinstance(choice, Mapping):
        body = dict(choice)
        function = body.get("function")
        if isinstance(function, Mapping):  # Chat Completions' way to name a tool
            body = {"type": "tool", "name": cast("Mapping[str, object]", function).get("name")}
    elif choice is None or choice in ("auto", "none"):
        body = {"type": choice or "auto"}
    elif choice == "required":
        body = {"type": "any"}
    else:
        body = {"type": "tool", "name": choice}
    if request.parallel_tool_calls or body.get("type") == "none":
        return None if choice is None else body
    body.setdefault("disable_parallel_tool_use", True)
    return body


def _join(blocks: Iterable[Block]) -> bytes:
    return b",".join(map(orjson.dumps, blocks))
