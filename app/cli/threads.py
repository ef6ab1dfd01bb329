"""The work of `runwire threads`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from app.cli.inputs import split
from app.cli.layout import Column
from app.cli.listing import as_said, show_list, text_of, time_of
from app.cli.session import Session
from app.cli.text import one_line

COLUMNS = (Column("ID"), Column("STATUS"), Column("CREATED", 2), Column("METADATA", 3, cut=True))
POINTS = (
    Column("CHECKPOINT"),
    Column("SOURCE"),
    Column("MESSAGES", 2),
    Column("CREATED", 1),
    Column("CHANGED", 3, cut=True),
)
SHOWN = 200


@dataclass(frozen=True, slots=True)
class ThreadsWanted:
    metadata: tuple[str, ...]
    limit: int | None


async def list_threads(session: Session, wanted: ThreadsWanted) -> None:
    labels = dict(split(wanted.metadata, "--metadata"))
    found = session.client.threads.iterate(metadata=labels)
    await show_list(session, found, COLUMNS, _row, limit=wanted.limit, what="threads")


def _row(thread: Mapping[str, object]) -> list[str]:
    labels = _members(thread.get("metadata"))
    return [
        text_of(thread, "id"), text_of(thread, "status"), time_of(thread.get("created_at")),
        ", ".join(f"{name}={one_line(value, SHOWN)}" for name, value in labels.items()),
    ]  # fmt: skip


async def show_thread(session: Session, thread_id: str) -> None:
    _show(session, as_said(await session.client.threads.get(thread_id)))


async def show_state(session: Session, thread_id: str, checkpoint_id: str | None) -> None:
    state = await session.client.threads.state(thread_id, checkpoint_id)
    screen = session.screen
    if screen.as_json:
        screen.json(as_said(state))
        return
    for message in state.messages:
        screen.line(f"{text_of(message, 'role')}: {one_line(_said(message), SHOWN * 5)}")
    fields = [(name, value) for name, value in state.values.items() if name != "messages"]
    if fields:
        screen.fields(fields)


def _said(message: Mapping[str, object]) -> object:
    calls = cast("list[Mapping[str, object]]", message.get("tool_calls") or [])
    asked = ", ".join(text_of(call, "name") for call in calls)
    content = message.get("content")
    return content if not asked else f"{content or ''} (calls {asked})".strip()


async def show_history(session: Session, thread_id: str, limit: int) -> None:
    page = await session.client.threads.history(thread_id, limit=limit)
    if session.screen.as_json:
        for point in page.data:
            session.screen.json_line(as_said(point))
        return
    session.screen.table(POINTS, [_point(as_said(point)) for point in page.data])
    if page.has_more and session.screen.terminal:
        session.screen.line(f"(there are more: --limit; these are {len(page.data)})", "dim")


def _point(point: Mapping[str, object]) -> list[str]:
    return [
        text_of(point, "checkpoint_id"), text_of(point, "source"), text_of(point, "messages"),
        time_of(point.get("created_at")), ", ".join(_members(point.get("update"))),
    ]  # fmt: skip


async def fork_thread(session: Session, thread_id: str, checkpoint_id: str | None) -> None:
    _show(session, as_said(await session.client.threads.fork(thread_id, checkpoint_id)))


def _show(session: Session, thread: Mapping[str, object]) -> None:
    if session.screen.as_json:
        session.screen.json(dict(thread))
        return
    session.screen.fields([
        ("id", thread.get("id")),
        ("status", thread.get("status")),
        ("created", thread.get("created_at")),
        ("active run", thread.get("active_run_id")),
        ("checkpoint", thread.get("checkpoint_id")),
        *((f"metadata.{name}", value) for name, value in _members(thread.get("metadata")).items()),
    ])  # fmt: skip


def _members(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
