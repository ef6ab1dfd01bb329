"""How a run's events are shown: as they are for programs, or as text for people."""

import json
from typing import Protocol, cast

from app.cli.progress import Progress, progress_on
from app.cli.screen import Screen
from app.cli.text import one_line, plain, seconds
from app.client.values import Event

SHOWN = 400
"""Characters of a tool's input or observation on its line."""


class View(Protocol):
    def show(self, event: Event) -> None:
        """One event. Raises `BrokenPipeError` when nobody reads any more."""
        ...

    def close(self) -> None:
        """Nothing more comes: leave the terminal as it was."""
        ...


class JsonView:
    """One line of JSON an event: `{"id","event","data"}`."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def show(self, event: Event) -> None:
        self._screen.event(event.id, event.event, event.raw)

    def close(self) -> None: ...


class TextView:
    """The answer as it comes, a line an action and a step, and a closing line."""

    def __init__(self, screen: Screen, progress: Progress | None = None) -> None:
        self._screen = screen
        self._progress = progress or progress_on(screen)
        arrows = screen.terminal and screen.unicode
        self._call, self._done, self._failed = ("→", "✓", "✗") if arrows else ("->", "<-", "<-")
        self._message = ""
        """The model answer that is on the screen, whole or in part."""
        self._text = ""
        self._open_line = False

    def show(self, event: Event) -> None:
        data = cast("dict[str, object]", event.data)
        match event.event:
            case "run":
                self._run(data)
            case "output":
                self._output(data)
            case "action":
                self._action(data)
            case "progress":
                self._reported(data)
            case "step":
                self._step(data)
            case "interrupt":
                self._interrupt(data)
            case "finish":
                self._finish(data)
            case "error":
                self._line(f"error: {data.get('message')} ({data.get('code')})", "red")
            case "end":
                self._end(data)
            case _:
                pass
        if event.event != "end" and not self._open_line:
            self._progress.draw()

    def close(self) -> None:
        self._progress.clear()
        self._break()

    def _run(self, data: dict[str, object]) -> None:
        if data.get("attempt") not in (None, 1):
            self._line(f"(taken up again, attempt {data['attempt']})", "dim")
        elif self._screen.terminal and data.get("status") == "running" and data.get("run_id") and not self._text:
            self._line(f"run {data['run_id']}", "dim")

    def _output(self, data: dict[str, object]) -> None:
        delta = _object(data.get("delta"))
        if delta.get("type") not in ("text", "reasoning"):
            return
        if data.get("message_id") != self._message:
            self._break()
            self._message, self._text = str(data.get("message_id")), ""
        text = plain(str(delta.get("text")))
        if delta.get("type") == "text":
            self._text += text
        self._write(text, None if delta.get("type") == "text" else "dim")

    def _action(self, data: dict[str, object]) -> None:
        tool = one_line(data.get("tool"), 64)
        self._progress.begin(str(data.get("tool_call_id")), tool)
        self._line(f"{self._call} {tool} {_short(data.get('tool_input'))}", "cyan")

    def _reported(self, data: dict[str, object]) -> None:
        done = data.get("progress")
        share = f"{done:.0%}" if isinstance(done, int | float) else ""
        said = " ".join(part for part in (share, one_line(data.get("message"), 60)) if part)
        self._progress.report(str(data.get("tool_call_id")), said)

    def _step(self, data: dict[str, object]) -> None:
        action = _object(data.get("action"))
        self._progress.end(str(data.get("tool_call_id") or action.get("tool_call_id")))
        status = data.get("status")
        mark = self._done if status == "success" else f"{self._failed} {status}:"
        took = seconds(data.get("duration_ms"))
        text = f"{mark} {one_line(action.get('tool'), 64)} {_short(data.get('observation'))}"
        self._line(f"{text}  ({took})" if took else text, "green" if status == "success" else "yellow")

    def _interrupt(self, data: dict[str, object]) -> None:
        self._line("(the run waits for a person)", "yellow")
        for item in cast("list[object]", data.get("interrupts") or []):
            asked = _object(item)
            said = one_line(asked.get("message"), SHOWN)
            self._line(f"  {asked.get('reason')} {one_line(asked.get('tool'), 64)} {said}".rstrip(), "yellow")

    def _finish(self, data: dict[str, object]) -> None:
        output = _object(data.get("return_values")).get("output")
        answer = plain(output if isinstance(output, str) else json.dumps(output, ensure_ascii=False))
        if answer.strip() != self._text.strip():
            self._break()
            self._write(answer, "bold")
        self._break()

    def _end(self, data: dict[str, object]) -> None:
        usage = _object(data.get("usage"))
        said = ", ".join(
            _count(usage.get(name), word)
            for name, word in (("model_calls", "model call"), ("tool_calls", "tool call"), ("total_tokens", "token"))
        )
        self._progress.clear()
        self._line(f"[{data.get('status')}, {data.get('stop_reason')}: {said}; run {data.get('run_id')}]", "dim")

    def _write(self, text: str, style: str | None) -> None:
        if text:
            self._progress.clear()
            self._screen.console.out(text, end="", style=style, highlight=False)
            self._screen.out.flush()
            self._open_line = not text.endswith("\n")

    def _line(self, text: str, style: str) -> None:
        self._break()
        self._screen.line(text, style)
        self._screen.out.flush()
        self._text = ""

    def _break(self) -> None:
        if self._open_line:
            self._screen.line()
            self._open_line = False


def view_on(screen: Screen) -> View:
    return JsonView(screen) if screen.as_json else TextView(screen)


def _object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _count(number: object, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number or 0} {word}s"


def _short(value: object) -> str:
    return one_line(value, SHOWN)
