"""The signature of a callback: Standard Webhooks (https://www.standardwebhooks.com), version `v1`."""

import base64
import binascii
import hashlib
import hmac
import secrets

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


def idempotency_key(tenant: str, thread_id: str, tool_call_id: str, operation: str) -> str:
    """SHA-256 (hexadecimal) over the four parts, each with its length before it, so that no two lists collide."""
    digest = hashlib.sha256()
    for part in (tenant, thread_id, tool_call_id, operation):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
