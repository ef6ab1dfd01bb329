"""The `runwire` command in a pseudo-terminal: what a person sees, and the keys a person presses."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli.command import TIMEOUT_S, environment

CTRL_C = b"\x03"
PARTS = re.compile(r"\x1b\[([0-?]*)[ -/]*([@-~])|([\r\n])|([^\x1b\r\n]+)")


@dataclass(slots=True)
class Terminal:
    process: asyncio.subprocess.Process
    master: int
    raw: bytearray = field(default_factory=bytearray)
    """Everything the command wrote, escape sequences and all."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        """What is to be seen: the lines as they stand after all that was erased and drawn again. Long lines are whole."""
        return drawn(self.raw.decode(errors="replace"))

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    async def until(self, said: str) -> None:
        """Wait until this was written."""
        async with asyncio.timeout(TIMEOUT_S):
            while said not in self.text:
                self._changed.clear()
                await self._changed.wait()

    async def code(self) -> int:
        """Wait for the end; the exit code."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self.process.wait()

    def read(self) -> None:
        """Take what is there."""
        try:
            self.raw += os.read(self.master, 65536)
        except OSError:  # EIO: nobody has the other side open any more
            asyncio.get_running_loop().remove_reader(self.master)
        self._changed.set()


def drawn(raw: str) -> str:
    """The lines that these characters leave on a screen without an end to its right: as much as rich makes use of."""
    lines, row, column = [""], 0, 0
    for match in PARTS.finditer(raw):
        given, command, end, text = match.groups()
        if end == "\r":
            column = 0
        elif end == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif command == "A":
            row = max(0, row - int(given or 1))
        elif command == "K":
            lines[row] = "" if given == "2" else lines[row][:column]
        elif text:
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
            column += len(text)
    return "\n".join(lines)


@asynccontextmanager
async def terminal(
    *args: str, cwd: Path, env: Mapping[str, str], columns: int = 100, rows: int = 30
) -> AsyncGenerator[Terminal]:
    """`runwire` with these arguments on a terminal of this size, killed at the end."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    given = {"TERM": "xterm-256color", "LANG": "C.UTF-8", **env}
    unset = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app", *args,
            cwd=cwd,
            env={name: value for name, value in environment(given).items() if name in env or name not in unset},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
    finally:
        os.close(slave)
    shown = Terminal(process, master)
    asyncio.get_running_loop().add_reader(master, shown.read)
    try:
        yield shown
    finally:
        asyncio.get_running_loop().remove_reader(master)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        os.close(master)
