"""A policy that does what a run's context tells it to, for the tests of policies."""

import asyncio
from typing import cast

from runwire import PolicyAnswer, PolicyRequest, tool_policy

SECRET = "the-policys-own-secret"


@tool_policy("as_told")
async def as_told(request: PolicyRequest) -> PolicyAnswer:
    told = request.context.get("policy")
    if told == "raise":
        raise RuntimeError(SECRET)
    if told == "nonsense":
        return cast("PolicyAnswer", True)
    if told == "tell":
        said = (request.tool, request.effect, dict(request.arguments), request.principal.tenant, request.agent)
        return "deny", repr(said)
    if told == "change":
        cast("dict[str, object]", request.arguments)["text"] = "changed"
        return "allow", "looked at"
    if told == "cancel":
        raise asyncio.CancelledError
    if isinstance(told, list):
        verdict, reason = cast("list[str]", told)
        return cast("PolicyAnswer", (verdict, reason))
    return cast("PolicyAnswer", told or "allow")


@tool_policy("blocking")
def blocking(request: PolicyRequest) -> PolicyAnswer:
    return "deny" if request.effect == "write" else "allow"
