"""Logs: one JSON object a line on stderr, or text for a terminal. Text cannot forge a line; secrets are cut out first.

Every record, ours and the libraries', goes the same way: redacted, rendered on one line, written. Nothing that goes wrong
on that way reaches the code that logs.
"""

import contextlib
import json
import logging
import re
import sys
from collections.abc import Iterable, MutableMapping
from typing import Literal, TextIO

import structlog

from app.core.json import encode_text
from app.observability.redaction import Redactor

Event = MutableMapping[str, object]

QUIET = ("httpx", "httpcore", "sse_starlette", "asyncio", "uvicorn.access")
"""Libraries that tell what they do at `info`."""

_FORGING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]|\n|\t")
"""What could end a line, move a terminal's cursor or turn its text around."""


def configure(
    level: str = "info",
    form: Literal["auto", "json", "text"] = "auto",
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Send structlog's and the standard library's records through one redacting chain to `stream` (stderr).

    `secrets`: values that must never be written, wherever they turn up.
    """
    sink: TextIO = sys.stderr if stream is None else stream
    text = form == "text" or (form == "auto" and sink.isatty())
    own: list[structlog.types.Processor] = [structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name]
    structlog.configure(
        # The rest is done by the handler, where an exception stays.
        processors=[
            structlog.contextvars.merge_contextvars,
            *own,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = _Handler(sink)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,  # frames and texts; never the values of local variables
                _Redaction(Redactor(secrets)),
                _as_text if text else _as_json,
            ],
            foreign_pre_chain=[structlog.contextvars.merge_contextvars, *own],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    for noisy in QUIET:
        logging.getLogger(noisy).setLevel(logging.WARNING)
    uvicorn = logging.getLogger("uvicorn.error")
    if _not_an_aborted_stream not in uvicorn.filters:
        uvicorn.addFilter(_not_an_aborted_stream)


OURS = frozenset(("timestamp", "level", "logger"))
"""Fields that no caller has a say in."""


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # pyright: ignore[reportImplicitOverride]
        """A record that cannot be written is told of without anything of it."""
        with contextlib.suppress(Exception):
            self.stream.write(f'{{"event":"log_record_lost","level":"error","logger":{json.dumps(record.name)}}}\n')


_LOOKS = Redactor()


def redact(_logger: object, _method: str, event: Event) -> Event:
    """A processor: secrets by name and looks are cut out of every field. The log's own also knows the server's."""
    return {name: _LOOKS.value(item, name) for name, item in event.items()}


class _Redaction:
    """A processor: every field without secrets, as plain JSON values."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def __call__(self, _logger: object, _method: str, event: Event) -> Event:
        value = self._redactor.value
        return {name: item if name in OURS else value(item, name) for name, item in event.items()}


def _as_json(_logger: object, _method: str, event: Event) -> str:
    try:
        line = encode_text(event)
    except (TypeError, ValueError):  # a lone surrogate, a number beyond 64 bits
        line = json.dumps(event, default=str)
    return line if line.isascii() and "\x7f" not in line else _escaped(line)


def _as_text(_logger: object, _method: str, event: Event) -> str:
    """`time level logger event name=value …`, and an exception's lines below, set in."""
    time, level, logger = (_escaped(str(event.pop(name, "-"))) for name in ("timestamp", "level", "logger"))
    said = _escaped(str(event.pop("event", "")))
    trace = event.pop("exception", None)
    fields = " ".join(f"{_escaped(name)}={_field(value)}" for name, value in event.items())
    line = f"{time} {level:<8} {logger} {said} {fields}".rstrip()
    if trace is None:
        return line
    return "\n".join((line, *(f"    | {_escaped(part)}" for part in str(trace).split("\n"))))


def _field(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[!#-<>-~]+", value):
        return value
    try:
        return _escaped(encode_text(value))
    except (TypeError, ValueError):
        return json.dumps(value, default=str)


def _escaped(text: str) -> str:
    """`text` on one line, its odd characters as JSON writes them."""
    return _FORGING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _not_an_aborted_stream(record: logging.LogRecord) -> bool:
    """An aborted event stream is on purpose (shutdown, a reader that stalled); uvicorn would report it as a fault."""
    return not (isinstance(record.msg, str) and "without completing response" in record.msg)
