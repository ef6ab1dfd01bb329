"""`runwire run`: one run, posted to a running server and followed to its end over HTTP.

A cut connection is taken up again: before the run is known by posting again under the same `Idempotency-Key`, afterwards
with `Last-Event-ID`. So no event is missed or shown twice, and no second run is made.
"""

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httpx
from httpx_sse import EventSource, ServerSentEvent

from app.cli.run_view import JsonView, TextView, View, plain
from app.core.ids import new_id

EXIT_SUCCESS = 0
EXIT_RUN_ERROR = 1
EXIT_USAGE = 2
EXIT_SERVER = 3
"""The server cannot be reached, refused the run, or was lost for good."""
EXIT_CANCELLED = 4
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141
"""As a program that died of SIGPIPE: nobody reads any more."""

BY_STATUS = {"success": EXIT_SUCCESS, "error": EXIT_RUN_ERROR, "cancelled": EXIT_CANCELLED}

TRIES = 6
"""Tries in a row that bring no new event before the stream is given up."""
FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 8.0
"""The pause before a try doubles from the first to the last: about 15 s in all, enough for a restart."""
READ_S = 30.0
"""A server says something at least every 10 s; three times that is silence."""

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))


class UsageError(Exception):
    """The command line cannot be used as it is."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line says."""

    input: str
    agent: str | None = None
    model: str | None = None
    tools: list[str] = field(default_factory=list[str])
    instructions: str | None = None
    url: str = "http://127.0.0.1:8080"
    api_key: str | None = field(default=None, repr=False)
    as_json: bool = False

    def body(self) -> dict[str, object]:
        """The RunCreate: a registered agent, an inline one, or the demo agent. Raises `UsageError`."""
        if self.model is None:
            if self.tools or self.instructions is not None:
                raise UsageError("--tool and --instructions describe an agent of their own: add --model.")
            return {"agent": self.agent or "demo", "input": self.input}
        if self.agent is not None:
            raise UsageError("Give --agent or --model, not both.")
        agent: dict[str, object] = {"model": self.model, "tools": self.tools}
        if self.instructions is not None:
            agent["instructions"] = self.instructions
        return {"agent": agent, "input": self.input}

    def headers(self) -> dict[str, str]:
        """Raises `UsageError` for a key that cannot be a header."""
        key = (self.api_key or "").strip()
        if not key.isascii() or not key.isprintable():
            raise UsageError("RUNWIRE_API_KEY holds characters that a key cannot have.")
        return {"Authorization": f"Bearer {key}"} if key else {}

    def base_url(self) -> httpx.URL:
        """Raises `UsageError`."""
        try:
            url = httpx.URL(self.url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise UsageError(f"--url cannot be read: {error}.") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise UsageError("--url must be an http:// or https:// address, such as http://127.0.0.1:8080.")
        return url


class ServerRefused(Exception):
    """The server answered, and not with a stream. The message is for the terminal."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class StreamCut(Exception):
    """The stream stopped before its `end`; it can be taken up again."""


@dataclass(slots=True)
class Following:
    """How far one run has been followed."""

    url: str
    body: dict[str, object]
    view: View
    key: str
    """The `Idempotency-Key`: a POST that is sent again finds the run of the first."""
    location: str | None = None
    """The run's own address; `None` until the server has accepted it."""
    last_id: int = 0
    status: str | None = None
    """The run's final status, once its `end` has come."""
    first_pause_s: float = FIRST_PAUSE_S

    async def follow(self, client: httpx.AsyncClient) -> int:
        """Post the run and show its events until the end; the exit code. Raises `ServerRefused`, `StreamCut`, `httpx.ConnectError`."""
        failures = 0
        while True:
            before = self.last_id
            try:
                await self._stream(client)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if before == 0 and self.location is None and failures == 0:
                    raise
            except (httpx.TransportError, StreamCut):
                pass
            except ServerRefused as refused:
                if self.location is None or refused.status not in (429, 502, 503, 504):
                    raise
            if self.status is not None:
                return BY_STATUS.get(self.status, EXIT_RUN_ERROR)
            failures = 1 if self.last_id > before else failures + 1
            if failures >= TRIES:
                raise StreamCut(f"The stream broke off and could not be taken up again in {TRIES} tries.")
            await asyncio.sleep(min(LAST_PAUSE_S, self.first_pause_s * 2 ** (failures - 1)))

    async def _stream(self, client: httpx.AsyncClient) -> None:
        """One connection: until `end`, or until it is cut."""
        if self.location is None:
            headers = {"Idempotency-Key": self.key, "Accept": "text/event-stream"}
            request = client.build_request("POST", f"{self.url}/runs/stream", json=self.body, headers=headers)
        else:
            headers = {"Last-Event-ID": str(self.last_id), "Accept": "text/event-stream"}
            request = client.build_request("GET", f"{self.url}{self.location}/stream", headers=headers)
        response = await client.send(request, stream=True)
        try:
            if response.status_code == 204:
                raise ServerRefused(204, "The run has nothing more to tell: it waits, or it was ended elsewhere.")
            if response.status_code != 200 or "text/event-stream" not in response.headers.get("content-type", ""):
                raise await _refusal(response)
            self.location = _own_path(response.headers.get("content-location"), self.location)
            async for event in EventSource(response).aiter_sse():
                if self._show(event):
                    return
        finally:
            with contextlib.suppress(httpx.HTTPError):
                await response.aclose()
        raise StreamCut

    def _show(self, event: ServerSentEvent) -> bool:
        """Show an event not shown yet. True: it was the last one."""
        if not event.data:  # the `retry` line that opens a stream
            return False
        try:
            number, data = int(event.id or "0"), cast("object", json.loads(event.data))
        except ValueError as error:
            raise ServerRefused(200, "The server sends a stream of events that is not Runwire's.") from error
        if number <= self.last_id or not isinstance(data, dict):
            return False
        data = cast("dict[str, object]", data)
        self.last_id = number
        self.view.show(number, event.event, event.data, data)
        if event.event == "end":
            self.status = str(data.get("status"))
        return event.event == "end"


def _own_path(given: str | None, known: str | None) -> str | None:
    """The run's path on the server that was asked, whatever host the header names."""
    path = urlsplit(given).path if given else ""
    return path if path.startswith("/runs/") else known


async def _refusal(response: httpx.Response) -> ServerRefused:
    """What a server's refusal says: the problem document's detail and the places it names."""
    raw = (await response.aread())[:65536]
    try:
        problem: object = json.loads(raw)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or "detail" not in problem:
        first = plain(raw.decode(errors="replace").strip().partition("\n")[0][:200])
        text = f"The server answered {response.status_code}, and not as a Runwire server does"
        return ServerRefused(response.status_code, f"{text}: {first}" if first and first[0] != "<" else f"{text}.")
    fields = cast("dict[str, object]", problem)
    lines = [f"{fields['detail']} ({fields.get('code', response.status_code)})"]
    for item in cast("list[dict[str, object]]", fields.get("errors") or []):
        lines.append(f"  {item.get('pointer') or '/'}: {item.get('detail')}")
    return ServerRefused(response.status_code, plain("\n".join(lines)))


async def _run(following: Following, options: RunOptions) -> int:
    url = options.base_url()
    async with httpx.AsyncClient(
        headers=options.headers(),
        timeout=httpx.Timeout(READ_S, connect=10.0),
        trust_env=url.host not in LOOPBACK,
    ) as client:
        return await following.follow(client)


def run(options: RunOptions) -> int:
    """Post the run, show it, and return the exit code; messages about failures go to stderr."""
    try:
        base_url, body = str(options.base_url()), options.body()
        options.headers()
    except UsageError as error:
        return _fail(EXIT_USAGE, str(error))
    view = JsonView(sys.stdout) if options.as_json else TextView(sys.stdout)
    following = Following(base_url, body, view, new_id())
    try:
        return asyncio.run(_run(following, options))
    except KeyboardInterrupt:
        return _fail(EXIT_INTERRUPTED, _goes_on(following, options, "Interrupted."))
    except ServerRefused as error:
        return _fail(EXIT_SERVER, str(error))
    except StreamCut as error:
        return _fail(EXIT_SERVER, _goes_on(following, options, str(error)))
    except httpx.HTTPError as error:
        said = str(error) or type(error).__name__
        return _fail(
            EXIT_SERVER, f"No server can be reached at {base_url}: {said}. Start one with: runwire serve --demo"
        )
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED


def _goes_on(following: Following, options: RunOptions, why: str) -> str:
    """What to do about a run that this command no longer follows."""
    if following.location is None:
        return f"{why} The server had not confirmed the run."
    key = ' -H "Authorization: Bearer $RUNWIRE_API_KEY"' if options.headers() else ""
    address = f"{following.url}{following.location}"
    return (
        f"{why} The run goes on.\n"
        f"  follow it: curl -N{key} '{address}/stream?after={following.last_id}'\n"
        f"  stop it:   curl -X POST{key} {address}/cancel"
    )


def _fail(code: int, message: str) -> int:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    print(f"runwire: {message}", file=sys.stderr)
    return code
