"""What an agent decides and what came of it: AgentAction, AgentActionMessageLog, AgentStep, AgentFinish.

The names and fields are LangChain's (`langchain_core.agents`), so that its users recognise them.
"""

from typing import Literal

from app.core.json import encode_text
from app.core.messages import Message
from app.core.values import immutable


@immutable
class AgentAction:
    """A request to run one tool. `log` is the model's full text behind it, for audit and for its next turn."""

    tool: str
    tool_input: str | dict[str, object]
    log: str = ""
    type: Literal["AgentAction", "AgentActionMessageLog"] = "AgentAction"

    def to_json(self) -> dict[str, object]:
        """`{"type","tool","tool_input","log"}`: how callers see it; the message log is in `/messages`."""
        return {"type": "AgentAction", "tool": self.tool, "tool_input": self.tool_input, "log": self.log}

    def messages(self) -> tuple[Message, ...]:
        return (Message("assistant", self.log),)


@immutable
class AgentActionMessageLog(AgentAction):
    """An action that came as a chat message: `message_log` keeps the message itself, so nothing is lost in text."""

    message_log: tuple[Message, ...] = ()
    type: Literal["AgentAction", "AgentActionMessageLog"] = "AgentActionMessageLog"

    def messages(self) -> tuple[Message, ...]:
        return self.message_log


@immutable
class AgentStep:
    """An action and what it brought. `observation` is any JSON value."""

    action: AgentAction
    observation: object

    def messages(self) -> tuple[Message, ...]:
        """The observation as the model is shown it: text as it is, anything else as JSON."""
        text = observation_text(self.observation)
        if isinstance(self.action, AgentActionMessageLog):
            return (Message("tool", text, name=self.action.tool),)
        return (Message("user", text),)


@immutable
class AgentFinish:
    """The end: what to return, usually `{"output": …}`. `log` is the model's full text."""

    return_values: dict[str, object]
    log: str = ""

    def messages(self) -> tuple[Message, ...]:
        return (Message("assistant", self.log),)


def observation_text(observation: object) -> str:
    """Text stays as it is; any other JSON value becomes compact JSON without ASCII escapes; what JSON cannot say, `str()`."""
    if isinstance(observation, str):
        return observation
    try:
        return encode_text(observation)
    except (TypeError, ValueError):
        return str(observation)
