"""A tool call's chain and attempts, as tables."""

from collections.abc import Mapping
from typing import cast

from app.cli.layout import Column
from app.cli.listing import text_of
from app.cli.screen import Screen
from app.cli.text import one_line, seconds

SHOWN = 200
"""Characters of a detail."""


def show_chain(screen: Screen, step: Mapping[str, object]) -> None:
    """What was decided, from the intent to the recorded state, then what was sent; nothing where there is none of it."""
    chain = cast("list[dict[str, object]]", step.get("chain") or [])
    if chain:
        columns = (
            Column("STAGE"),
            Column("VERDICT"),
            Column("AT (UTC)", 2, style="dim"),
            Column("DETAIL", 1, cut=True),
        )
        rows = [
            [
                text_of(item, "stage"),
                text_of(item, "verdict"),
                _instant(item.get("at")),
                one_line(item.get("detail"), SHOWN),
            ]
            for item in chain
        ]
        screen.line()
        screen.table(columns, rows)
    attempts = cast("list[dict[str, object]]", step.get("attempts") or [])
    if attempts:
        columns = (
            Column("ATTEMPT"),
            Column("OUTCOME"),
            Column("HTTP", 1),
            Column("TOOK", 2),
            Column("AT (UTC)", 3, style="dim"),
        )
        rows = [
            [
                text_of(item, "attempt"),
                text_of(item, "outcome"),
                text_of(item, "http_status"),
                seconds(item.get("duration_ms")),
                _instant(item.get("at")),
            ]
            for item in attempts
        ]
        screen.line()
        screen.table(columns, rows)


def _instant(value: object) -> str:
    return value[:23].replace("T", " ") if isinstance(value, str) else ""
