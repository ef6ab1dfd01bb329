"""How tables are laid out, and what becomes of text from elsewhere: properties of the pure parts."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from app.cli.layout import GAP, NARROW, Column, lay_out
from app.cli.text import one_line, plain, seconds

COLUMNS = st.lists(
    st.builds(Column, st.text("ABC", min_size=1, max_size=9), st.integers(0, 4), st.booleans()), min_size=1, max_size=6
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[list[str]]]:
    columns = draw(COLUMNS)
    row = st.lists(st.text("xy z", max_size=60), min_size=len(columns), max_size=len(columns))
    return columns, draw(st.lists(row, max_size=5))


@given(tables(), st.integers(1, 200))
def test_a_table_fits_its_width_or_is_stacked(table: tuple[list[Column], list[list[str]]], width: int) -> None:
    columns, rows = table
    layout = lay_out(columns, rows, width, len)
    if not layout.stacked:
        assert sum(layout.widths) + GAP * (len(layout.widths) - 1) <= width


@given(tables(), st.integers(1, 200))
def test_only_prose_is_cut_and_the_least_important_columns_go(
    table: tuple[list[Column], list[list[str]]], width: int
) -> None:
    columns, rows = table
    layout = lay_out(columns, rows, width, len)
    for at, given_width in zip(layout.shown, layout.widths, strict=True):
        need = max(len(columns[at].name), *(len(row[at]) for row in rows), 0)
        assert given_width == need or (columns[at].cut and NARROW <= given_width < need)
    gone = {at for at in range(len(columns)) if at not in layout.shown}
    assert all(columns[at].priority > 0 for at in gone)
    kept = [columns[at].priority for at in layout.shown]
    assert not gone or max(kept) <= min(columns[at].priority for at in gone)


@given(tables())
def test_a_pipe_gets_everything_whole(table: tuple[list[Column], list[list[str]]]) -> None:
    columns, rows = table
    layout = lay_out(columns, rows, None, len)
    assert layout.shown == tuple(range(len(columns)))
    assert all(width >= len(row[at]) for row in rows for at, width in enumerate(layout.widths))


@given(st.text())
def test_no_text_steers_the_terminal(text: str) -> None:
    shown = plain(text)
    assert all(char in "\n\t" or unicodedata.category(char) != "Cc" for char in shown)
    assert not set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068") & set(shown)
    assert plain(shown) == shown


@given(st.text(), st.integers(4, 40))
def test_a_value_on_a_line_is_one_line_of_its_length(text: str, limit: int) -> None:
    shown = one_line(text, limit)
    assert len(shown) <= limit
    assert "\n" not in shown
    assert "\t" not in shown


def test_sequences_are_cut_whole() -> None:
    assert plain("a\x1b[1;31mb\x1b]8;;file:///x\x1b\\c\x1b]0;title\x07d\x9b2Je") == "abcde"
    assert plain("\x1b[") == "["
    assert plain("[red]x[/red]") == "[red]x[/red]"


def test_durations_are_for_people() -> None:
    told = [seconds(given) for given in (None, 0.17, 4.954, 221, 1250, 61_000)]
    assert told == ["", "0.17 ms", "4.95 ms", "221 ms", "1.25 s", "1 min 1 s"]
