"""Log lines: always one record a line, always readable, never a secret, never a failure of the code that logs."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal, cast

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from app.observability.logging import configure

SECRET = "planted-secret-value-1"

HOSTILE = [
    'a\n{"event":"forged","level":"error"}', "a\r\nforged", "a\x1b[31mred\x1b[0m", "a\u2028b\u2029c\x85d", "a\x00b\x7fc\x9bd",
    "\ud800 lone", 'quote " and \\ slash', "\u202eright to left\u2066", "=1 b=2", "\x0b\x0c\x1c\x1d\x1e",
]  # fmt: skip


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    """What is configured is the process's: put it back."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], level = before
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def sink(form: Literal["json", "text"] = "json", level: str = "debug") -> io.StringIO:
    stream = io.StringIO()
    configure(level, form, [SECRET], stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    """Every line, by the rules of all who split lines, as the JSON object that it must be."""
    text = stream.getvalue()
    assert text.count("\n") == len(text.splitlines())
    return [cast("dict[str, object]", json.loads(line)) for line in text.splitlines()]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_in_its_field(text: str) -> None:
    stream = sink()
    structlog.get_logger("test").info(text, field=text, nested={text: [text]})
    logging.getLogger("library").error("said %s", text)
    ours, theirs = lines(stream)
    assert ours["level"] == "info"
    assert theirs["logger"] == "library"
    for line in (ours, theirs):
        assert "forged" not in line
    assert not [char for char in stream.getvalue() if char != "\n" and not char.isprintable()]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_cannot_begin_a_line_in_the_text_format_either(text: str) -> None:
    stream = sink("text")
    structlog.get_logger("test").info(text, field=text)
    try:
        raise ValueError(text)
    except ValueError:
        structlog.get_logger("test").exception("failed")
    said = stream.getvalue()
    first, second, *trace = said.splitlines()
    assert first.split()[1:3] == ["info", "test"]
    assert second.split()[1:4] == ["error", "test", "failed"]
    assert trace
    assert all(line.startswith("    | ") for line in trace)
    assert not [char for char in said if char != "\n" and not char.isprintable()]


@given(
    st.text(),
    st.recursive(
        st.none() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
)
def test_any_text_and_any_value_make_one_json_line(event: str, value: object) -> None:
    stream = sink()
    structlog.get_logger("test").warning(event, value=value)
    (line,) = lines(stream)
    assert line["level"] == "warning"


def test_no_secret_comes_out_of_events_exceptions_or_libraries() -> None:
    for form in ("json", "text"):
        stream = sink(form)
        log = structlog.get_logger("test")
        log.info(f"event {SECRET}", text=SECRET, data=SECRET.encode(), deep=[{"x": (SECRET,)}], api_key="other-planted")
        local = "planted"
        try:
            try:
                raise KeyError(SECRET)
            except KeyError as error:
                raise RuntimeError(f"token={local}-other and {SECRET}") from error
        except RuntimeError:
            log.exception("failed")
            logging.getLogger("library").exception("args %s %r", SECRET, {"password": SECRET})
        logging.getLogger("library").warning("url https://user:planted-userinfo@host/?token=planted-parameter")
        said = stream.getvalue()
        assert "KeyError" in said
        assert "RuntimeError" in said
        assert "planted" not in said


def test_what_breaks_while_it_is_logged_breaks_nothing_else() -> None:
    class Broken:
        def __str__(self) -> str:  # pyright: ignore[reportImplicitOverride]
            raise RuntimeError(SECRET)

        __repr__ = __str__  # pyright: ignore[reportAssignmentType]

    stream = sink()
    structlog.get_logger("test").info("ours", value=Broken())
    logging.getLogger("library").info("theirs %s", Broken())
    logging.getLogger("library").info("wrong %d arguments", "text", SECRET)
    structlog.get_logger("test").info("after")
    ours, *lost, after = lines(stream)
    assert ours["value"] == "<Broken that cannot be shown: RuntimeError>"
    assert [(line["event"], line["logger"]) for line in lost] == [("log_record_lost", "library")] * 2
    assert after["event"] == "after"
    assert SECRET not in stream.getvalue()


def test_a_sink_that_is_gone_breaks_nothing() -> None:
    stream = sink()
    stream.close()
    structlog.get_logger("test").error("nobody reads this")
    logging.getLogger("library").error("nor this")


def test_the_level_holds_for_ours_and_for_libraries() -> None:
    stream = sink(level="warning")
    structlog.get_logger("test").info("quiet")
    logging.getLogger("library").info("quiet")
    structlog.get_logger("test").warning("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_a_line_carries_what_is_bound_and_its_own_word_wins() -> None:
    stream = sink()
    with structlog.contextvars.bound_contextvars(run_id="run", request_id="bound"):
        structlog.get_logger("test").info("x", request_id="own")
        logging.getLogger("library").info("y")
    first, second = lines(stream)
    assert (first["run_id"], first["request_id"]) == ("run", "own")
    assert (second["run_id"], second["request_id"]) == ("run", "bound")


def test_a_warning_of_a_library_goes_the_same_way() -> None:
    import warnings

    stream = sink()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(f"old {SECRET}", stacklevel=1)
    assert [line["logger"] for line in lines(stream)] == ["py.warnings"]
    assert SECRET not in stream.getvalue()
