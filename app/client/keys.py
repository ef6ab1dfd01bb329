"""Idempotency keys of requests: the caller's own, or a new one for each call."""

import uuid_utils


def idempotency_key(given: str | None) -> str:
    """A caller's key, or a new UUIDv7. Raises `ValueError` for what cannot be a header."""
    if given is None:
        return str(uuid_utils.uuid7())
    if not 1 <= len(given) <= 255 or not given.isascii() or not given.isprintable() or given != given.strip():
        raise ValueError("An idempotency key has 1 to 255 printable ASCII characters, without spaces around them.")
    return given
