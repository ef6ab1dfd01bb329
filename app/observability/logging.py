"""Logs: one JSON object a line on stderr, text for a terminal. Values cannot forge a line; secrets are cut out first."""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import cast

import structlog

from app.core.json import encode_text

_SECRET = re.compile(
    r"(?i)(bearer\s+|whsec_|rw_|sk-)[a-z0-9._~+/=-]{6,}|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
)
_SECRET_KEYS = re.compile(r"(?i)authorization|api[-_]?key|secret|token|password")

Event = MutableMapping[str, object]


def configure(level: str = "info") -> None:
    """Send structlog's and the standard library's records through one redacting chain."""
    terminal = sys.stderr.isatty()
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact,
    ]
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(serializer=_serialize)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            foreign_pre_chain=shared,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("httpx", "httpcore", "sse_starlette", "asyncio", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_not_an_aborted_stream)


def redact(_logger: object, _method: str, event: Event) -> Event:
    """Cut secrets out of every value, before any sink sees it."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = "[redacted]" if _SECRET_KEYS.search(key) else _SECRET.sub("[redacted]", value)
    return event


def _serialize(event: object, **_options: object) -> str:
    return encode_text({key: _plain(value) for key, value in cast("dict[str, object]", event).items()})


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _not_an_aborted_stream(record: logging.LogRecord) -> bool:
    """An aborted event stream is on purpose (shutdown, a reader that stalled); uvicorn would report it as a fault."""
    return "without completing response" not in record.getMessage()
