"""How a table is laid out in a width: columns go by priority, and what must stay whole is never cut."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

GAP = 2
NARROW = 8
"""The least a column that may be cut is cut to."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    priority: int = 0
    """Columns of the highest number go first when there is no room; those of 0 stay."""
    cut: bool = False
    """May be shortened: prose. Ids, names and numbers are whole or not there."""
    style: str | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    shown: tuple[int, ...]
    """The columns that are shown, by their place."""
    widths: tuple[int, ...]
    """Cells of each of these."""
    stacked: bool = False
    """Not even the columns that must stay fit beside each other: a record takes several lines."""


def lay_out(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None, cells: Callable[[str], int]
) -> Layout:
    """The layout of `rows` in `width` cells (`None`: no limit, nothing is dropped or cut). `cells`: how wide a text is."""
    needs = [max([cells(column.name), *(cells(row[at]) for row in rows)]) for at, column in enumerate(columns)]
    shown = list(range(len(columns)))
    if width is None:
        return Layout(tuple(shown), tuple(needs))
    while True:
        least = sum(_least(columns[at], needs[at]) for at in shown) + GAP * (len(shown) - 1)
        if least <= width:
            break
        last = max(shown, key=lambda at: (columns[at].priority, at))
        if columns[last].priority == 0 or len(shown) == 1:
            return Layout(tuple(range(len(columns))), tuple(needs), stacked=True)
        shown.remove(last)
    room = width - least
    widths: list[int] = []
    for at in shown:
        low = _least(columns[at], needs[at])
        more = min(room, needs[at] - low)
        widths.append(low + more)
        room -= more
    return Layout(tuple(shown), tuple(widths))


def _least(column: Column, need: int) -> int:
    return min(need, NARROW) if column.cut else need
