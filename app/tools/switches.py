"""The kill switch: a tool, or every tool of a tenant, is switched off and on again, at once and for all replicas."""

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from app.core.clock import rfc3339
from app.core.errors import NotFound
from app.core.principal import Principal
from app.core.registry import Registry
from app.tools.port import ALL_TOOLS, Switch, SwitchStore

HISTORY = 50
"""Switches of one name that are shown, newest first."""

BY_SETTING = "RUNWIRE_TOOLS_DISABLED"


class SwitchBody(BaseModel):
    """The body of `PUT /tools/{name}/disabled` and `PUT /tool-calls/disabled`."""

    model_config = ConfigDict(extra="forbid", strict=True)
    disabled: bool
    """`false` lifts the switch."""
    reason: Annotated[str, Field(max_length=500)] = ""
    """Kept with the switch, and in the chain of each call that it stops. The model does not read it."""


class SwitchService:
    """Use cases of the switches. Calls under way are not cut; the next dispatch is denied."""

    def __init__(
        self,
        store: SwitchStore,
        registry: Registry,
        is_plugin: Callable[[str], bool],
        *,
        all_disabled: bool = False,
    ) -> None:
        """`all_disabled`: the operator's setting stops all calls of this server."""
        self._store = store
        self._registry = registry
        self._is_plugin = is_plugin
        self._all_disabled = all_disabled

    async def set(self, principal: Principal, name: str, body: SwitchBody) -> dict[str, object]:
        """`name`: a tool's, or `ALL_TOOLS`. What `state` says afterwards.

        Raises `NotFound` (`tool_not_found`): a switch for a misspelt name would stop nothing.
        """
        if body.disabled:
            await self._must_be_known(principal.tenant, name)
            await self._store.disable(principal.tenant, name, body.reason, principal.subject)
        else:
            await self.lift(principal, name)
        return await self.state(principal, name)

    async def lift(self, principal: Principal, name: str) -> None:
        """Nothing happens where there is no switch in force. Raises `NotFound` (`tool_not_found`)."""
        if not await self._store.lift(principal.tenant, name, principal.subject):
            await self._must_be_known(principal.tenant, name)

    async def state(self, principal: Principal, name: str) -> dict[str, object]:
        """Whether calls are stopped under this name, by whom, and who did so before. Raises `NotFound`."""
        history = await self._store.history(principal.tenant, name, limit=HISTORY)
        if not history:
            await self._must_be_known(principal.tenant, name)
        own = next((switch for switch in history if switch.lifted_at is None), None)
        by_setting = self._all_disabled and name == ALL_TOOLS and own is None
        return {
            "disabled": own is not None or by_setting,
            "reason": None if own is None else own.reason,
            "by": BY_SETTING if by_setting else None if own is None else own.disabled_by,
            "at": None if own is None else rfc3339(own.disabled_at),
            "history": [switch_json(switch) for switch in history],
        }

    async def _must_be_known(self, tenant: str, name: str) -> None:
        if name == ALL_TOOLS or self._is_plugin(name) or await self._registry.get(tenant, name) is not None:
            return
        raise NotFound(f"There is no tool named {name[:64]!r}.", code="tool_not_found")


def switch_json(switch: Switch) -> dict[str, object]:
    return {
        "reason": switch.reason,
        "disabled_by": switch.disabled_by,
        "disabled_at": rfc3339(switch.disabled_at),
        "lifted_by": switch.lifted_by,
        "lifted_at": None if switch.lifted_at is None else rfc3339(switch.lifted_at),
    }


def stop_json(switch: Switch | None) -> dict[str, object] | None:
    """What stops a tool's calls, as its JSON shows it; `None`: nothing."""
    if switch is None:
        return None
    return {
        "all_tools": switch.name == ALL_TOOLS,
        "reason": switch.reason,
        "by": switch.disabled_by,
        "at": rfc3339(switch.disabled_at),
    }
