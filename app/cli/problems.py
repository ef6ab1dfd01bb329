"""What went wrong between a command and a server, told to a person: what happened, where, and what to do next."""

from app.cli import exits
from app.cli.text import plain
from app.client.errors import (
    ClientError,
    ConnectionFailed,
    NotFound,
    ProblemError,
    Unauthorized,
)

ADVICE = {
    "missing_scope": "Use a key that has this scope, or ask the operator for one.",
    "run_active": "Cancel it first: runwire runs cancel ID --wait",
    "tool_exists": "To replace it: runwire tools add --replace",
    "agent_exists": "To give it a new version: runwire agents apply",
    "run_not_found": "See: runwire runs ls",
    "step_not_found": "See: runwire runs steps ID",
    "tool_not_found": "See: runwire tools ls",
    "agent_not_found": "See: runwire agents ls",
    "unknown_agent": "See: runwire agents ls",
    "unknown_tool": "See: runwire tools ls",
    "unknown_model": "See: runwire models ls",
    "interrupt_resolved": "See what is left: runwire runs show ID",
    "interrupt_expired": "See what is left: runwire runs show ID",
    "interrupt_not_found": "See what it asks: runwire runs show ID",
    "run_not_interrupted": "See how it ended: runwire runs show ID",
    "tool_call_not_found": "See: runwire calls ls",
    "events_expired": "Follow it without --after.",
}
"""What to do about a refusal, by its code."""

NAMED_CODES = frozenset(("unknown_agent",))
"""Refusals of a body that say: what the command itself names is not there."""
ROUTE_CODES = frozenset(("route_not_found", "method_not_allowed"))


def is_missing_endpoint(error: ClientError) -> bool:
    """Whether the server has no such route: it is of another version."""
    return isinstance(error, ProblemError) and (
        error.code in ROUTE_CODES or (error.status in (404, 405, 501) and error.code is None)
    )


def exit_code(error: ClientError) -> int:
    if isinstance(error, NotFound) and not is_missing_endpoint(error):
        return exits.NOT_FOUND
    if isinstance(error, ProblemError) and error.code in NAMED_CODES:
        return exits.NOT_FOUND
    return exits.SERVER


def told(error: ClientError, *, has_key: bool) -> str:
    """The message for the terminal, without control characters; may have several lines."""
    match error:
        case ProblemError():
            return _refusal(error, has_key)
        case ConnectionFailed():
            return f"{plain(str(error))} Start a server with: runwire serve --demo, or name another with --url."
        case _:
            return plain(str(error)) or type(error).__name__


def _refusal(error: ProblemError, has_key: bool) -> str:
    lines = [f"{error.detail} ({error.code or error.status})"]
    lines += [f"  {place.pointer or '/'}: {place.detail}" for place in error.errors]
    advice = _advice(error, has_key)
    if advice:
        lines.append(f"  {advice}")
    if error.request_id:
        lines.append(f"  request: {error.request_id}")
    return plain("\n".join(lines))


def _advice(error: ProblemError, has_key: bool) -> str | None:
    if isinstance(error, Unauthorized):
        if has_key:
            return "The key in RUNWIRE_API_KEY is not one of this server's."
        return "Put a key of this server into RUNWIRE_API_KEY."
    if error.code in ADVICE:
        return ADVICE[error.code]
    if error.retry_after_s is not None:
        return f"Try again in {error.retry_after_s:.0f} s."
    return None
