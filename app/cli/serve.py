"""`runwire serve`: the server process, with its own listening socket and its own signal handling."""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sys

import uvicorn
from fastapi import FastAPI

from app.cli.protocol import KEEP_ALIVE_S, BoundedProtocol
from app.cli.secrets import known_secrets
from app.core.errors import RunwireError
from app.main import app_of
from app.observability.logging import configure
from app.settings import Settings, SettingsError
from app.tools.plugins import PluginError
from app.wiring import build

STREAMS_CLOSE_S = 1.0
"""After a signal: how long readiness is 503 and streams are told before the listener closes."""

LAST_TASKS_S = 0.2
"""After the stop: how long what plugins still have at work may clean up before the process ends."""

TCP_USER_TIMEOUT_MS = 30_000
"""A peer that acknowledges nothing for so long is dropped by the kernel: half-open connections, readers that stalled."""

GC_ALLOCATIONS = 10_000
"""Objects made between two looks for garbage cycles. Python's 700 takes a tenth of a short run; runs make few cycles."""

RESERVED_FILES = 128
"""Open files that connections of callers leave to the database, tool calls and models."""

EXIT_HURRIED = 130
EXIT_SETTINGS = 2
EXIT_STORAGE = 3


def listen(host: str, port: int) -> socket.socket:
    """Bind and listen. Raises `SettingsError` that says what to do when the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_MS)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise SettingsError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose another with --port or RUNWIRE_PORT."
        ) from error
    sock.listen(2048)
    sock.setblocking(False)
    return sock


def _connections(wanted: int) -> int:
    """How many connections may be open: `wanted`, but no more than the process may have files for, which is raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems have a lower bound than the limit they tell
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, soft - RESERVED_FILES, soft * 3 // 4))


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: on a signal we drain first, and only then let it close the listener."""

    @contextlib.contextmanager
    def capture_signals(self):  # pyright: ignore[reportImplicitOverride, reportUnknownParameterType]
        yield


async def serve(settings: Settings, *, on_ready: "asyncio.Future[str] | None" = None) -> int:
    """Run until SIGTERM or SIGINT; the exit code."""
    try:
        parts = build(settings)
        sock = listen(settings.host, settings.port)
    except (SettingsError, PluginError, RunwireError) as error:
        print(f"runwire: {error}", file=sys.stderr)
        return EXIT_SETTINGS
    try:
        await parts.start()
    except (RunwireError, OSError) as error:
        print(f"runwire: {_said(error)}", file=sys.stderr)
        sock.close()
        return EXIT_STORAGE
    app = app_of(parts)
    app.router.lifespan_context = _no_lifespan
    server = Server(
        uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            limit_concurrency=_connections(settings.max_connections),
            timeout_keep_alive=KEEP_ALIVE_S,
            log_config=None,
            # what it says of its start and its stop is for debugging: a line of our own says that the server is up
            log_level={"info": "warning"}.get(settings.log_level, settings.log_level),
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=max(1, int(settings.shutdown_grace_s)),
            server_header=False,
            proxy_headers=False,
        )
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stop)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    stopping = asyncio.create_task(stop.wait())
    parts.base_url.bound = base_url(sock)
    if on_ready is not None:
        on_ready.set_result(base_url(sock))
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    parts.drain()
    await asyncio.wait((serving,), timeout=min(STREAMS_CLOSE_S, settings.shutdown_grace_s))
    server.should_exit = True
    stopped = asyncio.create_task(parts.stop(max(0.0, settings.shutdown_grace_s - STREAMS_CLOSE_S)))
    await asyncio.wait((serving, stopped), timeout=settings.shutdown_grace_s)
    server.force_exit = True
    stopping.cancel()
    await asyncio.gather(serving, stopped, return_exceptions=True)
    return 0


def _on_signal(stop: asyncio.Event) -> None:
    """The first signal stops in good order; a second one ends the process, as a crash would: the journal allows it."""
    if stop.is_set():
        os._exit(EXIT_HURRIED)
    stop.set()


def _said(error: RunwireError | OSError) -> str:
    if isinstance(error, OSError):
        return f"The database's place cannot be used: {error.strerror} ({error.filename}). See RUNWIRE_DATABASE_URL."
    return str(error)


@contextlib.asynccontextmanager
async def _no_lifespan(_: FastAPI):  # pyright: ignore[reportUnknownParameterType]
    yield


def base_url(sock: socket.socket) -> str:
    """Where the server can be reached from this machine."""
    address: tuple[str, int] = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address[0]) or address[0]  # noqa: S104
    return f"http://[{host}]:{address[1]}" if ":" in host else f"http://{host}:{address[1]}"


def run_server(settings: Settings) -> int:
    """`serve` on uvloop, with logs configured. The process should end when it returns: what does not stop is still there."""
    import uvloop

    configure(settings.log_level, settings.log_format, known_secrets(settings, os.environ))
    gc.set_threshold(GC_ALLOCATIONS)

    async def main() -> int:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve(settings, on_ready=ready))
        await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            await _greet(settings, ready.result())
        code = await serving
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=LAST_TASKS_S)
        return code

    # Not `uvloop.run`: it waits for every task and every thread there is, and a plugin's may never stop.
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop.run_until_complete(main())


async def _greet(settings: Settings, url: str) -> None:
    print(f"Runwire is at {url} (API documentation: {url}/docs)", flush=True)
    if settings.demo:
        from app.cli.greeting import show_demo

        await show_demo(url)
