"""A secret box: AES-256-GCM under the server's key. A ciphertext opens only for the tenant and id it was sealed for."""

import contextlib
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.core.errors import InvalidRequest, Unavailable

MIN_KEY_CHARS = 16
_NONCE_BYTES = 12
"""NIST SP 800-38D: 96-bit nonces. Random ones are safe for 2^32 secrets under one key."""


class SecretBox:
    """`key` is any text of 16 or more characters; the AES key is derived from it with HKDF-SHA256 (RFC 5869)."""

    def __init__(self, key: str) -> None:
        if len(key) < MIN_KEY_CHARS:
            raise InvalidRequest(
                f"RUNWIRE_SECRET_KEY must have at least {MIN_KEY_CHARS} characters.", code="invalid_secret_key"
            )
        self._key = key.encode()
        self._aes = AESGCM(self.derived(b"runwire secrets v1"))

    def derived(self, purpose: bytes) -> bytes:
        """32 bytes for one purpose, from which neither the key nor another purpose's bytes can be told."""
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(self._key)

    def seal(self, tenant: str, secret_id: str, value: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aes.encrypt(nonce, value.encode(), _bound_to(tenant, secret_id))

    def open(self, tenant: str, secret_id: str, sealed: bytes) -> str:
        """Raises `Unavailable` (`secret_unreadable`) under another key, or when the row was changed or moved."""
        try:
            value = self._aes.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _bound_to(tenant, secret_id))
        except (InvalidTag, ValueError) as error:
            raise Unavailable(
                "A stored secret cannot be read with this RUNWIRE_SECRET_KEY; start with the key it was stored under.",
                code="secret_unreadable",
            ) from error
        return value.decode()


def _bound_to(tenant: str, secret_id: str) -> bytes:
    name = tenant.encode()
    return len(name).to_bytes(4, "big") + name + secret_id.encode()


def key_file(path: Path) -> str:
    """The key in a file of mode 0600, which is made at first. Never half-written: it appears under its name complete."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(os.urandom(32).hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    # `link` fails where another process was faster; its key is then the one.
    with contextlib.suppress(FileExistsError):
        os.link(fresh, path)
    fresh.unlink()
    return path.read_text().strip()
