"""A text agent's prompt: its template, what a template of its kind must hold, where the model stops, how steps are shown."""

from collections.abc import Callable, Sequence

from app.agent.ports import ToolDefinition
from app.agent.prompts.template import PromptTemplate
from app.agent.prompts.tool_list import described, names
from app.core.values import immutable


@immutable
class TextPrompt:
    template: PromptTemplate
    required: frozenset[str]
    """Variables that a template put in its place must hold, too."""
    stop: tuple[str, ...]
    """Where the model is to stop, so that it invents no observation."""
    tools: Callable[[Sequence[ToolDefinition]], str] = described
    """How `{tools}` is written."""
    observation_prefix: str = "Observation: "
    llm_prefix: str = "Thought: "

    def replaced(self, text: str) -> PromptTemplate:
        """A caller's own template. Raises `ValueError` when it is malformed or lacks a required variable."""
        return PromptTemplate.from_text(text, self.required)

    def tool_values(self, tools: Sequence[ToolDefinition]) -> dict[str, str]:
        """The variables that are the same in every round: render them once a run."""
        return {"tools": self.tools(tools), "tool_names": names(tools)}

    def stop_words(self, setting: bool | Sequence[str] = True) -> tuple[str, ...]:
        """LangChain's `stop_sequence`: true for the kind's own, false for none, or the caller's list."""
        if isinstance(setting, bool):
            return self.stop if setting else ()
        return tuple(setting)


def text_prompt(
    text: str,
    required: Sequence[str],
    stop: str,
    tools: Callable[[Sequence[ToolDefinition]], str] = described,
    observation_prefix: str = "Observation: ",
    llm_prefix: str = "Thought: ",
) -> TextPrompt:
    """A kind's own prompt; its template is held to the same rule as a caller's."""
    template = PromptTemplate.from_text(text, required)
    return TextPrompt(template, frozenset(required), (stop,), tools, observation_prefix, llm_prefix)
