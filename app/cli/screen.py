"""Where a command's output goes: a terminal with its colours and width, a pipe, or JSON for programs."""

import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import TextIO, cast

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from app.cli.layout import GAP, Column, lay_out
from app.cli.text import one_line, plain

STATUS_STYLES = {
    "success": "green", "error": "red", "timeout": "red", "denied": "yellow", "unknown": "yellow", "cancelled": "yellow",
    "interrupted": "magenta", "waiting": "dim", "pending": "dim", "running": "cyan",
}  # fmt: skip


class _Console(Console):
    def on_broken_pipe(self) -> None:  # pyright: ignore[reportImplicitOverride]
        raise BrokenPipeError


class Screen:
    """One output stream. Every method may raise `BrokenPipeError`: nobody reads any more.

    Text that is given is shown as it is, without markup; it is freed of control characters here.
    """

    def __init__(self, out: TextIO | None = None, *, as_json: bool = False) -> None:
        self.out = out or sys.stdout
        self.as_json = as_json
        _tolerant(self.out)
        self.terminal = self.out.isatty()
        self.moves = self.terminal and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
        """Whether the cursor can be moved, so that lines can be drawn again."""
        self.unicode = _can_say(self.out, "✓⠋…")
        self._utf8 = _is_utf8(self.out)
        self.console = _Console(
            file=self.out,
            force_terminal=self.terminal,  # not by FORCE_COLOR: programs read a pipe
            color_system="auto" if self.terminal else None,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
        )

    @property
    def width(self) -> int | None:
        """Cells of a line; `None` when it is no terminal."""
        return self.console.width if self.terminal else None

    def line(self, text: str = "", style: str | None = None) -> None:
        self.console.out(plain(text), style=style, highlight=False)

    def json(self, value: object) -> None:
        """One JSON document: on a line of its own for programs, indented for people."""
        text = json.dumps(value, ensure_ascii=not self._utf8, indent=2 if self.terminal else None)
        self.out.write(f"{text}\n")
        self.out.flush()

    def json_line(self, value: object) -> None:
        """One line of JSON Lines."""
        self.out.write(f"{json.dumps(value, ensure_ascii=not self._utf8, separators=(',', ':'))}\n")
        self.out.flush()

    def event(self, number: int, name: str, raw: str) -> None:
        """One event of a run on a line, its data as it came."""
        data = raw if self._utf8 and "\n" not in raw else json.dumps(json.loads(raw), ensure_ascii=not self._utf8)
        self.out.write(f'{{"id":{number},"event":{json.dumps(name)},"data":{data}}}\n')
        self.out.flush()

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Rows under their headings. In a pipe everything is whole; on a terminal a row is one line if it can be."""
        shown = [[one_line(value) for value in row] for row in rows]
        layout = lay_out(columns, shown, self.width, cell_len)
        if layout.stacked:
            for row in shown:
                self._stacked(columns, row)
            return
        heads = [columns[at] for at in layout.shown]
        self._row([column.name for column in heads], layout.widths, ["bold"] * len(heads))
        for row in shown:
            values = [row[at] for at in layout.shown]
            styles = [
                STATUS_STYLES.get(value) if column.name == "STATUS" else column.style
                for column, value in zip(heads, values, strict=True)
            ]
            self._row(values, layout.widths, styles)

    def fields(self, pairs: Sequence[tuple[str, object]]) -> None:
        """Names and values below each other; values of `None` are left out, several lines are indented."""
        given = [(name, value) for name, value in pairs if value is not None and value != ""]
        wide = max((len(name) for name, _ in given), default=0) + GAP
        for name, value in given:
            text = plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            style = STATUS_STYLES.get(text) if name == "status" else None
            shown = text.replace("\n", "\n" + " " * wide)
            self.console.print(Text.assemble((name.ljust(wide), "dim"), (shown, style or "")), soft_wrap=True)

    def _row(self, values: Sequence[str], widths: Sequence[int], styles: Sequence[str | None]) -> None:
        line = Text()
        for at, (value, width, style) in enumerate(zip(values, widths, styles, strict=True)):
            fitted = self._fit(value, width)
            last = at == len(values) - 1
            line.append(fitted.rstrip() if last else fitted + " " * GAP, style or "")
        line.rstrip()
        self.console.print(line, soft_wrap=True)

    def _fit(self, value: str, width: int) -> str:
        if cell_len(value) <= width:
            return set_cell_size(value, width)
        mark = "…" if self.unicode else "..."
        return set_cell_size(value, width - len(mark)) + mark

    def _stacked(self, columns: Sequence[Column], row: Sequence[str]) -> None:
        """The first value on its own line, the others below it as far as they fit on one."""
        width = self.width or 0
        self.line(row[0])
        rest, used = Text("  "), 2
        for column, value in zip(columns[1:], row[1:], strict=True):
            room = width - used
            if not value or (cell_len(value) > room and not (column.cut and room >= 4)):
                continue
            shown = value if cell_len(value) <= room else self._fit(value, room)
            style = STATUS_STYLES.get(value) if column.name == "STATUS" else column.style
            rest.append(shown, style or "")
            rest.append(" " * GAP)
            used += cell_len(shown) + GAP
        rest.rstrip()
        self.console.print(rest, soft_wrap=True)


def silence(out: TextIO) -> None:
    """Throw away what is still to be written: Python would fail on it again at the exit."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, out.fileno())
        os.close(null)


def _tolerant(out: TextIO) -> None:
    """A terminal without UTF-8 shows `?` instead of failing."""
    if isinstance(out, io.TextIOWrapper):
        with contextlib.suppress(OSError, ValueError):
            out.reconfigure(errors="replace")


def _is_utf8(out: TextIO) -> bool:
    try:
        return codecs.lookup(cast("str | None", out.encoding) or "ascii").name == "utf-8"
    except LookupError:
        return False


def _can_say(out: TextIO, text: str) -> bool:
    try:
        text.encode(cast("str | None", out.encoding) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
