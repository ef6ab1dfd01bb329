"""Stop words end a text wherever it is cut into pieces."""

import re

from hypothesis import given
from hypothesis import strategies as st

from app.agent.stop_words import StopCut

words = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3)
pieces = st.lists(st.text("abc\n", max_size=6), max_size=8)


def read(stop: list[str], given: list[str]) -> tuple[str, bool]:
    cut = StopCut(stop)
    return "".join([cut.feed(piece) for piece in given] + [cut.rest()]), cut.cut


@given(words, pieces)
def test_any_fragmentation_ends_at_the_first_stop_word(stop: list[str], given: list[str]) -> None:
    text = "".join(given)
    found = re.search("|".join(map(re.escape, stop)), text) if stop else None
    assert read(stop, given) == (text if found is None else text[: found.start()], found is not None)


@given(words, pieces)
def test_what_was_given_is_never_taken_back(stop: list[str], given: list[str]) -> None:
    cut = StopCut(stop)
    told = ""
    for piece in given:
        told += cut.feed(piece)
        assert read(stop, given)[0].startswith(told)


def test_a_beginning_of_a_stop_word_is_held_back_until_it_is_certain() -> None:
    cut = StopCut(["\nObservation:"])
    assert cut.feed("It rains\nObs") == "It rains"
    assert cut.feed("erved") == "\nObserved"
    assert cut.feed("\nObservation") == ""
    assert cut.feed(": sunny") == ""
    assert cut.cut
    assert cut.rest() == ""
