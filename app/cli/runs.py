"""The work of `runwire runs`."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from app.cli import exits
from app.cli.chain import show_chain
from app.cli.inputs import split
from app.cli.layout import Column
from app.cli.listing import show_list, text_of, time_of
from app.cli.questions import show_questions
from app.cli.session import Session, say
from app.cli.text import one_line, seconds
from app.client.values import Step

SHOWN = 200
"""Characters of a text in a table."""

RUN_COLUMNS = (
    Column("ID"),
    Column("STATUS"),
    Column("AGENT", 1),
    Column("CREATED (UTC)", 3, style="dim"),
    Column("TOOK", 4, style="dim"),
    Column("INPUT", 2, cut=True),
)
STEP_COLUMNS = (
    Column("STEP"),
    Column("STATUS"),
    Column("TOOL"),
    Column("TOOK", 2, style="dim"),
    Column("INPUT", 1, cut=True),
    Column("OBSERVATION", 3, cut=True),
)


@dataclass(frozen=True, slots=True)
class RunsWanted:
    """Which runs a list shows; `limit` `None`: all."""

    status: str | None
    agent: str | None
    thread_id: str | None
    metadata: tuple[str, ...]
    limit: int | None


async def list_runs(session: Session, wanted: RunsWanted) -> None:
    runs = session.client.runs.iterate(
        status=wanted.status,
        agent=wanted.agent,
        thread_id=wanted.thread_id,
        metadata=dict(split(wanted.metadata, "--metadata")) or None,
    )
    await show_list(session, runs, RUN_COLUMNS, _run_row, limit=wanted.limit, what="runs")


def _run_row(run: Mapping[str, object]) -> list[str]:
    agent = text_of(run, "agent") or "(inline)"
    said = one_line(_asked(run.get("input")), SHOWN)
    return [
        text_of(run, "id"), text_of(run, "status"), agent, time_of(run.get("created_at")), _took(run), said,
    ]  # fmt: skip


def _asked(value: object) -> object:
    """What a person would call the input: the text, or the last message's."""
    if not isinstance(value, dict):
        return value
    given = cast("dict[str, object]", value)
    if isinstance(given.get("input"), str):
        return given["input"]
    messages = given.get("messages")
    if isinstance(messages, list) and messages:
        last = cast("list[object]", messages)[-1]
        return text_of(cast("dict[str, object]", last), "content") if isinstance(last, dict) else given
    return given


def _took(run: Mapping[str, object]) -> str:
    try:
        start, end = (datetime.fromisoformat(str(run[name])) for name in ("started_at", "finished_at"))
    except (KeyError, ValueError):
        return ""
    return seconds((end - start).total_seconds() * 1000)


async def _steps(
    session: Session, run_id: str, tool: str | None = None, status: str | None = None
) -> AsyncIterator[Step]:
    """All steps of a run, page by page."""
    after: str | None = None
    while True:
        page = await session.client.runs.steps(run_id, tool=tool, status=status, limit=100, after=after)
        for step in page.data:
            yield step
        after = page.next_cursor
        if after is None:
            return


async def show_run(session: Session, run_id: str, *, steps: bool) -> None:
    found = await session.client.runs.get(run_id)
    run = found.data
    listed = [step.data async for step in _steps(session, run_id)] if steps else []
    screen = session.screen
    if screen.as_json:
        screen.json({**run, "steps": listed} if steps else run)
        return
    usage = cast("dict[str, object]", run.get("usage") or {})
    output = cast("dict[str, object]", run.get("output") or {})
    error = cast("dict[str, object]", run.get("error") or {})
    screen.fields((
        ("id", run.get("id")),
        ("status", run.get("status")),
        ("stop reason", run.get("stop_reason")),
        ("agent", run.get("agent") or "(inline)"),
        ("thread", run.get("thread_id")),
        ("created", run.get("created_at")),
        ("started", run.get("started_at")),
        ("finished", run.get("finished_at")),
        ("took", _took(run)),
        ("attempt", run.get("attempt") if run.get("attempt") not in (0, 1) else None),
        ("usage", ", ".join(f"{name} {value}" for name, value in usage.items() if value) or None),
        ("metadata", run.get("metadata") or None),
        ("input", run.get("input")),
        ("output", output.get("output", output or None)),
        ("structured", output.get("structured")),
        ("error", f"{error.get('message')} ({error.get('code')})" if error else None),
    ))  # fmt: skip
    if found.interrupts:
        show_questions(session, run_id, found.interrupts)
    if listed:
        screen.line()
        screen.table(STEP_COLUMNS, [_step_row(step) for step in listed])


async def list_steps(session: Session, run_id: str, tool: str | None, status: str | None) -> None:
    await show_list(session, _steps(session, run_id, tool, status), STEP_COLUMNS, _step_row, limit=None, what="steps")


def _step_row(step: Mapping[str, object]) -> list[str]:
    action = cast("dict[str, object]", step.get("action") or {})
    return [
        text_of(step, "step"),
        text_of(step, "status"),
        text_of(action, "tool"),
        seconds(step.get("duration_ms")),
        one_line(action.get("tool_input"), SHOWN),
        one_line(step.get("observation"), SHOWN),
    ]


async def show_step(session: Session, run_id: str, number: int) -> None:
    step = (await session.client.runs.step(run_id, number)).data
    screen = session.screen
    if screen.as_json:
        screen.json(step)
        return
    action = cast("dict[str, object]", step.get("action") or {})
    screen.fields((
        ("step", text_of(step, "step")),
        ("status", step.get("status")),
        ("iteration", text_of(step, "iteration")),
        ("tool", action.get("tool")),
        ("input", action.get("tool_input")),
        ("observation", step.get("observation")),
        ("error", step.get("error")),
        ("started", step.get("started_at")),
        ("took", seconds(step.get("duration_ms"))),
        ("call", step.get("tool_call_id")),
        ("effect", step.get("effect")),
        ("idempotency key", step.get("idempotency_key")),
    ))  # fmt: skip
    show_chain(screen, step)
    if step.get("envelope") is not None:
        screen.line()
        screen.line("envelope", "dim")
        screen.line(json.dumps(step["envelope"], ensure_ascii=False, indent=2))


async def stream_run(session: Session, run_id: str, *, after: int, tail: bool, ask: bool = False) -> int:
    # What draws takes long to load; lists need none of it.
    from app.cli.following import follow_asking
    from app.cli.presses import counted_presses

    if ask:
        from app.cli.asking import check_terminal

        check_terminal()

    async with session.patient() as client, client.runs.follow(run_id, after=after, tail=tail) as stream:
        with counted_presses() as presses:
            return await follow_asking(session, client, stream, presses, ask=ask)


async def cancel_run(session: Session, run_id: str, *, wait: bool) -> int:
    if wait:
        async with session.patient() as client:
            run = await client.runs.cancel(run_id, wait=True)
    else:
        run = await session.client.runs.cancel(run_id)
    if session.screen.as_json:
        session.screen.json(run.data)
    if run.status in ("success", "error"):
        say(f"The run had ended already: {run.status}.")
        return exits.FAILED
    if not session.screen.as_json:
        session.screen.line(f"{'cancelled' if run.status == 'cancelled' else 'cancelling'} {run.id}")
    return exits.SUCCESS
