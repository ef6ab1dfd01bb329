"""The authority over calls: may this caller make this call now. Operator's stop, then scopes, then the policy."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

from app.core.principal import CurrentScopes, Principal
from app.core.values import immutable
from app.tools.compiled import CompiledTool
from app.tools.policy import Policy
from app.tools.policy_api import PolicyRequest

ACTS = "runs:write"
"""The scope that making a run needs, which its caller must not have lost while its calls go on."""


@immutable
class Ruling:
    """What the authority says. `code` and `told` are set on a denial: the step's code, and what the model reads."""

    verdict: str = "ok"
    """For the chain: `ok` or `denied`."""
    detail: str | None = None
    """For the chain, not for the model."""
    code: str = ""
    told: str = ""
    ask: bool = False
    """The policy wants a person to decide."""
    why: str = ""
    """Why it does, in its own words, for that person."""


_OK = Ruling()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call as far as the authority looks at it."""

    tool: CompiledTool
    tool_call_id: str
    arguments: Mapping[str, object]
    """As they will be sent."""
    principal: Principal
    """As pinned with the run."""
    run_id: str | None
    thread_id: str | None
    agent: str | None
    context: Mapping[str, object]


class Authority:
    """One for the server. Asked before a call is first sent, after a restart again; before each repetition `scopes` only."""

    def __init__(
        self,
        *,
        current_scopes: CurrentScopes | None = None,
        policy: Policy | None = None,
        tools_disabled: bool = False,
    ) -> None:
        """`current_scopes`: what callers hold now; `None`: what was pinned with the run is all there is to know."""
        self._current_scopes = current_scopes
        self._policy = policy
        self._tools_disabled = tools_disabled

    async def rule(self, call: Call) -> Ruling:
        """Everything that is asked before a call is sent. Raises only cancellation and `Unavailable`."""
        ruling = await self.scopes(call.tool, call.principal)
        if ruling.code or self._policy is None:
            return ruling
        return await self._by_policy(self._policy, call)

    async def scopes(self, tool: CompiledTool, principal: Principal) -> Ruling:
        """The part that may change between two attempts. A scope must be held both by the run and by its caller now."""
        if self._tools_disabled:
            return _denied("tool_disabled", "switched off by the setting RUNWIRE_TOOLS_DISABLED", _SWITCHED_OFF)
        for scope in tool.scopes:
            if not principal.may(scope):
                return _missing(scope)
        if self._current_scopes is None:
            return _OK
        held = await self._current_scopes(principal.tenant, principal.subject)
        now = Principal(principal.tenant, principal.subject, held)
        for scope in (ACTS, *tool.scopes):
            if not now.may(scope):
                return _missing(scope, " now")
        return _OK

    def close(self) -> None:
        """Let the policy's threads go."""
        if self._policy is not None:
            self._policy.close()

    async def _by_policy(self, policy: Policy, call: Call) -> Ruling:
        ruling = await policy.ask(lambda: _request(call))
        said = f"policy {policy.name}" + (f": {ruling.reason}" if ruling.reason else "")
        if ruling.verdict == "allow":
            return Ruling(detail=said)
        if ruling.verdict == "ask":
            return Ruling(detail=said, ask=True, why=ruling.reason)
        if ruling.verdict == "failed":
            return _denied("policy_failed", said, "it could not be decided whether that is allowed.")
        return _denied("policy_denied", said, f"that is not allowed{f': {ruling.reason}' if ruling.reason else '.'}")


DEFAULT = Authority()
"""Without a policy: the run's own scopes."""

_SWITCHED_OFF = "it is switched off for now. Go on without it."


def _missing(scope: str, when: str = "") -> Ruling:
    return _denied("missing_scope", f"missing scope {scope}{when}", "the caller is not allowed to use it.")


def _denied(code: str, detail: str, told: str) -> Ruling:
    return Ruling("denied", detail, code, told)


def _request(call: Call) -> PolicyRequest:
    """Copies of what may be changed: what was allowed is what is sent."""
    return PolicyRequest(
        tool=call.tool.name,
        effect=call.tool.effect,
        arguments=copy.deepcopy(dict(call.arguments)),
        principal=call.principal,
        run_id=call.run_id,
        thread_id=call.thread_id,
        tool_call_id=call.tool_call_id,
        agent=call.agent,
        context=copy.deepcopy(dict(call.context)),
    )
