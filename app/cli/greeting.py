"""What `runwire serve --demo` shows when it is up: one real run, posted to itself over HTTP, its events in short."""

import json
from collections.abc import Iterator, Mapping
from typing import cast

import httpx
from httpx_sse import EventSource, SSEError

DEMO_INPUT = 'What is (2 + 3) * 7, and how long is "hello world"?'

WIDTH = 100
"""Characters of what is shown of an event."""

Data = Mapping[str, object]


async def show_demo(url: str) -> None:
    """Post one run and print its events in short. A failure is printed, not raised: the server goes on serving."""
    body = json.dumps({"agent": "demo", "input": DEMO_INPUT})
    _say("\nThe demo agent needs no model: it follows simple rules. One run, posted over HTTP as by")
    _say(f"  curl -N {url}/runs/stream --json '{body}'\nwhose events are, in short:")
    short = Short()
    try:
        async with (
            httpx.AsyncClient(trust_env=False, timeout=30) as client,
            client.stream(
                "POST", f"{url}/runs/stream", content=body, headers={"Content-Type": "application/json"}
            ) as response,
        ):
            response.raise_for_status()
            async for event in EventSource(response).aiter_sse():
                if not event.data:  # a comment, or how long to wait before coming again
                    continue
                for line in short.lines(event.event, cast("Data", event.json())):
                    _say(f"  {line}")
    except (httpx.HTTPError, SSEError, ValueError) as error:
        _say(f"  (the demo run failed: {type(error).__name__})")
    _say("Try it yourself, with a question of your own. Ctrl-C stops the server.")


class Short:
    """Events as lines: the name and what matters. The pieces of an answer become one line."""

    def __init__(self) -> None:
        self._text = ""

    def lines(self, event: str, data: Data) -> Iterator[str]:
        if event == "output":
            delta = cast("Data", data["delta"])
            self._text += str(delta.get("text", ""))
            return
        if self._text:
            yield _line("output", self._text)
            self._text = ""
        yield _line(event, _told(event, data))


def _told(event: str, data: Data) -> str:
    if event == "action":
        return f"{data['tool']} {json.dumps(data['tool_input'])}"
    if event == "step":
        action = cast("Data", data["action"])
        return f"{action['tool']}: {json.dumps(data['observation'])} ({data['status']})"
    if event == "usage":
        return f"{data['total_tokens']} tokens"
    told = {
        "run": "status", "finish": "stop_reason", "error": "message", "end": "status",
    }.get(event, "")  # fmt: skip
    return str(data.get(told, ""))


def _line(event: str, text: str) -> str:
    text = " ".join(text.split())
    return f"{event:<7} {text if len(text) <= WIDTH else text[: WIDTH - 1] + '…'}".rstrip()


def _say(text: str) -> None:
    print(text, flush=True)
