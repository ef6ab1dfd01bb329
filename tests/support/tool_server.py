"""A real HTTP tool server in a process of its own, with a ledger of its effects that survives any kill.

    with ToolServer.start(tmp_path) as server:
        url = server.url("/503-then-ok")
        ...
        assert [effect["idempotency_key"] for effect in server.effects()] == [key]

Behaviours, by path (`?times=N`: how often a `…-then-ok` path misbehaves for one call, default 1; `?ms=N`: delay):

    /ok  /echo  /add             effect, then `{"output": …}` (`true`, the arguments, a + b)
    /as-asked                    effect, then the arguments themselves as the whole answer
    /slow?ms=500                 waits, effect, answers; /hold: effect, then no answer until /release is asked
    /error  /retryable           `{"error": …}`, no effect; /retryable-then-ok
    /status/404                  any status, no effect, JSON problem body; /429-then-ok  /503-then-ok (no effect at first)
    /500                         effect, then 500: the dangerous kind
    /redirect                    307 to /ok
    /text  /null  /empty  /json  effect, then that on 200
    /big                         effect, then 3 MB of JSON text; /invalid-utf8; /gzip-bomb (1 GB of zeros, compressed)
    /never                       effect, then nothing; /drip: effect, then a byte a second
    /close-before  /close-after  closes the connection without an answer, before or after the effect
    /half                        effect, then half of the announced body; /half-then-ok: so for one call, then answers
    /202                         effect, then `{"status":"working"}`
    /became?working=N            a status_url: 404 for a key without an effect, else 202 N times, then `{"output": "found"}`;
                                 `?status=500` answers so instead. Each question is in the ledger, its `tool` null
    /stats                       `{"connections","requests","most_at_once"}` so far; /release lets every /hold go

An effect is one fsync-ed JSON line: `{"path","tool","tool_call_id","idempotency_key","attempt","arguments","body_sha256",
"traceparent","tracestate","baggage","authorization","callback_url","callback_token"}`, written before the first byte of the
answer.
"""

import argparse
import asyncio
import hashlib
import json
import os
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class ToolServer:
    """A running server. Its ledger stays readable after it is gone."""

    port: int
    ledger: Path
    process: "subprocess.Popen[bytes]"

    @classmethod
    @contextmanager
    def start(cls, folder: Path, *, port: int = 0) -> Generator["ToolServer"]:
        """Start on loopback (`port` 0: a free one) and stop at the end. The ledger is `folder/ledger.jsonl`."""
        ledger = folder / "ledger.jsonl"
        ledger.touch()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.tool_server", "--port", str(port), "--ledger", str(ledger)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            yield cls(int(process.stdout.readline()), ledger, process)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def effects(self) -> list[dict[str, object]]:
        """All effects so far, oldest first; a line that a kill cut off is not one."""
        found: list[dict[str, object]] = []
        for line in self.ledger.read_bytes().splitlines():
            with suppress(ValueError):
                found.append(cast("dict[str, object]", json.loads(line)))
        return found

    def repeated(self) -> dict[str, int]:
        """Idempotency keys with more than one effect, and how many."""
        counts = Counter(str(effect["idempotency_key"]) for effect in self.effects())
        return {key: count for key, count in counts.items() if count > 1}

    def stats(self) -> dict[str, int]:
        with urlopen(self.url("/stats"), timeout=10) as answer:
            return cast("dict[str, int]", json.load(answer))

    def release(self) -> None:
        with urlopen(self.url("/release"), timeout=10) as answer:
            answer.read()


# --- the process ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Request:
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    def number(self, name: str, default: int) -> int:
        return int(self.query.get(name, [str(default)])[0])

    def data(self) -> dict[str, object]:
        with suppress(ValueError, KeyError, TypeError):
            return cast("dict[str, object]", json.loads(self.body)["data"])
        return {}


@dataclass(slots=True)
class _Server:
    ledger: int
    released: asyncio.Event = field(default_factory=asyncio.Event)
    seen: Counter[str] = field(default_factory=Counter[str])
    connections: int = 0
    requests: int = 0
    at_once: int = 0
    most_at_once: int = 0
    keys: set[str] = field(default_factory=set[str])
    """Idempotency keys of effects."""

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while (request := await _read(reader)) is not None:
                self.requests += 1
                if not await self.answer(request, writer):
                    break
        writer.close()

    def effect(self, request: _Request) -> None:
        data = request.data()
        line = {
            "path": request.path,
            "tool": data.get("tool"),
            "tool_call_id": request.headers.get("webhook-id"),
            "idempotency_key": request.headers.get("idempotency-key"),
            "attempt": int(request.headers.get("runwire-attempt", "0")),
            "arguments": data.get("arguments"),
            "body_sha256": hashlib.sha256(request.body).hexdigest(),
            "traceparent": request.headers.get("traceparent"),
            "tracestate": request.headers.get("tracestate"),
            "baggage": request.headers.get("baggage"),
            "authorization": request.headers.get("authorization"),
            "callback_url": data.get("callback_url"),
            "callback_token": data.get("callback_token"),
        }
        os.write(self.ledger, json.dumps(line).encode() + b"\n")
        os.fsync(self.ledger)
        if request.path != "/became":
            self.keys.add(request.headers.get("idempotency-key", ""))

    async def answer(self, request: _Request, writer: asyncio.StreamWriter) -> bool:
        """Do what the path says; whether the connection stays open."""
        path = request.path
        first_part, _, then = path.removeprefix("/").partition("-then-")
        if then:
            key = f"{path} {request.headers.get('webhook-id', '')}"
            self.seen[key] += 1
            path = f"/{first_part}" if self.seen[key] <= request.number("times", 1) else "/ok"
        if path in _NO_EFFECT or path.startswith("/status/") or (path == "/503" and then):
            status, extra, body = self.plain(path, request)
            await _send(writer, status, body, extra)
            return True
        if path == "/close-before":
            return False
        if path == "/became":
            await _send(writer, *self.became(request))
            return True
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(request.number("ms", 0) / 1000)
            self.effect(request)
            return await self.after_effect(path, request, writer)
        finally:
            self.at_once -= 1

    def became(self, request: _Request) -> tuple[int, bytes]:
        asked = cast("dict[str, str]", json.loads(request.body))
        assert asked == {
            "tool_call_id": request.headers["webhook-id"],
            "idempotency_key": request.headers["idempotency-key"],
        }
        known = asked["idempotency_key"] in self.keys
        self.effect(request)
        status = request.number("status", 0)
        if status:
            return status, _json({"detail": f"status {status}"})
        if not known:
            return 404, _json({"detail": "never received"})
        self.seen[f"became {asked['tool_call_id']}"] += 1
        if self.seen[f"became {asked['tool_call_id']}"] <= request.number("working", 0):
            return 202, _json({"status": "working"})
        return 200, _json({"output": "found"})

    def plain(self, path: str, request: _Request) -> tuple[int, str, bytes]:
        match path:
            case "/stats":
                return (
                    200,
                    "",
                    _json(
                        {
                            "connections": self.connections,
                            "requests": self.requests,
                            "most_at_once": self.most_at_once,
                        }
                    ),
                )
            case "/release":
                self.released.set()
                return 200, "", b"{}"
            case "/error":
                return 200, "", _json({"error": {"message": "No such order.", "code": "no_order", "retryable": False}})
            case "/retryable":
                return 200, "", _json({"error": {"message": "Busy.", "code": "busy", "retryable": True}})
            case "/redirect":
                return 307, "Location: /ok\r\n", b""
            case "/429":
                return 429, f"Retry-After: {request.number('after', 0)}\r\n", b""
            case _:
                status = int(path.rpartition("/")[2])
                return status, "", _json({"detail": f"status {status}"})

    async def after_effect(self, path: str, request: _Request, writer: asyncio.StreamWriter) -> bool:
        match path:
            case "/never":
                await asyncio.Event().wait()
            case "/hold":
                await self.released.wait()
            case "/close-after":
                return False
            case "/half":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b'{"output": "' + b"x" * 30)
                await writer.drain()
                return False
            case "/drip":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while True:
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(1)
            case "/gzip-bomb":
                packed = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
                megabyte = bytes(1 << 20)
                body = b"".join(packed.compress(megabyte) for _ in range(1024)) + packed.flush()
                await _send(writer, 200, body, "Content-Encoding: gzip\r\n")
                return True
            case _:
                pass
        arguments = request.data().get("arguments")
        status, body = _answers(path, arguments)
        await _send(writer, status, body)
        return True


_NO_EFFECT = ("/stats", "/release", "/error", "/retryable", "/redirect", "/429")


def _answers(path: str, arguments: object) -> tuple[int, bytes]:
    match path:
        case "/as-asked":
            return 200, _json(arguments)
        case "/echo":
            return 200, _json({"output": arguments})
        case "/add":
            numbers = cast("dict[str, float]", arguments)
            return 200, _json({"output": numbers["a"] + numbers["b"]})
        case "/500" | "/503":
            return int(path[1:]), b"Traceback (most recent call last): secret-in-a-stack-trace"
        case "/text":
            return 200, b"plain text"
        case "/null":
            return 200, b"null"
        case "/empty":
            return 200, b""
        case "/json":
            return 200, _json({"temperature": 21.5, "unit": "C"})
        case "/big":
            return 200, _json("x" * 3_000_000)
        case "/invalid-utf8":
            return 200, b"caf\xe9 \xff"
        case "/202":
            return 202, _json({"status": "working"})
        case _:
            return 200, _json({"output": True})


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


async def _read(reader: asyncio.StreamReader) -> _Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    target = urlsplit(first.split(" ")[1])
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return _Request(target.path, parse_qs(target.query), headers, body)


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes, extra: str = "") -> None:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def _serve(port: int, ledger: str) -> None:
    state = _Server(os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    server = await asyncio.start_server(state.connection, "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ledger", required=True)
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.ledger))
