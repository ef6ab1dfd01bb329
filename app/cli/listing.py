"""Lists and single things of a server: as a table or fields for people, as JSON for programs."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

from app.cli.layout import Column
from app.cli.session import Session

Row = Callable[[Mapping[str, object]], Sequence[str]]


class Said(Protocol):
    """A value of the client, with what the server said as it came."""

    @property
    def data(self) -> dict[str, object]: ...


def as_said(value: Said | Mapping[str, object]) -> dict[str, object]:
    """The JSON object that the server sent."""
    return dict(value) if isinstance(value, Mapping) else value.data


async def show_list(
    session: Session,
    items: AsyncIterator[Said] | AsyncIterator[Mapping[str, object]],
    columns: Sequence[Column],
    row: Row,
    *,
    limit: int | None,
    what: str,
) -> None:
    """At most `limit` of the items: a table once all are here, or one JSON object a line as they come."""
    rows: list[Sequence[str]] = []
    count, more = 0, False
    async for item in items:
        if count == limit:
            more = True
            break
        count += 1
        if session.screen.as_json:
            session.screen.json_line(as_said(item))
        else:
            rows.append(row(as_said(item)))
    if session.screen.as_json:
        return
    if rows:
        session.screen.table(columns, rows)
    elif session.screen.terminal:
        session.screen.line(f"(no {what})", "dim")
    if more and session.screen.terminal:
        session.screen.line(f"(there are more: --limit, --all; these are {count})", "dim")


def text_of(data: Mapping[str, object], name: str) -> str:
    """A field as text; empty where there is none."""
    value: object = data.get(name)
    return value if isinstance(value, str) else "" if value is None else str(value)


def time_of(value: object) -> str:
    """`2026-01-31 12:00:00` (UTC) of an RFC 3339 time."""
    return value[:19].replace("T", " ") if isinstance(value, str) else ""
