"""Which prompt belongs to which type of agent."""

from collections.abc import Mapping

from app.agent.prompts import react, react_json, self_ask, structured_chat, xml
from app.agent.prompts.text_prompt import TextPrompt

PROMPTS: Mapping[str, TextPrompt] = {
    "react": react.PROMPT,
    "react_json": react_json.PROMPT,
    "structured_chat": structured_chat.PROMPT,
    "xml": xml.PROMPT,
    "self_ask": self_ask.PROMPT,
}
"""By the agent's `type`."""
