"""What tools need from storage beside their registry: switches that stop calls, and the secrets that calls are signed with."""

from collections.abc import Sequence
from typing import Protocol

from app.core.clock import rfc3339
from app.core.idempotency import IdempotencyKey
from app.core.values import immutable

ALL_TOOLS = ""
"""The name under which a switch stops every tool of a tenant. No tool has it."""


@immutable
class Switch:
    """A tool, or all of a tenant's, was switched off. Times are milliseconds since the epoch."""

    name: str
    reason: str
    disabled_by: str
    """The principal's subject."""
    disabled_at: int
    lifted_by: str | None = None
    lifted_at: int | None = None
    """`None`: it is in force."""

    def said(self) -> str:
        """For the chain of a call that it stopped: what, who, when and why."""
        what = "all tools were" if self.name == ALL_TOOLS else "the tool was"
        why = f": {self.reason}" if self.reason else ""
        return f"{what} switched off by {self.disabled_by} at {rfc3339(self.disabled_at)}{why}"


class SwitchStore(Protocol):
    """Switches by tenant and tool name (`ALL_TOOLS`: every tool). At most one of a name is in force."""

    async def disable(self, tenant: str, name: str, reason: str, subject: str) -> Switch:
        """In force when it returns: no dispatch is recorded after that. Another reason replaces the old switch."""
        ...

    async def lift(self, tenant: str, name: str, subject: str) -> bool:
        """False when none was in force."""
        ...

    async def stopping(self, tenant: str, name: str) -> Switch | None:
        """The switch that stops a tool's calls: the tenant's own for all tools, or the tool's."""
        ...

    async def in_force(self, tenant: str) -> Sequence[Switch]:
        """All of a tenant."""
        ...

    async def history(self, tenant: str, name: str, *, limit: int) -> Sequence[Switch]:
        """Newest first, lifted ones too."""
        ...


@immutable
class SigningSecret:
    """One of the secrets that a tool's calls are signed with."""

    ref: str
    """Its place in the `SecretStore`."""
    expires_at: int | None
    """Milliseconds since the epoch; `None` for the newest, which does not."""


@immutable
class Rotation:
    """What a rotation made."""

    ref: str | None
    """`None` where it is told again after another rotation: its secret is not the newest any more, and not for showing."""
    old_expires_at: int


class SigningStore(Protocol):
    """Rotated signing secrets. A family is named by the reference that the tool's spec holds, in all its versions."""

    async def secrets_of(self, tenant: str, family: str) -> Sequence[SigningSecret]:
        """Newest first, at most two, none whose time is over; empty when the secret was never rotated."""
        ...

    async def rotate(
        self, tenant: str, family: str, ref: str, idempotency: IdempotencyKey | None
    ) -> tuple[Rotation, bool]:
        """Sign with `ref` from now on, and with the newest one before it for another 24 h; any older one is deleted.

        `True`: a replay of the same key and body, and `ref` is not used. Raises `InvalidRequest` (`idempotency_mismatch`).
        """
        ...

    async def forget(self, tenant: str, family: str) -> None:
        """Delete a family and all its secrets."""
        ...
