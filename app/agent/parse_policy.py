"""The parse policy: what becomes of a model's answer that cannot be read as a decision (`handle_parsing_errors`)."""

from collections.abc import Awaitable, Callable

from app.agent.ports import ParseError
from app.core.values import immutable

ParsePolicy = Callable[[ParseError], Awaitable[str]]
"""A plugin's rule: the observation that the model reads. Raises `PluginFailed`."""

Handling = bool | str | ParsePolicy
"""`False` ends the run, `True` tells the model what the parser says, a text tells it that text."""

INCOMPLETE = "Invalid or incomplete response"
"""What the model reads where the parser has no words for it (AgentExecutor's)."""


@immutable
class Handled:
    """The `_Exception` step: `observation` is what the model reads, `log` what stands behind it."""

    observation: str
    log: str


@immutable
class Unhandled:
    """The run ends as `output_parsing_error`."""

    message: str


async def handle(handling: Handling, error: ParseError) -> Handled | Unhandled:
    """AgentExecutor's rules: only `True` looks at `send_to_llm`, and only then is the log the model's own text."""
    if handling is False:
        return Unhandled(
            "An output parsing error occurred. To pass it back to the agent and have it try again, set"
            f" `handle_parsing_errors` to true. This is the error: {error.message}"
        )
    if isinstance(handling, str):
        return Handled(handling, error.message)
    if handling is True:
        if error.send_to_llm:
            return Handled(error.observation, error.llm_output)
        return Handled(INCOMPLETE, error.message)
    return Handled(await handling(error), error.message)
