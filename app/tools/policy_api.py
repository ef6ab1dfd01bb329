"""The policy author's words: `tool_policy` and `PolicyRequest`. Re-exported by the public module `runwire`.

@tool_policy("office_hours")
def office_hours(request: PolicyRequest) -> PolicyAnswer:
    if request.effect == "write" and request.principal.subject not in CLERKS:
        return "deny", "only clerks may write"
    return "allow"
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from app.core.plugins import Plugin
from app.core.principal import Principal
from app.tools.plugin_api import Effect

PolicyVerdict = Literal["allow", "deny", "ask"]
"""`ask`: a person decides."""

PolicyAnswer = PolicyVerdict | tuple[PolicyVerdict, str]
"""The verdict, alone or with a reason. The reason is kept with the step, and the model reads why it was denied."""


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """A call that fits its schema and that its caller's scopes allow, before it is sent."""

    tool: str
    effect: Effect
    arguments: Mapping[str, object]
    """As they will be sent, constants included; a copy."""
    principal: Principal
    """Who the run acts for; the only identity to trust."""
    run_id: str | None
    """`None` when the tool is invoked outside a run."""
    thread_id: str | None
    tool_call_id: str
    agent: str | None
    """The registered agent's name; `None` for an inline one."""
    context: Mapping[str, object]
    """The run's `context`, as its caller gave it: never identity. A copy."""


PolicyFunction = Callable[[PolicyRequest], PolicyAnswer | Awaitable[PolicyAnswer]]


@dataclass(frozen=True, slots=True)
class ToolPolicy(Plugin):
    """`RUNWIRE_TOOL_POLICY=NAME`."""

    function: PolicyFunction
    name: str

    def __call__(self, request: PolicyRequest) -> PolicyAnswer | Awaitable[PolicyAnswer]:
        return self.function(request)


def tool_policy(name: str) -> Callable[[PolicyFunction], ToolPolicy]:
    """A function, async or not, that is asked about every tool call of the server.

    A synchronous one runs in a thread. What raises, answers anything else or takes over 10 s denies the call.
    """
    return lambda function: ToolPolicy(function, name)
