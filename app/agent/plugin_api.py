"""What the loop's plugins in Python are written against; re-exported by `runwire`, the public module.

@parsing_error_handler("apologise")
def apologise(error: OutputParserException) -> str: ...

@step_trimmer("first_and_errors")
def first_and_errors(steps: Sequence[AgentStep]) -> Sequence[AgentStep]: ...

@planner("two_step", allowed_tools=["search"])
async def two_step(steps: Sequence[AgentStep], context: PlannerContext) -> AgentAction | AgentFinish: ...

@reducer("newest_ten")
def newest_ten(old: object, update: object) -> object: ...
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.agent.ports import ModelAnswer, ToolDefinition
from app.core.actions import AgentAction, AgentFinish, AgentStep
from app.core.messages import Message
from app.core.plugins import Plugin


class OutputParserException(Exception):
    """A model's answer that cannot be read as a decision. What becomes of it is `handle_parsing_errors`' to say."""

    def __init__(
        self, error: str, observation: str | None = None, llm_output: str | None = None, send_to_llm: bool = False
    ) -> None:
        """`observation`: what the model reads instead of the general sentence, with `send_to_llm`; it must be given then."""
        super().__init__(error)
        if send_to_llm and (observation is None or llm_output is None):
            raise ValueError("send_to_llm needs an observation and the llm_output")
        self.observation = observation
        self.llm_output = llm_output
        self.send_to_llm = send_to_llm


ParsingErrorFunction = Callable[[OutputParserException], str | Awaitable[str]]
TrimFunction = Callable[[Sequence[AgentStep]], Sequence[AgentStep]]


class PlannerContext(Protocol):
    """What a planner knows of its run, and its model."""

    @property
    def inputs(self) -> Mapping[str, object]:
        """The run's input under `input`, and the other prompt variables it came with."""
        ...

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation before the run's first step, its input included."""
        ...

    @property
    def instructions(self) -> str | None: ...

    @property
    def tools(self) -> Sequence[ToolDefinition]: ...

    @property
    def iteration(self) -> int:
        """1-based number of the round now planned."""
        ...

    async def model(
        self, prompt: str | Sequence[Message], *, stop: Sequence[str] = (), tools: Sequence[ToolDefinition] = ()
    ) -> ModelAnswer:
        """Ask the agent's model, once a round. Its text streams to the run's readers as it comes. Raises `ModelError`."""
        ...


PlannerResult = AgentAction | Sequence[AgentAction] | AgentFinish
PlannerFunction = Callable[[Sequence[AgentStep], PlannerContext], Awaitable[PlannerResult]]


@dataclass(frozen=True, slots=True)
class ParsingErrorPlugin(Plugin):
    """`handle_parsing_errors: {"plugin": NAME}`."""

    function: ParsingErrorFunction
    name: str

    def __call__(self, error: OutputParserException) -> str | Awaitable[str]:
        return self.function(error)


@dataclass(frozen=True, slots=True)
class TrimPlugin(Plugin):
    """`trim_intermediate_steps: {"plugin": NAME}`."""

    function: TrimFunction
    name: str

    def __call__(self, steps: Sequence[AgentStep]) -> Sequence[AgentStep]:
        return self.function(steps)


@dataclass(frozen=True, slots=True)
class PlannerPlugin(Plugin):
    """`type: NAME`."""

    function: PlannerFunction
    name: str
    multi_action: bool = False
    allowed_tools: frozenset[str] | None = None
    """An agent of this type must have just these tools; `None` = any."""

    def __call__(self, steps: Sequence[AgentStep], context: PlannerContext) -> Awaitable[PlannerResult]:
        return self.function(steps, context)


def parsing_error_handler(name: str) -> Callable[[ParsingErrorFunction], ParsingErrorPlugin]:
    """A function that words what the model reads after an answer that could not be read. It runs on the event loop: be quick."""
    return lambda function: ParsingErrorPlugin(function, name)


def step_trimmer(name: str) -> Callable[[TrimFunction], TrimPlugin]:
    """A function that gives back those of the steps that the model still sees. It runs on the event loop: be quick."""
    return lambda function: TrimPlugin(function, name)


def planner(
    name: str, *, multi_action: bool = False, allowed_tools: Sequence[str] | None = None
) -> Callable[[PlannerFunction], PlannerPlugin]:
    """A function that decides the next step from the steps so far: an action, several, or the finish.

    It may raise `OutputParserException`. Any other exception ends the run as `plugin_failed`.
    """
    allowed = None if allowed_tools is None else frozenset(allowed_tools)
    return lambda function: PlannerPlugin(function, name, multi_action, allowed)


ReducerFunction = Callable[[object, object], object]
"""`(old, update) -> new`, JSON values; `old` is `None` for a field that was never set. Both are its own to change."""


@dataclass(frozen=True, slots=True)
class ReducerPlugin(Plugin):
    """`state_schema: {"field": {"reducer": NAME}}`."""

    function: ReducerFunction
    name: str

    def __call__(self, old: object, update: object) -> object:
        return self.function(old, update)


def reducer(name: str) -> Callable[[ReducerFunction], ReducerPlugin]:
    """A function that makes a state field's new value of the old one and an update. It runs on the event loop: be quick.

    A `ValueError` refuses the update, and its text says why; any other exception refuses it with a general sentence.
    """
    return lambda function: ReducerPlugin(function, name)
