"""Waiting: what a run costs whose tool answers later, in memory and CPU, and how soon it goes on."""

import asyncio
import contextlib
import json
import statistics
import threading
import time
import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.options import Options
from benchmarks.processes import Server, runwire
from benchmarks.report import Report

WARM = 1000
"""Runs before the first measurement. The database's caches still grow after them, by a few KB a run, whatever the runs do."""
RUNS = 4000
CLIENTS = 16
SETTLE_S = 1.0
IDLE_S = 5.0
ANSWER = 'HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{"status":"working"}'


@dataclass(slots=True)
class Later:
    """A tool that answers every call alike, and what it was told to call back."""

    url: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    changed: threading.Condition = field(default_factory=threading.Condition)

    def until(self, count: int) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.calls) >= count, timeout=60):
                raise RuntimeError(f"only {len(self.calls)} of {count} calls came")


@contextmanager
def _answering(status: str) -> Generator[Later]:
    """A bare server of its own thread, so that it takes little of what is measured."""
    tool = Later()
    answer = (ANSWER % status).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                call = json.loads(await reader.readexactly(size))["data"]
                with tool.changed:
                    tool.calls.append(call)
                    tool.changed.notify_all()
                writer.write(answer)
                await writer.drain()
        writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024))
    tool.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield tool
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def run(options: Options) -> Report:
    report = Report(f"waiting: {RUNS:,} runs whose tool answers later")
    with _answering("200 OK") as tool, runwire(egress_allow="127.0.0.0/8") as server:
        ended = _each_kb(server, tool)
    with _answering("202 Accepted") as tool, runwire(egress_allow="127.0.0.0/8") as server:
        waiting = _each_kb(server, tool)
        cpu = server.cpu_s
        time.sleep(IDLE_S)
        cpu = (server.cpu_s - cpu) / IDLE_S * 100
        woken = [_goes_on_ms(server, call) for call in tool.calls[: 20 * options.rounds]]
    report.at_most("memory a run that waits, over one that has ended", waiting - ended, 2, "KB")
    report.add("growth a run, waiting and ended", f"{waiting:.1f}, {ended:.1f} KB")
    report.at_most(f"CPU while {WARM + RUNS:,} wait", cpu, 1, "% of a core")
    report.at_most("callback to the run's end on a held stream, p50", statistics.median(woken), 50, "ms")
    return report


def _each_kb(server: Server, tool: Later) -> float:
    """What each of `RUNS` runs adds to the server's memory, KB (1,000 bytes)."""
    _post_until(server, tool, WARM)
    before = server.resident_mb
    _post_until(server, tool, WARM + RUNS)
    return (server.resident_mb - before) * 1000 / RUNS


def _post_until(server: Server, tool: Later, count: int) -> None:
    """Post runs until so many calls came; returns when the server has settled."""
    model: dict[str, object] = {
        "provider": "scripted",
        "script": [{"tool_calls": [{"name": "later", "args": {}}]}, {"content": "done"}],
    }
    spec = {"name": "later", "description": "Answers later.", "http": {"url": tool.url}}
    body = json.dumps({"agent": {"model": model, "tools": [spec]}, "input": "go"}).encode()
    with ThreadPoolExecutor(CLIENTS) as clients:
        posted = [clients.submit(_post, server, "/runs", body) for _ in range(count - len(tool.calls))]
        for one in posted:
            one.result()
    tool.until(count)
    time.sleep(SETTLE_S)


def _goes_on_ms(server: Server, call: dict[str, Any]) -> float:
    """From the callback to the `end` on a stream that was open before, milliseconds."""
    url = f"http://127.0.0.1:{server.port}/runs/{call['run_id']}/stream?hold=true"
    with urllib.request.urlopen(url, timeout=10) as stream:
        for line in stream:
            if line == b"event: action\n":
                break
        begun = time.perf_counter()
        path = call["callback_url"].partition(f":{server.port}")[2]
        _post(server, path, b'{"output":1}', call["callback_token"])
        for line in stream:
            if line == b"event: end\n":
                return (time.perf_counter() - begun) * 1000
    raise RuntimeError("the stream ended without an end")


def _post(server: Server, path: str, body: bytes, token: str | None = None) -> None:
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()
