"""An Anthropic server: the sockets and faults of `chat_completions`, the Messages API's own shapes.

    async with messages_server([says("hello")]) as server:
        ...  # a client with server.base_url

Shapes and spelling are those of the API's streams (docs: "Streaming Messages"), byte for byte.
"""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from tests.support.chat_completions import ChatCompletionsServer, Replies, Reply

MODEL = "claude-test"
SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"
REDACTED = "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP"

Block = dict[str, object]


def messages_server(replies: Replies) -> ChatCompletionsServer:
    """A server whose `base_url` has no `/v1`, as Anthropic's SDK has it."""
    return ChatCompletionsServer(replies, base_path="")


def text(value: str) -> Block:
    return {"type": "text", "text": value}


def tool_use(call_id: str, name: str, args: Mapping[str, object] | str) -> Block:
    """A call; `args` as text is sent as it is, JSON or not."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": args}


def thinking(value: str, signature: str = SIGNATURE) -> Block:
    return {"type": "thinking", "thinking": value, "signature": signature}


def redacted(data: str = REDACTED) -> Block:
    return {"type": "redacted_thinking", "data": data}


def message_start(*, usage: Mapping[str, object] | None = None) -> Block:
    message: Block = {
        "model": MODEL,
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage
        or {
            "input_tokens": 9,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1,
            "service_tier": "standard",
        },
    }
    return {"type": "message_start", "message": message}


def block_events(index: int, block: Block, size: int = 5) -> list[Block]:
    """One block as it streams: its start without its text, its deltas, its stop."""
    kind = block["type"]
    start = dict(block)
    deltas: list[Block] = []
    if kind == "text":
        start["text"] = ""
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(str(block["text"]), size)]
    elif kind == "thinking":
        start |= {"thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(str(block["thinking"]), size)]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif "input" in block:
        start["input"] = {}
        args = block["input"]
        args = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(args, size))]
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def answer_events(
    *blocks: Block,
    stop: str | None = None,
    usage: Mapping[str, object] | None = None,
    output_tokens: int = 3,
    size: int = 5,
) -> list[Block]:
    """A whole answer in the API's order, a ping after the first block's start, as the API sends it."""
    told = [message_start(usage=usage)]
    for index, block in enumerate(blocks):
        told += block_events(index, block, size)
    told.insert(min(2, len(told)), {"type": "ping"})
    called = any(block["type"] == "tool_use" for block in blocks)
    reason = stop or ("tool_use" if called else "end_turn")
    ending = {"stop_reason": reason, "stop_sequence": None}
    told.append({"type": "message_delta", "delta": ending, "usage": {"output_tokens": output_tokens}})
    return [*told, {"type": "message_stop"}]


def events(told: Sequence[Mapping[str, object]]) -> bytes:
    """Events as the bytes of the API's stream."""
    lines = (f"event: {item['type']}\ndata: {json.dumps(item, separators=(',', ':'))}\n\n" for item in told)
    return "".join(lines).encode()


def answers(*blocks: Block, **options: object) -> Reply:
    """A streamed answer of these blocks."""
    return Reply(body=events(answer_events(*blocks, **options)))  # pyright: ignore[reportArgumentType]


def says(value: str) -> Reply:
    """A streamed text answer."""
    return answers(text(value))


def error_body(kind: str, message: str = "failed") -> Block:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}


def fails(status: int, kind: str, message: str = "failed", *, headers: Mapping[str, str] | None = None) -> Reply:
    """An error in the API's shape."""
    body = json.dumps(error_body(kind, message)).encode()
    return Reply(status=status, body=body, content_type="application/json", headers=headers or {})


def whole(*blocks: Block, stop: str = "end_turn", usage: Mapping[str, object] | None = None) -> Reply:
    """The answer of a server that does not stream."""
    message = cast("Block", message_start()["message"])
    counts = usage or {"input_tokens": 9, "output_tokens": 3}
    body = {**message, "content": list(blocks), "stop_reason": stop, "usage": counts}
    return Reply(body=json.dumps(body).encode(), content_type="application/json")


def _pieces(value: str, size: int) -> list[str]:
    return [value[at : at + size] for at in range(0, len(value), size)]
