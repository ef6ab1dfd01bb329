"""Request bodies: runs with inline scripted agents and otherwise default settings."""

import json

from benchmarks.plugin import PAUSE_S

SHORT_TEXT = "It is 42, says the table."


def _body(script: list[dict[str, object]], tools: list[str], **settings: object) -> bytes:
    model = {"provider": "scripted", "model": "bench", "script": script}
    return json.dumps({"agent": {"model": model, "tools": tools, **settings}, "input": "Look up x."}).encode()


def short() -> bytes:
    """Two model calls with one tool call between them: 14 events, the answer in chunks of 8 characters."""
    call = {"id": "call_1", "name": "lookup", "args": {"key": "x"}}
    return _body([{"content": "Let me see.", "tool_calls": [call]}, {"content": SHORT_TEXT}], ["lookup"])


def chunks(count: int) -> bytes:
    """One answer of `count` chunks of 4 characters, about a token each."""
    return _body([{"content": "word" * count, "chunk_size": 4}], [])


def parallel(count: int) -> bytes:
    """One round of `count` calls of the 50 ms tool, all at once."""
    assert PAUSE_S == 0.05
    calls = [{"id": f"call_{number}", "name": "pause", "args": {"number": number}} for number in range(count)]
    return _body([{"tool_calls": calls}, {"content": "Done."}], ["pause"], max_parallel_tools=count)


def stateful(steps: int, *, fields: bool = False) -> bytes:
    """A run of so many rounds with one tool call each, which may write two fields of the state."""
    rounds: list[dict[str, object]] = [
        {"tool_calls": [{"id": f"call_{n}", "name": "note" if fields else "lookup", "args": {"key": str(n)}}]}
        for n in range(steps)
    ]
    schema: dict[str, object] = {"notes": {"reducer": "append"}, "count": {"reducer": "sum"}}
    settings: dict[str, object] = {"state_schema": schema} if fields else {}
    return _body([*rounds, {"content": SHORT_TEXT}], ["note" if fields else "lookup"], max_iterations=None, **settings)


def waiting(seconds: float) -> bytes:
    """A run whose model says nothing for `seconds`."""
    return _body([{"content": "At last.", "delay_ms": int(seconds * 1000)}], [])
