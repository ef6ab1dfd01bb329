"""How `runwire run` shows a run's events: as they are for programs, or as text for people."""

import contextlib
import io
import json
from typing import Protocol, TextIO, cast

from rich.console import Console

SHOWN = 400
"""Characters of a tool's input or observation on its line."""

_KEPT = {ord("\n"), ord("\t")}
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if code not in _KEPT}


def plain(text: str) -> str:
    """Text of a model, tool or server made fit for a terminal: without control characters, so without escape sequences."""
    return text.translate(_CONTROLS)


class View(Protocol):
    def show(self, number: int, event: str, raw: str, data: dict[str, object]) -> None:
        """One event; `raw` is its data as it came. Raises `BrokenPipeError` when nobody reads any more."""
        ...


class JsonView:
    """One line of JSON an event: `{"id","event","data"}`."""

    def __init__(self, out: TextIO) -> None:
        _tolerant(out)
        self._out = out

    def show(self, number: int, event: str, raw: str, data: dict[str, object]) -> None:
        self._out.write(f'{{"id":{number},"event":{json.dumps(event)},"data":{raw}}}\n')
        self._out.flush()


class _Terminal(Console):
    def on_broken_pipe(self) -> None:  # pyright: ignore[reportImplicitOverride]
        raise BrokenPipeError


class TextView:
    """The answer as it comes, a line an action and a step, and a closing line. Colours only on a terminal."""

    def __init__(self, out: TextIO) -> None:
        _tolerant(out)
        self._console = _Terminal(
            file=out, color_system="auto" if out.isatty() else None, highlight=False, soft_wrap=True
        )
        self._message = ""
        """The model answer that is on the screen, whole or in part."""
        self._text = ""
        self._open_line = False

    def show(self, number: int, event: str, raw: str, data: dict[str, object]) -> None:
        match event:
            case "run":
                if data.get("attempt") not in (None, 1):
                    self._line(f"(taken up again, attempt {data['attempt']})", "dim")
            case "output":
                self._output(data)
            case "action":
                self._line(f"-> {data.get('tool')} {_short(data.get('tool_input'))}", "cyan")
            case "step":
                self._step(data)
            case "interrupt":
                self._line("(the run waits for a person)", "yellow")
            case "finish":
                self._finish(data)
            case "error":
                self._line(f"error: {data.get('message')} ({data.get('code')})", "red")
            case "end":
                self._end(data)
            case _:
                pass

    def _output(self, data: dict[str, object]) -> None:
        delta = cast("dict[str, object]", data.get("delta") or {})
        if delta.get("type") not in ("text", "reasoning"):
            return
        if data.get("message_id") != self._message:
            self._break()
            self._message, self._text = str(data.get("message_id")), ""
        text = plain(str(delta.get("text")))
        if delta.get("type") == "text":
            self._text += text
        self._write(text, None if delta.get("type") == "text" else "dim")

    def _step(self, data: dict[str, object]) -> None:
        action = cast("dict[str, object]", data.get("action") or {})
        status = data.get("status")
        mark = "<-" if status == "success" else f"<- {status}:"
        duration = data.get("duration_ms")
        took = f"  ({duration:g} ms)" if isinstance(duration, int | float) else ""
        colour = "green" if status == "success" else "yellow"
        self._line(f"{mark} {action.get('tool')} {_short(data.get('observation'))}{took}", colour)

    def _finish(self, data: dict[str, object]) -> None:
        values = cast("dict[str, object]", data.get("return_values") or {})
        output = values.get("output")
        answer = plain(output if isinstance(output, str) else json.dumps(output, ensure_ascii=False))
        if answer.strip() != self._text.strip():
            self._break()
            self._write(answer, "bold")
        self._break()

    def _end(self, data: dict[str, object]) -> None:
        usage = cast("dict[str, object]", data.get("usage") or {})
        said = ", ".join(
            _count(usage.get(name), word)
            for name, word in (("model_calls", "model call"), ("tool_calls", "tool call"), ("total_tokens", "token"))
        )
        self._line(f"[{data.get('status')}, {data.get('stop_reason')}: {said}; run {data.get('run_id')}]", "dim")

    def _write(self, text: str, style: str | None) -> None:
        if text:
            self._console.out(text, end="", style=style, highlight=False)
            self._console.file.flush()
            self._open_line = not text.endswith("\n")

    def _line(self, text: str, style: str) -> None:
        self._break()
        self._console.out(plain(text), style=style, highlight=False)
        self._text = ""

    def _break(self) -> None:
        if self._open_line:
            self._console.out("")
            self._open_line = False


def _tolerant(out: TextIO) -> None:
    """A terminal without UTF-8 shows `?` instead of failing."""
    if isinstance(out, io.TextIOWrapper):
        with contextlib.suppress(OSError, ValueError):
            out.reconfigure(errors="replace")


def _count(number: object, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
