"""Text formats: for each type of text agent its parser, its prompt and how a run's steps stand in it."""

from collections.abc import Mapping, Sequence
from typing import cast

from app.agent.observing import told
from app.agent.parsers.registry import PARSERS
from app.agent.parsers.self_ask import SelfAskParser
from app.agent.ports import Round, ToolDefinition, Turn
from app.agent.prompts.registry import PROMPTS
from app.agent.prompts.template import PromptTemplate
from app.agent.prompts.text_prompt import TextPrompt
from app.agent.scratchpad import LogStep, xml_step
from app.agent.settings import AgentSettings
from app.agent.text_input import TextInputs
from app.agent.text_planner import TextFormat
from app.core.actions import AgentStep
from app.core.json import encode_text
from app.core.messages import Content, Message

OWN_VARIABLES = frozenset(("input", "tools", "tool_names", "agent_scratchpad", "chat_history"))
"""Variables that every run has; a template's other ones come with the run's input."""

TEXT_TYPES = frozenset(PROMPTS)

Prompt = str | Mapping[str, object]
"""An agent's own template, or `{"template", "stop_sequence"}`; either may be left out there."""


def template_of(kind: str, prompt: Prompt | None) -> PromptTemplate:
    """The template of an agent of this type. Raises `ValueError`: malformed, a required variable missing."""
    text = prompt.get("template") if isinstance(prompt, Mapping) else prompt
    return PROMPTS[kind].template if text is None else PROMPTS[kind].replaced(cast("str", text))


def prompt_variables(agent: Mapping[str, object]) -> set[str]:
    """The variables that a run's input must bring, of an agent as it is stored; none for agents without a template."""
    kind, prompt = str(agent["type"]), cast("Prompt | None", agent.get("prompt"))
    if kind not in TEXT_TYPES or prompt is None:
        return set()
    return template_of(kind, prompt).variables() - OWN_VARIABLES


def text_format(settings: AgentSettings, tools: Sequence[ToolDefinition], inputs: Mapping[str, object]) -> TextFormat:
    """`inputs`: the prompt variables that came with the run's input. Raises `ValueError` as `template_of`."""
    kind = settings.type
    prompt = PROMPTS[kind]
    parser = SelfAskParser(tools[0].name) if kind == "self_ask" and tools else PARSERS[kind]
    given = settings.prompt
    stop = given.get("stop_sequence", True) if isinstance(given, Mapping) else True
    template = template_of(kind, given)
    shown = RunPrompt(prompt, template, settings.instructions, tools, inputs)
    return TextFormat(parser, shown, prompt.stop_words(cast("bool | list[str]", stop)), TextInputs(tools))


class RunPrompt:
    """One run's prompt. A step is written once; showing the steps costs no more than copying them."""

    def __init__(
        self,
        prompt: TextPrompt,
        template: PromptTemplate,
        instructions: str | None,
        tools: Sequence[ToolDefinition],
        inputs: Mapping[str, object],
    ) -> None:
        self._template = template
        self._system = (Message("system", instructions),) if instructions else ()
        self._write = xml_step if prompt is PROMPTS["xml"] else LogStep(prompt.observation_prefix, prompt.llm_prefix)
        self._values = {name: value if isinstance(value, str) else encode_text(value) for name, value in inputs.items()}
        self._values |= prompt.tool_values(tools)
        self._in_text = "chat_history" in template.variables()
        self._pieces: list[str] = []
        self._whole = ""

    def messages(self, turn: Turn, rounds: Sequence[Round], demand: str = "") -> Sequence[Message]:
        """The instructions, the conversation before, and one message of the user: the prompt, filled in.

        The input is the last thing the user said before the run's first step. A template with `{chat_history}` has the
        conversation in its own text.
        """
        asked = self._asked(turn)
        content = None if asked is None else turn.messages[asked].content
        history = [message for index, message in enumerate(turn.messages[: turn.before]) if index != asked]
        values = {**self._values, "input": _text(content), "agent_scratchpad": self._steps(turn, rounds) + demand}
        if self._in_text:
            values["chat_history"] = "\n".join(map(_line, history))
            history = []
        return [*self._system, *history, Message("user", _with_parts(self._template.render(values), content))]

    def _asked(self, turn: Turn) -> int | None:
        return next((at for at in range(turn.before - 1, -1, -1) if turn.messages[at].role == "user"), None)

    def _steps(self, turn: Turn, rounds: Sequence[Round]) -> str:
        done = len(self._pieces)
        new: list[str] = []
        for item in reversed(turn.rounds):
            if item.results[0][0].step <= done:
                break
            new += [self._write(AgentStep(call.action, told(outcome))) for call, outcome in reversed(item.results)]
        new.reverse()
        self._pieces += new
        if rounds is turn.rounds:
            self._whole = "".join([self._whole, *new]) if done else "".join(new)
            return self._whole
        return "".join([self._pieces[call.step - 1] for item in rounds for call, _ in item.results])


def _text(content: Content) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    return content or ""


def _with_parts(text: str, content: Content) -> Content:
    """What is not text in the input (an image) goes along with the prompt."""
    others = [part for part in content if part.get("type") != "text"] if isinstance(content, list) else []
    return [{"type": "text", "text": text}, *others] if others else text


_NAMES = {"user": "Human", "assistant": "AI", "system": "System", "tool": "Tool"}


def _line(message: Message) -> str:
    """LangChain's form of a conversation as text (`get_buffer_string`)."""
    return f"{_NAMES[message.role]}: {_text(message.content)}"
