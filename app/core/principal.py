"""Who is calling: the tenant and subject that every call, row and tool request carries."""

from typing import Protocol

from app.core.values import immutable

SCOPES = frozenset({
    "runs:read", "runs:write", "tools:read", "tools:write", "agents:write", "threads:write", "admin",
})  # fmt: skip
"""The server's own scopes (contract, section 1). A team adds its own names for its tools."""


@immutable
class Principal:
    tenant: str
    subject: str
    """Which caller of the tenant: the id of the API key, never the key."""
    scopes: frozenset[str] | None = None
    """`None` = every scope (a key that was given none has all)."""

    def may(self, scope: str) -> bool:
        return self.scopes is None or scope in self.scopes or "admin" in self.scopes


class CurrentScopes(Protocol):
    """What a caller may do now, whatever it might when its run was made (`app.auth`)."""

    async def __call__(self, tenant: str, subject: str, /) -> frozenset[str] | None:
        """`None` = every scope. A subject that no longer exists has none: the empty set."""
        ...


class Authenticator(Protocol):
    """Who a presented key stands for (`app.auth`)."""

    @property
    def anonymous(self) -> Principal | None:
        """Who everybody is on a server without keys, which listens on loopback only; `None` when a key is needed."""
        ...

    def find(self, key: str) -> Principal | None: ...
