"""State: what a thread takes on the disk, and how long its state takes to read."""

import json
import sqlite3
import statistics
import time
import urllib.request
from typing import Any

from benchmarks.bodies import stateful
from benchmarks.options import Options
from benchmarks.processes import Server, runwire
from benchmarks.report import Report

MESSAGES = 10_000
POSTED = 1_000
"""Messages of one update."""

_BYTES = """
SELECT sum(length(CAST(delta AS BLOB)) + coalesce(length(CAST(snapshot AS BLOB)), 0)
  + coalesce(length(CAST(field_updates AS BLOB)), 0) + coalesce(length(CAST(field_values AS BLOB)), 0))
FROM checkpoints WHERE thread_id = ?
"""


def run(options: Options) -> Report:
    report = Report("state: threads on the disk, and read")
    with runwire() as server:
        short, long = _stored(server, 200), _stored(server, 1000)
        report.at_most("deltas and snapshots of 200 steps : their messages as JSON", short[0] / short[1], 3, "x")
        report.at_most("the same of 1,000 steps", long[0] / long[1], 3, "x")
        fields = _stored(server, 200, fields=True)
        report.add("with two fields written a step", f"{fields[0] / fields[1]:.2f} x")
        thread = _long_thread(server)
        times = [_read_ms(server, thread) for _ in range(10 * options.rounds)]
        report.at_most(f"reading a state of {MESSAGES:,} messages, p50", statistics.median(times), 30, "ms")
    return report


def _stored(server: Server, steps: int, *, fields: bool = False) -> tuple[int, int]:
    """(bytes in the database, bytes of the messages as JSON) of a thread with one run of so many steps."""
    made = _ask(server, "/runs/wait", stateful(steps, fields=fields))
    assert made["status"] == "success", made
    thread = made["thread_id"]
    messages = _ask(server, f"/threads/{thread}/state")["values"]["messages"]
    assert len(messages) == 2 * steps + 2
    with sqlite3.connect(f"file:{server.folder}/runwire.db?mode=ro", uri=True) as database:
        (stored,) = database.execute(_BYTES, (thread,)).fetchone()
    return stored, len(json.dumps(messages, separators=(",", ":"), ensure_ascii=False).encode())


def _long_thread(server: Server) -> str:
    thread = _ask(server, "/threads", b"{}")["id"]
    for start in range(0, MESSAGES, POSTED):
        messages = [
            {"role": ("user", "assistant")[n % 2], "content": f"message {n}: " + "some words of it " * 8}
            for n in range(start, start + POSTED)
        ]
        _ask(server, f"/threads/{thread}/state", json.dumps({"values": {"messages": messages}}).encode())
    return str(thread)


def _read_ms(server: Server, thread: str) -> float:
    begun = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/threads/{thread}/state") as answer:
        size = len(answer.read())
    taken = (time.perf_counter() - begun) * 1000
    assert size > 100 * MESSAGES
    return taken


def _ask(server: Server, path: str, body: bytes | None = None) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", body, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
