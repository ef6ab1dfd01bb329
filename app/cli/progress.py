"""The last line of a terminal while a run goes on: that it does, for how long, and which tools it waits for."""

import time
from collections.abc import Callable
from typing import Protocol

from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from app.cli.screen import Screen
from app.cli.text import one_line, seconds

FRAMES_A_SECOND = 8


class Progress(Protocol):
    def begin(self, call: str, tool: str) -> None:
        """A tool's call is under way."""
        ...

    def report(self, call: str, said: str) -> None:
        """What a call says of itself."""
        ...

    def end(self, call: str) -> None: ...

    def draw(self) -> None:
        """Put the line below what stands there; the cursor must be at the start of a line."""
        ...

    def clear(self) -> None:
        """Take it away, before text that has no line of its own."""
        ...


class NoProgress:
    """Where lines cannot be drawn again."""

    def begin(self, call: str, tool: str) -> None: ...
    def report(self, call: str, said: str) -> None: ...
    def end(self, call: str) -> None: ...
    def draw(self) -> None: ...
    def clear(self) -> None: ...


class LiveProgress:
    """The line, drawn by rich from a thread of its own."""

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._began = clock()
        self._calls: dict[str, str] = {}
        self._spinner = Spinner("dots" if screen.unicode else "line", style="cyan")
        self._live: Live | None = None

    def begin(self, call: str, tool: str) -> None:
        self._calls = {**self._calls, call: tool}

    def report(self, call: str, said: str) -> None:
        if call in self._calls and said:
            self._calls = {**self._calls, call: f"{self._calls[call].partition(' ')[0]} {said}"}

    def end(self, call: str) -> None:
        self._calls = {known: said for known, said in self._calls.items() if known != call}

    def draw(self) -> None:
        if self._live is None:
            self._live = Live(
                self,
                console=self._screen.console,
                refresh_per_second=FRAMES_A_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def clear(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def __rich__(self) -> Table:
        line = Table.grid(padding=(0, 1))
        line.add_column()
        line.add_column(no_wrap=True, overflow="ellipsis" if self._screen.unicode else "crop")
        waited = seconds(1000 * int(self._clock() - self._began)) if self._clock() - self._began >= 1 else ""
        calls = ", ".join(one_line(said, 60) for said in self._calls.values())
        line.add_row(self._spinner, Text("  ".join(part for part in (waited, calls) if part), style="dim"))
        return line


def progress_on(screen: Screen) -> Progress:
    return LiveProgress(screen) if screen.moves and not screen.as_json else NoProgress()
