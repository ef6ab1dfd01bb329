"""Asking: a person at a terminal answers a run's questions while it is followed (`--ask`)."""

import asyncio
import json
import sys

from app.cli.inputs import UsageError, read_json
from app.cli.presses import Presses
from app.cli.questions import decisions, question
from app.cli.text import plain
from app.client.client import Client
from app.client.errors import Conflict, InvalidRequest, ProblemError
from app.client.interrupts import Interrupt, Response

LETTERS = {"approve": "y", "reject": "n", "edit": "e", "respond": "r"}
WORDS = {"approve": "[y]es", "reject": "[n]o", "edit": "[e]dit the input", "respond": "[r]espond with an output"}
LATER = "[l]ater"


class Left(Exception):
    """The person leaves the questions for later: `l`, Ctrl-C, or the end of the input."""


def check_terminal() -> None:
    """Raises `UsageError` where nobody can be asked."""
    if not sys.stdin.isatty():
        raise UsageError("--ask needs a person at a terminal; answer by: runwire runs resume ID")


async def ask(client: Client, run_id: str, presses: Presses) -> bool:
    """Ask each question until the run goes on; whether it does. Raises `ClientError`."""
    try:
        while True:
            run = await client.runs.get(run_id)
            if run.status != "interrupted":
                return True
            responses = [await _answer(item, presses) for item in run.interrupts]
            try:
                run = await client.runs.resume(run_id, responses)
            except (Conflict, InvalidRequest) as error:
                _tell(_refusal(error))
    except Left:
        return False


def _refusal(error: ProblemError) -> str:
    return "\n".join([error.detail or str(error), *(f"  {place.pointer}: {place.detail}" for place in error.errors)])


async def _answer(asked: Interrupt, presses: Presses) -> Response:
    open_to = decisions(asked)
    _tell(question(asked))
    while True:
        said = await _read(f"  {', '.join((*(WORDS[name] for name in open_to), LATER))}: ", presses)
        chosen = said.strip().lower()[:1]
        if chosen == "l":
            raise Left
        decision = next((name for name in open_to if LETTERS[name] == chosen), None)
        if decision == "approve":
            return asked.approve()
        if decision == "reject":
            return asked.reject((await _read("  why (may be empty): ", presses)).strip() or None)
        if decision is not None:
            answer = await _with_json(asked, decision, presses)
            if answer is not None:
                return answer


async def _with_json(asked: Interrupt, decision: str, presses: Presses) -> Response | None:
    """An answer that brings JSON; `None` where it is none, so that the question is asked again."""
    if decision == "edit":
        _tell(f"  it is {json.dumps(asked.tool_input, ensure_ascii=False)}")
    text = await _read("  JSON: ", presses)
    try:
        value = read_json(text, "That")
    except UsageError as error:
        _tell(f"  {error}")
        return None
    return Response(asked.id, "edit", tool_input=value) if decision == "edit" else asked.respond(value)


def _tell(text: str) -> None:
    print(plain(text), file=sys.stderr, flush=True)


async def _read(prompt: str, presses: Presses) -> str:
    """A line of the terminal, without a thread that would outlive Ctrl-C. Raises `Left`."""
    print(prompt, end="", file=sys.stderr, flush=True)
    stream = sys.stdin
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def readable() -> None:
        loop.remove_reader(stream)
        if not line.done():
            line.set_result(stream.readline())  # a terminal gives whole lines

    loop.add_reader(stream, readable)
    pressed = asyncio.create_task(presses.first.wait())
    try:
        await asyncio.wait((line, pressed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(stream)
        pressed.cancel()
    text = line.result() if line.done() else ""
    if not text:
        print(file=sys.stderr, flush=True)
        raise Left
    return text
