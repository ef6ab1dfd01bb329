"""Idempotency keys: the same POST twice gives the same resource once."""

import hashlib

from app.core.values import immutable

KEPT_MS = 24 * 3600 * 1000
"""How long a key is remembered (contract, section 1)."""


@immutable
class IdempotencyKey:
    """The scope of a key: tenant + route + key. `body_sha256` tells a repeat from a mistake."""

    tenant: str
    route: str
    key: str
    body_sha256: str

    @classmethod
    def of(cls, tenant: str, route: str, key: str, body: bytes) -> "IdempotencyKey":
        return cls(tenant, route, key, hashlib.sha256(body).hexdigest())
