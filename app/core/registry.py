"""Versioned, named resources of a tenant: what agents and tools have in common in storage."""

from collections.abc import Sequence
from typing import Protocol

from app.core.idempotency import IdempotencyKey
from app.core.values import immutable


@immutable
class Versioned:
    """One version of a named resource. Versions start at 1, never change, and stay readable after a delete."""

    tenant: str
    name: str
    version: int
    spec: dict[str, object]
    """The checked spec as JSON. Secrets are references (`{"secret_ref": id}`), never values."""
    created_at: int
    """Milliseconds since the epoch, of this version."""


class Registry(Protocol):
    """A store of named specs. Another tenant's names are absent. Names are free again after a delete."""

    async def create(
        self, tenant: str, name: str, spec: dict[str, object], idempotency: IdempotencyKey | None
    ) -> tuple[Versioned, int | None]:
        """Version 1 (or the next one, where the name was deleted before).

        A replay of the same key and body gives the newest version, and the number of the one that the key made.
        Raises `Conflict` with code `<kind>_exists`, `InvalidRequest` (`idempotency_mismatch`).
        """
        ...

    async def put(self, tenant: str, name: str, spec: dict[str, object]) -> tuple[Versioned, bool]:
        """A new version; `True` when the name was new."""
        ...

    async def get(self, tenant: str, name: str) -> Versioned | None:
        """The newest version; `None` when unknown or deleted."""
        ...

    async def version(self, tenant: str, name: str, version: int) -> Versioned | None:
        """One version, also of a deleted name."""
        ...

    async def page(self, tenant: str, *, after: str | None, limit: int) -> Sequence[Versioned]:
        """Newest versions of the names not deleted, in name order, names greater than `after`."""
        ...

    async def delete(self, tenant: str, name: str) -> bool:
        """False when unknown."""
        ...

    async def names_in_use(self) -> Sequence[str]:
        """The names not deleted of all tenants, each once: for the operator, not for callers."""
        ...


class SecretStore(Protocol):
    """One encrypted table of secrets; everything else holds references."""

    async def put(self, tenant: str, value: str) -> str:
        """Encrypt and keep; the reference to it (a UUIDv7)."""
        ...

    async def get(self, tenant: str, ref: str) -> str | None:
        """Decrypt. `None` when unknown or another tenant's. Raises `Unavailable` (`secret_unreadable`) under another key."""
        ...

    async def delete(self, tenant: str, ref: str) -> None: ...
