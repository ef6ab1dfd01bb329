"""Observing: what the model reads of a call's result."""

from app.agent.ports import ToolOutcome
from app.core.actions import observation_text
from app.core.json import encode_text


def told(outcome: ToolOutcome) -> object:
    """The observation; of a call whose input a person changed, as text that begins by saying so.

    Else the model would take the result for that of the call it made.
    """
    if outcome.sent_input is None or not was_edited(outcome):
        return outcome.observation
    text = observation_text(outcome.observation)
    return f"A person changed the input to {encode_text(outcome.sent_input)} before it was run.\n{text}"


def told_text(outcome: ToolOutcome) -> str:
    return observation_text(told(outcome))


def was_edited(outcome: ToolOutcome) -> bool:
    """Whether a person gave the call another input. What coercion makes of an input is no news to the model."""
    return any(item.get("stage") == "approval" and item.get("verdict") == "edited" for item in outcome.chain)
