"""Processes under measurement: the server, the bare baseline and the load client, each a real process on loopback."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

ROOT = Path(__file__).resolve().parent.parent
START_S = 30.0
STOP_S = 15.0
LOAD_S = 240.0


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    process: subprocess.Popen[bytes]
    folder: Path
    ready_s: float
    """Seconds from the start of the process to its first 200 on the path that says it is ready."""

    @property
    def resident_mb(self) -> float:
        """Resident memory of the process, in MB (10^6 bytes)."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise RuntimeError("the server is gone")

    @property
    def cpu_s(self) -> float:
        """Seconds of CPU the process has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def runwire(*, samples: Path | None = None, **settings: str) -> Generator[Server]:
    """A server with default settings, the benchmarks' tools, and a database of its own on the disk of the temp folder.

    `settings`: further `RUNWIRE_…` variables, in lower case without the prefix. `samples`: profile it into this file.
    """
    launcher = ("-m", "app") if samples is None else ("-m", "benchmarks.sampling", str(samples))
    variables = {f"RUNWIRE_{name.upper()}": value for name, value in settings.items()}
    variables["RUNWIRE_PLUGINS"] = "benchmarks.plugin"
    with _serving((*launcher, "serve", "--port"), "/readyz", variables) as server:
        yield server


@contextmanager
def bare(pieces: Sequence[bytes]) -> Generator[Server]:
    """The baseline: FastAPI's `StreamingResponse` that yields `pieces`, one after another."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(json.dumps([piece.decode() for piece in pieces]).encode())
        file.flush()
        with _serving(("-m", "benchmarks.bare", file.name), "/ready", {}) as server:
            yield server


@contextmanager
def _serving(command: Sequence[str], ready: str, variables: Mapping[str, str]) -> Generator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="runwire-bench-"))
    port = _free_port()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RUNWIRE_")}
    environ |= {"PYTHONPATH": str(ROOT), "RUNWIRE_DATABASE_URL": f"sqlite:///{folder}/runwire.db", **variables}
    with (folder / "log").open("wb") as log:
        begun = time.perf_counter()
        process = subprocess.Popen(
            (sys.executable, *command, str(port)), cwd=folder, env=environ, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        ready_s = _wait_ready(process, f"http://127.0.0.1:{port}{ready}", begun, folder / "log")
        yield Server(port, process, folder, ready_s)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _wait_ready(process: subprocess.Popen[bytes], url: str, begun: float, log: Path) -> float:
    while time.perf_counter() - begun < START_S:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended at once:\n{log.read_text()}")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return time.perf_counter() - begun
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.01)
    raise RuntimeError(f"the server was not ready in {START_S} s:\n{log.read_text()}")


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of the load client saw."""

    seconds: float
    requests: int
    first_ms: list[float]
    """Per request: from its first byte sent to the first event received."""
    total_ms: list[float]
    size: int
    """Bytes of response bodies, framing included."""
    sample: bytes
    """The body of one response, without framing."""
    at: list[tuple[float, int]]
    """Of that response: (milliseconds since its request was sent, bytes of its body so far), per read."""


def load(server: Server, body: bytes, *, path: str = "/runs/stream", clients: int, requests: int) -> Load:
    """Post `requests` runs over `clients` keep-alive connections, each read to its end, from a process of its own.

    Raises `RuntimeError` when an answer is not a 200 whose stream ends with a successful run.
    """
    job = {"port": server.port, "path": path, "body": body.decode(), "clients": clients, "requests": requests}
    done = subprocess.run(
        (sys.executable, "-m", "benchmarks.load"),
        input=json.dumps(job).encode(),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        timeout=LOAD_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError("the load client failed; see its message above")
    result = cast("dict[str, object]", json.loads(done.stdout))
    return Load(
        cast("float", result["seconds"]),
        requests,
        cast("list[float]", result["first_ms"]),
        cast("list[float]", result["total_ms"]),
        cast("int", result["size"]),
        cast("str", result["sample"]).encode(),
        [(at, size) for at, size in cast("list[tuple[float, int]]", result["at"])],
    )
