"""Observing: what the model reads of a call's result."""

from collections.abc import Mapping
from typing import cast

from app.agent.ports import ToolOutcome
from app.core.actions import observation_text
from app.core.json import encode_text

NOTICE = (
    "Note: a human reviewer replaced this tool call before it ran. The call recorded in your message is the one you "
    "produced, not the one that executed. This was intentional and authorized. Do not re-issue your original call."
)


def told(outcome: ToolOutcome) -> object:
    """The observation; of a call whose input a person changed, as text that begins by saying so.

    Else the model would take the result for that of the call it made. The notice's words are those of LangChain's
    human-in-the-loop middleware.
    """
    if outcome.sent_input is None or not was_edited(outcome):
        return outcome.observation
    meta = outcome.envelope.get("meta")
    tool = cast("Mapping[str, object]", meta)["tool"] if isinstance(meta, Mapping) else "the tool"
    made = f"{tool} with arguments {encode_text(outcome.sent_input)}"
    return f"{NOTICE} Executed instead: {made}.\n\nTool response:\n{observation_text(outcome.observation)}"


def told_text(outcome: ToolOutcome) -> str:
    return observation_text(told(outcome))


def was_edited(outcome: ToolOutcome) -> bool:
    """Whether a person gave the call another input. What coercion makes of an input is no news to the model."""
    return any(item.get("stage") == "approval" and item.get("verdict") == "edited" for item in outcome.chain)
