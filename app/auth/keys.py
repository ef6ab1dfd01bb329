"""API keys from the settings: which principal a presented key stands for."""

import hashlib
import re
from collections.abc import Iterable

from app.core.principal import Principal

MIN_KEY_LENGTH = 16
DEFAULT_TENANT = "default"
_SCOPE = re.compile(r"^[a-zA-Z0-9_.:-]{1,64}$")


class KeyRing:
    """The configured keys. Only their SHA-256 is kept, which is also what makes the look-up constant-time in the key."""

    def __init__(self, principals: dict[bytes, Principal]) -> None:
        self._principals = principals
        holders = principals.values() if principals else (ANONYMOUS,)
        self._subjects = {(principal.tenant, principal.subject): principal for principal in holders}

    @classmethod
    def parse(cls, text: str) -> "KeyRing":
        """`key:tenant[:scope scope …]`, comma-separated, each split at its first two colons. Raises `ValueError`."""
        principals: dict[bytes, Principal] = {}
        for position, entry in enumerate(_entries(text), 1):
            key, _, rest = entry.partition(":")
            tenant, _, scopes = rest.partition(":")
            if len(key) < MIN_KEY_LENGTH:
                raise ValueError(f"key number {position} is shorter than {MIN_KEY_LENGTH} characters")
            if not key.isascii() or not key.isprintable() or " " in key:
                raise ValueError(f"key number {position} has characters that no header can carry; use visible ASCII")
            if not tenant.strip():
                raise ValueError(f"key number {position} names no tenant; write key:tenant")
            names = scopes.split()
            bad = next((name for name in names if not _SCOPE.match(name)), None)
            if bad is not None:
                raise ValueError(f"key number {position} has a scope that is no name")
            digest = _digest(key)
            if digest in principals:
                raise ValueError(f"key number {position} is given twice")
            subject = "key_" + digest.hex()[:12]
            principals[digest] = Principal(tenant.strip(), subject, frozenset(names) if names else None)
        return cls(principals)

    @property
    def anonymous(self) -> Principal | None:
        """See `Authenticator`."""
        return None if self._principals else ANONYMOUS

    def find(self, key: str) -> Principal | None:
        return self._principals.get(_digest(key))

    async def current_scopes(self, tenant: str, subject: str, /) -> frozenset[str] | None:
        """See `CurrentScopes`."""
        principal = self._subjects.get((tenant, subject))
        return frozenset() if principal is None else principal.scopes


ANONYMOUS = Principal(DEFAULT_TENANT, "anonymous", None)
"""Who calls a server without keys. Such a server listens on loopback only."""


def _entries(text: str) -> Iterable[str]:
    return (entry.strip() for entry in text.split(",") if entry.strip())


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
