"""The work of `runwire calls`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from app.cli.chain import show_chain
from app.cli.layout import Column
from app.cli.listing import show_list, text_of, time_of
from app.cli.session import Session
from app.cli.text import one_line, seconds

SHOWN = 200

COLUMNS = (
    Column("ID"),
    Column("STATUS"),
    Column("TOOL"),
    Column("ASKED (UTC)", 1, style="dim"),
    Column("SUBJECT", 3),
    Column("TOOK", 4, style="dim"),
    Column("INPUT", 2, cut=True),
)


@dataclass(frozen=True, slots=True)
class CallsWanted:
    """Which calls a list shows; `limit` `None`: all."""

    tool: str | None
    outcome: str | None
    run_id: str | None
    thread_id: str | None
    since: datetime | None
    until: datetime | None
    limit: int | None


async def list_calls(session: Session, wanted: CallsWanted) -> None:
    calls = session.client.tool_calls.iterate(
        tool=wanted.tool,
        outcome=wanted.outcome,
        thread_id=wanted.thread_id,
        run_id=wanted.run_id,
        since=_aware(wanted.since),
        until=_aware(wanted.until),
    )
    await show_list(session, calls, COLUMNS, _row, limit=wanted.limit, what="tool calls")


def _aware(at: datetime | None) -> datetime | None:
    """A day without a time zone is one of UTC."""
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at


def _row(call: Mapping[str, object]) -> list[str]:
    return [
        text_of(call, "tool_call_id"),
        text_of(call, "status"),
        text_of(call, "tool"),
        time_of(call.get("asked_at")),
        text_of(_principal(call), "subject"),
        seconds(call.get("duration_ms")),
        one_line(call.get("tool_input"), SHOWN),
    ]


def _principal(call: Mapping[str, object]) -> dict[str, object]:
    return cast("dict[str, object]", call.get("principal") or {})


async def show_call(session: Session, call_id: str) -> None:
    call = await session.client.tool_calls.get(call_id)
    screen = session.screen
    if screen.as_json:
        screen.json(call)
        return
    screen.fields((
        ("call", call.get("tool_call_id")),
        ("status", call.get("status")),
        ("run", call.get("run_id")),
        ("step", text_of(call, "step")),
        ("thread", call.get("thread_id")),
        ("agent", call.get("agent") or "(inline)"),
        ("for", one_line(" ".join(str(item) for item in _principal(call).values()))),
        ("tool", f"{call.get('tool')} (version {call.get('tool_version')}, {call.get('effect')})"),
        ("input", call.get("tool_input")),
        ("input sha256", call.get("arguments_sha256")),
        ("asked", call.get("asked_at")),
        ("answered", call.get("answered_at")),
        ("took", seconds(call.get("duration_ms"))),
        ("observation", call.get("observation")),
        ("error", call.get("error")),
        ("idempotency key", call.get("idempotency_key")),
    ))  # fmt: skip
    show_chain(screen, call)
    if call.get("envelope") is not None:
        screen.line()
        screen.line("envelope", "dim")
        screen.line(json.dumps(call["envelope"], ensure_ascii=False, indent=2))
