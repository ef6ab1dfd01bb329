"""The scratchpad: the steps of a run as a text agent is shown them. Each step is written once, whatever comes after it."""

from collections.abc import Callable, Iterable, Sequence

from app.agent.parsers.trimming import before_observation
from app.agent.parsers.xml import escaped
from app.agent.prompts.template import PromptTemplate
from app.core.actions import AgentStep, observation_text
from app.core.messages import Message
from app.core.values import immutable

TOOL_RESPONSE = PromptTemplate.from_text(
    """The tool answered:

{observation}

Go on with the user's request. Reply in the agreed form; the user has not seen this answer, so repeat what matters of it.""",
    ("observation",),
)
"""What an observation is wrapped in where steps are messages."""


@immutable
class LogStep:
    """A step as text: the model's own words, the observation, and the word that asks for more (`format_log_to_str`).

    An observation the model invented is left out: it would stand beside the real one.
    """

    observation_prefix: str = "Observation: "
    llm_prefix: str = "Thought: "

    def __call__(self, step: AgentStep) -> str:
        # The log of an answer that could not be read is quoted whole: the model is to see what was wrong.
        log = step.action.log
        said = log if step.action.tool == "_Exception" else before_observation(log, 0)
        return f"{said}\n{self.observation_prefix}{observation_text(step.observation)}\n{self.llm_prefix}"


def xml_step(step: AgentStep) -> str:
    """A step as elements; the format's tags inside a value are escaped (`format_xml`)."""
    action = step.action
    return (
        f"<tool>{escaped(action.tool)}</tool><tool_input>{escaped(observation_text(action.tool_input))}</tool_input>"
        f"<observation>{escaped(observation_text(step.observation))}</observation>"
    )


@immutable
class MessageStep:
    """A step as two messages: what the model said, and the observation (`format_log_to_messages`)."""

    template: PromptTemplate = TOOL_RESPONSE

    def __call__(self, step: AgentStep) -> tuple[Message, Message]:
        told = self.template.render({"observation": observation_text(step.observation)})
        return Message("assistant", step.action.log), Message("user", told)


def kept(keep: int | None, length: int) -> int:
    """Where the last `keep` of `length` steps begin; `None`, 0 and less keep all (`trim_intermediate_steps`)."""
    return 0 if keep is None or keep <= 0 else max(0, length - keep)


class TextScratchpad:
    """The steps of one run as text. Adding a step costs that step; so does asking for the text, but for copying it."""

    __slots__ = ("_pieces", "_whole", "_write")

    def __init__(self, write: Callable[[AgentStep], str], steps: Iterable[AgentStep] = ()) -> None:
        self._write = write
        self._pieces: list[str] = []
        self._whole: tuple[int, str] = (0, "")
        self.extend(steps)

    def __len__(self) -> int:
        """How many steps it holds: a planner gives it those that came since."""
        return len(self._pieces)

    def extend(self, steps: Iterable[AgentStep]) -> None:
        self._pieces.extend(map(self._write, steps))

    def text(self, keep: int | None = None) -> str:
        """All steps, or the last `keep` of them."""
        start = kept(keep, len(self._pieces))
        if start:
            return "".join(self._pieces[start:])
        done, text = self._whole
        if done < len(self._pieces):
            text = "".join([text, *self._pieces[done:]])
            self._whole = (len(self._pieces), text)
        return text


class MessageScratchpad:
    """The steps of one run as messages, two a step; a message is made once, so a provider's encoding of it is kept."""

    __slots__ = ("_messages", "_write")

    def __init__(self, write: Callable[[AgentStep], tuple[Message, Message]], steps: Iterable[AgentStep] = ()) -> None:
        self._write = write
        self._messages: list[Message] = []
        self.extend(steps)

    def __len__(self) -> int:
        return len(self._messages) // 2

    def extend(self, steps: Iterable[AgentStep]) -> None:
        for step in steps:
            self._messages.extend(self._write(step))

    def messages(self, keep: int | None = None) -> Sequence[Message]:
        """All steps' messages, or those of the last `keep`. Not to be changed, nor kept while steps are added."""
        start = kept(keep, len(self))
        return self._messages[2 * start :] if start else self._messages
