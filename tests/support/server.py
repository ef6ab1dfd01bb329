"""A Runwire server as a real process, which tests talk to over HTTP and may kill.

with RunwireServer.open(tmp_path) as server:
    async with server.client() as client:
        answer = await client.get("/runs")
    server.kill()
    server.start()   # the same folder, the same database
"""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]

ACME = "acme-key-0123456789"
OTHER = "other-key-0123456789"
READER = "reader-key-0123456789"
RUNNER = "runner-key-0123456789"
NOBODY = "nobody-key-0123456789"

KEYS = (
    f"{ACME}:acme,{OTHER}:other,{READER}:acme:runs:read tools:read,{RUNNER}:acme:runs:read runs:write,{NOBODY}:acme:own"
)
"""Two tenants; of the first also a key that may only read, one that may run, and one with no scope of the server's."""

TIMEOUT_S = 20.0
"""How long a test waits for anything before it is a failure."""

EXIT_S = 10.0
"""How long the server may take to stop after SIGTERM."""

_MARK = "Runwire is at "


@dataclass(slots=True)
class RunwireServer:
    """`runwire serve` in `folder`: its working directory, with the database and `server.log` in it."""

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    args: tuple[str, ...] = ()
    url: str = ""
    process: "subprocess.Popen[bytes] | None" = None

    @classmethod
    @contextmanager
    def open(
        cls, folder: Path, *, keys: str = KEYS, env: Mapping[str, str] | None = None, args: tuple[str, ...] = ()
    ) -> Generator["RunwireServer"]:
        """A started server, killed at the end. `env`: settings by their names in the environment."""
        settings = {
            "RUNWIRE_API_KEYS": keys,
            "RUNWIRE_EGRESS_ALLOW": "127.0.0.0/8",
            "RUNWIRE_PLUGINS": "tests.e2e.plugin_tools",
            **(env or {}),
        }
        server = cls(folder, settings, args)
        server.start()
        try:
            yield server
        finally:
            server.kill()
        server.check_log()

    def spawn(self) -> "subprocess.Popen[bytes]":
        """Only the process, whether or not it comes up; its output is in `server.log`, the address on its stdout."""
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RUNWIRE_", "OPENAI_", "ANTHROPIC_", "OTEL_"))
        }
        log = (self.folder / "server.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "app", "serve", "--port", "0", *self.args],
                cwd=self.folder,
                env={**clean, "PYTHONPATH": str(ROOT), **self.env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def start(self) -> None:
        """Start and wait for the printed address."""
        assert self.process is None
        self.process = process = self.spawn()
        assert process.stdout is not None
        for line in iter(process.stdout.readline, b""):
            text = line.decode()
            if text.startswith(_MARK):
                self.url = text.removeprefix(_MARK).split()[0]
                return
        raise AssertionError(f"the server did not start: {self.log()}")

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal and wait for the exit; the exit code (negative: the signal that ended it)."""
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)
        return self._ended(process)

    def wait(self) -> int:
        """Wait until it has ended by itself, at most as long as a stop may take; the exit code."""
        process, self.process = self.process, None
        assert process is not None
        return self._ended(process, EXIT_S)

    def _ended(self, process: "subprocess.Popen[bytes]", timeout_s: float = TIMEOUT_S) -> int:
        try:
            code = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        if process.stdout is not None:
            process.stdout.close()
        return code

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def log(self) -> str:
        return (self.folder / "server.log").read_text(encoding="utf-8", errors="replace")

    def check_log(self) -> None:
        """No key or other secret of the settings is ever in a log: every server of the suite is held to it."""
        log = self.log()
        keys = [entry.split(":")[0] for entry in self.env.get("RUNWIRE_API_KEYS", "").split(",")]
        named = [value for name, value in self.env.items() if name.endswith(("_KEY", "_SECRET", "_TOKEN"))]
        told = [secret for secret in (*keys, *named) if secret and secret in log]
        assert not told, f"the log tells secrets of the settings: {told}"

    def client(self, key: str | None = ACME, **options: object) -> httpx.AsyncClient:
        """A client of this server; `key` `None` sends none."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        return httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=TIMEOUT_S,
            trust_env=False,
            verify=False,  # plain HTTP; loading the certificates would be most of a short test's time
            limits=limits,
            **options,  # pyright: ignore[reportArgumentType]
        )
