"""The signature of a callback: Standard Webhooks (https://www.standardwebhooks.com), version `v1`."""

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import overload

from app.core.clock import now_ms
from app.core.errors import Unavailable

PREFIX = "whsec_"
MIN_BYTES, MAX_BYTES = 24, 64
"""Lengths of a secret that the specification allows."""


def new_secret() -> str:
    """A new signing secret: `whsec_` + base64 of 32 random bytes."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """The key behind `whsec_<base64>` (the prefix and the padding may be missing).

    Raises `ValueError`: not base64, or not 24 to 64 bytes.
    """
    text = secret.removeprefix(PREFIX).rstrip("=")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError("must be whsec_ followed by base64") from error
    if not MIN_BYTES <= len(key) <= MAX_BYTES:
        raise ValueError(f"must hold {MIN_BYTES} to {MAX_BYTES} bytes")
    return key


def sign(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """`v1,<base64 HMAC-SHA256 of "id.timestamp.body">`. `timestamp`: whole seconds since the epoch."""
    digest = hmac.digest(key, b"%b.%d.%b" % (message_id.encode(), timestamp, body), hashlib.sha256)
    return "v1," + base64.b64encode(digest).decode()


DatedKeys = Sequence[tuple[bytes, int | None]]
"""Keys, newest first, each with the end of its time (milliseconds since the epoch; `None`: it has none)."""

FRESH_S = 2.0
"""How old the keys may be that a call is signed with, where another replica rotated them. A rotation here is known at once."""


class RotatingKeys(Sequence[bytes]):
    """The keys that a tool's calls are signed with now, newest first. All versions and all runs of a tool share one."""

    __slots__ = ("__weakref__", "_clock", "_keys", "_load", "_loaded")

    def __init__(
        self, keys: DatedKeys, load: Callable[[], Awaitable[DatedKeys]], clock: Callable[[], int] = now_ms
    ) -> None:
        """`load` reads them again; an empty answer means that the tool is gone."""
        self._keys = keys
        self._load = load
        self._clock = clock
        self._loaded = time.monotonic()

    async def refresh(self, older_than_s: float = FRESH_S) -> None:
        """Read them again if they are older. Where the database does not answer, those that are known go on."""
        if time.monotonic() - self._loaded < older_than_s:
            return
        try:
            keys = await self._load()
        except Unavailable:
            return
        self._loaded = time.monotonic()
        if keys:
            self._keys = keys

    def _now(self) -> list[bytes]:
        now = self._clock()
        return [key for key, until in self._keys if until is None or until > now]

    def __len__(self) -> int:
        return len(self._now())

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        return self._now()[index]


def idempotency_key(tenant: str, thread_id: str, tool_call_id: str, operation: str) -> str:
    """SHA-256 (hexadecimal) over the four parts, each with its length before it, so that no two lists collide."""
    digest = hashlib.sha256()
    for part in (tenant, thread_id, tool_call_id, operation):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
