"""Labels: a resource's metadata as rows that a filter can find."""

import hashlib
from collections.abc import Mapping

from app.storage.rows import text

_MAX_LABEL = 255
"""Longest metadata key or value kept as it is in the filter's index (Postgres takes 2,700 bytes in all); longer ones by hash."""


def labels(metadata: Mapping[str, object]) -> list[tuple[str, str]]:
    """(key, value) of each, as a filter writes them, in order."""
    return sorted({(label(name), label(_plain(value))) for name, value in metadata.items()})


def label(value: str, most: int = _MAX_LABEL) -> str:
    """`value`, or a hash of it where it has more than `most` characters."""
    return value if len(value) <= most else "sha256:" + hashlib.sha256(value.encode()).hexdigest()


def _plain(value: object) -> str:
    """A metadata value as a filter writes it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else text(value)
