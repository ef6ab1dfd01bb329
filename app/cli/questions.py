"""What a run that waits asks, as it is shown to a person: each question, and the commands that answer it."""

import json
from collections.abc import Sequence

from app.cli.session import Session, named_url
from app.cli.text import one_line
from app.client.interrupts import Interrupt

SHOWN = 400
"""Characters of a tool's input."""

FORMS = {
    "approve": "--approve {id}",
    "reject": "--reject {id} --message 'why'",
    "edit": "--edit {id}='JSON of another input'",
    "respond": "--respond {id}='JSON of an output'",
}
"""How each decision is said to `runwire runs resume`."""


def question(asked: Interrupt) -> str:
    """One question on a line: `tool_approval refund {"amount": 5} May refund be called with this input?`"""
    given = "" if asked.tool_input is None else one_line(asked.tool_input, SHOWN)
    said = "" if asked.payload is None else one_line(asked.payload, SHOWN)
    parts = (asked.reason, one_line(asked.tool, 64), given, said, one_line(asked.message, SHOWN))
    return " ".join(part for part in parts if part)


def decisions(asked: Interrupt) -> tuple[str, ...]:
    """What a person may decide; the known ones where the server does not say."""
    return tuple(name for name in FORMS if name in asked.decisions) or tuple(FORMS)


def how_to_answer(session: Session, run_id: str, asked: Sequence[Interrupt]) -> list[str]:
    """The commands that answer, a line each; those for all questions at once first, where there are several."""
    command = f"runwire runs resume {run_id}"
    url = named_url(session)
    lines: list[str] = []
    if len(asked) > 1 and all("approve" in decisions(item) for item in asked):
        lines.append(f"{command} --approve all{url}")
    for item in asked:
        lines += [f"{command} {FORMS[name].format(id=item.id)}{url}" for name in decisions(item)]
    return lines


def show_questions(session: Session, run_id: str, asked: Sequence[Interrupt]) -> None:
    """The questions and their answers, in the output."""
    screen = session.screen
    for item in asked:
        screen.line()
        screen.fields((
            ("interrupt", item.id),
            ("reason", item.reason),
            ("tool", item.tool),
            ("input", None if item.tool_input is None else json.dumps(item.tool_input, ensure_ascii=False)),
            ("payload", None if item.payload is None else json.dumps(item.payload, ensure_ascii=False)),
            ("question", item.message),
            ("expires", item.data.get("expires_at")),
        ))  # fmt: skip
    screen.line()
    screen.line("answer it with one of", "dim")
    for line in how_to_answer(session, run_id, asked):
        screen.line(f"  {line}")
