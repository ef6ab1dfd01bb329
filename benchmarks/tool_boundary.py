"""The tool boundary: what a call costs from validation to its recorded outcome, beside the least it could cost.

In process: CPU of one call of a function that returns at once, beside calling it. Over HTTP on loopback: the median of a whole
signed call, beside the same POST by a bare `httpx.AsyncClient`, in alternated pieces. Nothing is journaled.
"""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import httpx
import uvloop

from app.agent.ports import PlannedCall, ToolOutcome
from app.core.actions import AgentAction
from app.core.ids import new_id
from app.core.principal import Principal
from app.tools.compiled import CompiledTool
from app.tools.egress import EgressGuard
from app.tools.http_callback import HttpToolClient
from app.tools.plugins import PluginSet
from app.tools.runner import BoundTools, ToolRunContext
from app.tools.secret_refs import Secrets
from app.tools.signing import new_secret
from app.tools.spec import read_spec
from app.tools.stored import compile_stored
from benchmarks.options import Options
from benchmarks.plugin import lookup
from benchmarks.processes import ROOT
from benchmarks.report import Report

CALLS = 2000
REQUESTS = 300
BODY = b'{"output":"x is 42"}'
SCHEMA: dict[str, object] = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


async def _unrecorded(*_: object) -> None:
    """Nothing is journaled: the boundary is measured, not the storage."""


def _bound(tool: CompiledTool) -> BoundTools:
    context = ToolRunContext(
        principal=Principal("default", "bench"), run_id="run", thread_id="thread", record_dispatch=_unrecorded
    )
    return BoundTools({tool.name: tool}, context)


def _planned(step: int) -> PlannedCall:
    return PlannedCall(step, step, new_id(), AgentAction("lookup", {"key": "x"}))


async def _call(tools: BoundTools, call: PlannedCall) -> None:
    """All that a run asks of the boundary for one call. Raises `RuntimeError` when it did not come back well."""
    tools.facts(call)
    outcome = await tools.run(call)
    if not isinstance(outcome, ToolOutcome) or outcome.status != "success":
        raise RuntimeError(f"the call did not work: {outcome}")


async def _cpu_us(tools: BoundTools) -> float:
    calls = [_planned(step) for step in range(1, CALLS + 1)]
    begun = time.process_time()
    for call in calls:
        await _call(tools, call)
    return (time.process_time() - begun) / CALLS * 1e6


async def _direct_us() -> float:
    begun = time.process_time()
    for _ in range(CALLS):
        await lookup("x")
    return (time.process_time() - begun) / CALLS * 1e6


async def _p50_ms(post: Callable[[], Awaitable[None]]) -> float:
    found: list[float] = []
    for _ in range(REQUESTS):
        begun = time.perf_counter()
        await post()
        found.append((time.perf_counter() - begun) * 1000)
    return statistics.median(found)


async def measure(options: Options, port: int) -> Report:
    url = f"http://127.0.0.1:{port}/"
    plugins = PluginSet([lookup])
    plugin = plugins.get("lookup")
    assert plugin is not None
    guard = EgressGuard(["127.0.0.0/8"])
    client = HttpToolClient(guard)
    spec = read_spec({"name": "lookup", "parameters": SCHEMA, "http": {"url": url}}, guard).to_json()
    remote = _bound(compile_stored(spec, Secrets(new_secret(), None, {}), None, client))
    local = _bound(plugin)
    cpu: list[float] = []
    direct: list[float] = []
    ours: list[float] = []
    bare: list[float] = []
    async with httpx.AsyncClient(trust_env=False, verify=False) as plain:

        async def post() -> None:
            (await plain.post(url, json={"key": "x"})).raise_for_status()

        async def call() -> None:
            await _call(remote, _planned(1))

        await _cpu_us(local)
        await _p50_ms(post)
        await _p50_ms(call)
        for _ in range(options.rounds):
            cpu.append(await _cpu_us(local))
            direct.append(await _direct_us())
            bare.append(await _p50_ms(post))
            ours.append(await _p50_ms(call))
    await client.aclose()
    plugins.close()
    report = Report("tool_boundary: one call from validation to outcome")
    report.at_most("in process, CPU of a call", statistics.median(cpu), 100, "µs")
    report.add("the function alone", f"{statistics.median(direct):.2f} µs")
    report.at_most(
        "over HTTP, p50 over bare httpx",
        statistics.median(a - b for a, b in zip(ours, bare, strict=True)),
        1,
        "ms",
    )
    report.add("over HTTP, p50", f"{statistics.median(ours):.3f} ms")
    report.add("bare httpx, p50", f"{statistics.median(bare):.3f} ms")
    return report


def run(options: Options) -> Report:
    with _tool() as port:
        return uvloop.run(measure(options, port))


@contextmanager
def _tool() -> Generator[int]:
    """A tool that answers at once, a process of its own; its port."""
    process = subprocess.Popen((sys.executable, "-m", "benchmarks.tool_boundary"), cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


async def _serve() -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    answer = head.encode() + BODY

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
                length = next(line for line in lines if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
