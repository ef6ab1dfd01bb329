"""Ids: UUIDv7 strings, time-ordered, so that newest-first lists and indexes need no other key."""

import re
from collections.abc import Callable

import uuid_utils

NAME_PATTERN = r"^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$"
"""Tools, agents and model aliases are addressed by such a name (contract, section 1)."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

IdFactory = Callable[[], str]


def new_id() -> str:
    """A new UUIDv7 (RFC 9562) in its canonical text form, 36 characters."""
    return str(uuid_utils.uuid7())


def is_id(text: str) -> bool:
    """Whether it has the form of one."""
    return _ID.fullmatch(text) is not None
