"""What the loop needs from outside: a planner, a model, tools. Each call can be wrapped by `(request, call_next)`."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, Protocol

from app.core.actions import AgentAction, AgentFinish
from app.core.messages import Message
from app.core.usage import TokenUsage
from app.core.values import immutable


@immutable
class ToolDefinition:
    """A tool as the model is told of it. `parameters` is a JSON Schema object, without what the server fills in itself."""

    name: str
    description: str
    parameters: Mapping[str, object]
    wire: dict[str, bytes] = field(default_factory=dict[str, bytes], compare=False, repr=False)
    """A cache for model clients: this definition as one provider's JSON."""


# --- model ---------------------------------------------------------------------------------------------------------


@immutable
class AnswerFormat:
    """A JSON Schema of an object, which the text of an answer must fit. `name` is for the provider."""

    name: str
    schema: Mapping[str, object]


@immutable
class ModelRequest:
    """One call of the model. `messages` is the whole context, oldest first; it must not be changed."""

    messages: Sequence[Message]
    tools: Sequence[ToolDefinition] = ()
    tool_choice: str | Mapping[str, object] | None = "auto"
    """`"auto"`, `"none"`, `"required"`, a tool's name, or the provider's own object. Meaningless without tools."""
    parallel_tool_calls: bool = True
    stream: bool = True
    """Whether deltas are wanted. An adapter may stream towards the provider in any case."""
    stop: Sequence[str] = ()
    """Texts at which the model stops, not saying them. Empty for most agents."""
    call_index: int = 0
    """0-based number of this model call within its run. It survives a restart, so a scripted model knows its turn."""
    answer_format: AnswerFormat | None = None
    """What the provider is to hold the answer's text to; a provider that cannot leaves it out, for the text is checked."""
    answer_tool: str | None = None
    """The tool of `tools` that gives the structured answer. Where a call cannot be forced, one that is forced for its sake need not be."""
    model: str | None = None
    """Another model than the agent's own, by the key under which a middleware of the agent has it."""

    def override(self, **changes: Any) -> "ModelRequest":
        """A request like this one but for `changes`, by the fields' names."""
        return replace(self, **changes)


@immutable
class TextDelta:
    text: str


@immutable
class ReasoningDelta:
    text: str


@immutable
class ToolCallDelta:
    """A fragment of a proposed call. `id` and `name` come with the first fragment of each `index`; `args` is JSON text."""

    index: int
    id: str | None
    name: str | None
    args: str


Delta = TextDelta | ReasoningDelta | ToolCallDelta


@immutable
class Restart:
    """What was said so far of this answer is void: it begins anew, by another model or in other words."""


Piece = Delta | Restart
"""What comes before an answer is whole."""


@immutable
class ProposedCall:
    """A tool call as the model said it. `provider_id` may be missing or repeated; `args` is `None` when `raw_args` is no JSON object."""

    name: str
    args: dict[str, object] | None
    provider_id: str | None = None
    raw_args: str = ""
    error: str | None = None
    """Why `args` is missing, in words the model can act on."""


NO_TOKENS = TokenUsage()


@immutable
class ModelAnswer:
    """The whole answer, assembled. Exactly one comes, last."""

    content: str
    calls: tuple[ProposedCall, ...] = ()
    tokens: TokenUsage = NO_TOKENS
    finish_reason: Literal["stop", "tool_calls", "length", "content_filter"] = "stop"
    reasoning: str = ""
    refusal: str | None = None
    model: str = ""
    """The model's name as the provider gave it."""
    provider_blocks: Mapping[str, Sequence[dict[str, object] | int]] | None = None
    """By provider: blocks to be sent back unchanged (`Message.provider_blocks`). A number stands for `calls[number]`."""

    def override(self, **changes: Any) -> "ModelAnswer":
        """An answer like this one but for `changes`. The provider's own blocks would still say what it was: they go."""
        return replace(self, **{"provider_blocks": None, **changes})


class ChatModel(Protocol):
    """A chat model. `stream` yields deltas as they come, then exactly one `ModelAnswer`.

    Raises `ModelError`; retries that cannot repeat a delta are the adapter's own business. Cancelling the consumer
    closes the connection to the provider.
    """

    @property
    def name(self) -> str: ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]: ...


ModelCall = Callable[[ModelRequest], AsyncGenerator[Piece | ModelAnswer]]
ModelMiddleware = Callable[[ModelRequest, ModelCall], AsyncGenerator[Piece | ModelAnswer]]


# --- tools ---------------------------------------------------------------------------------------------------------

StepStatus = Literal["success", "error", "timeout", "denied", "cancelled", "unknown"]

Goto = Literal["end", "model", "tools"]
"""A jump: to the run's end, to the model, to the tools that the model's last answer calls."""


@immutable
class PlannedCall:
    """A tool call of this run: numbered, with our own id, journaled before anything is sent."""

    step: int
    """1-based within the run, in call order."""
    iteration: int
    tool_call_id: str
    action: AgentAction
    provider_call_id: str | None = None
    """The id the messages for the model carry."""
    refusal: str | None = None
    """Set when the call must not be sent (its arguments were no JSON, the round was too long): what the model is told."""
    dispatched: tuple[Mapping[str, object], ...] = ()
    """Attempts recorded before a crash, as in `ToolOutcome.attempts`; those that had not come back are `running`."""
    noted: tuple[Mapping[str, object], ...] = ()
    """Its chain so far, as in `ToolOutcome.chain`, where it waited and its run was taken up again."""
    sent_input: Mapping[str, object] | None = None
    """As in `ToolOutcome`, of what was sent before a crash or before the call waited."""


@immutable
class WholeResult:
    """A result that is too long to be shown, as it came."""

    data: bytes
    sha256: str
    """Of `data`, hexadecimal."""
    content_type: str
    complete: bool
    """False when there was more than is kept."""


@immutable
class ToolOutcome:
    """What became of a call. `observation` is what the model sees; `envelope` is what the application reads."""

    status: StepStatus
    observation: object
    error: Mapping[str, object] | None = None
    """`{"code","message","retryable","state": "failed"|"unknown","request_id"}`, `None` on success."""
    envelope: Mapping[str, object] = field(default_factory=dict[str, object])
    """`{"ok","data","error","meta"}` (contract, section 5)."""
    attempts: tuple[Mapping[str, object], ...] = ()
    """One per request sent: `{"attempt","at","duration_ms","http_status","outcome"}`."""
    chain: tuple[Mapping[str, object], ...] = ()
    """`{"stage","verdict","at","detail"}` from intent to execution."""
    started_at: int | None = None
    """Milliseconds since the epoch (UTC); `None` when nothing was started."""
    duration_ms: float = 0.0
    return_direct: bool = False
    """The tool asked for its result to be the run's answer. Never set on anything but `success`."""
    fatal: str | None = None
    """`handle_tool_errors: false` met a tool's error: the run ends with code `tool_error` and this message."""
    whole: WholeResult | None = None
    """Where `observation` is only the beginning of the result."""
    sent_input: Mapping[str, object] | None = None
    """What was sent where that is not the input that was asked for: a person's edit, or what coercion made of it."""
    update: Mapping[str, object] | None = None
    """What the tool changes of the thread's state, applied in call order when the round closes."""
    goto: Goto | None = None
    """Where the loop goes when the round is closed; `None`: as ever."""


WaitReason = Literal["tool_approval", "client_tool", "deferred", "input"]


@immutable
class Waiting:
    """A call that goes on when someone answers: a person, the caller, or the tool itself by its callback.

    It is stored with the call and holds all that going on needs; nothing is held in memory meanwhile.
    """

    reason: WaitReason
    until_ms: int
    """When it is too late (milliseconds since the epoch)."""
    facts: Mapping[str, object]
    """The runner's own: JSON."""
    shown: Mapping[str, object] | None = None
    """What the caller is asked, an item of the `interrupt` event; `None` where nobody is asked."""


@immutable
class Resumed:
    """A waiting call that was answered. `answer`: `{"decision": …}` of a person or caller, the tool's answer, or `expired`."""

    waiting: Waiting
    answer: Mapping[str, object]


CutReason = Literal["cancelled", "time_limit", "lost"]


class ToolRunner(Protocol):
    """The tools of one run. `run` never raises for what a tool did; only cancellation and `Stopped` come out of it."""

    @property
    def definitions(self) -> Sequence[ToolDefinition]: ...

    async def run(
        self, call: PlannedCall, *, sent_before: int = 0, resumed: Resumed | None = None
    ) -> ToolOutcome | Waiting:
        """Validate, authorize, execute; or say what the call waits for, to be run again with the answer.

        `sent_before`: attempts recorded before a crash, of unknown fate. A call that may be repeated is repeated with
        its old key; any other comes back `unknown` at once and is not sent.
        """
        ...

    def cut(self, call: PlannedCall, reason: CutReason) -> ToolOutcome:
        """The outcome of a call that was stopped by us, honest about whether it may have been sent."""
        ...


ToolCallNext = Callable[[PlannedCall], Awaitable[ToolOutcome | Waiting]]
ToolMiddleware = Callable[[PlannedCall, ToolCallNext], Awaitable[ToolOutcome | Waiting]]


# --- planner -------------------------------------------------------------------------------------------------------


@immutable
class ProposedAction:
    action: AgentAction
    provider_call_id: str | None = None
    """The model-facing id, already unique in the conversation; `None` lets the loop use its own."""
    refusal: str | None = None


@immutable
class ParseError:
    """The model's text could not be read as a decision (LangChain's OutputParserException, as a value)."""

    message: str
    llm_output: str = ""
    observation: str = ""
    send_to_llm: bool = False


@immutable
class Decision:
    """What the planner made of one model answer."""

    outcome: tuple[ProposedAction, ...] | AgentFinish | ParseError
    message: Message | None = None
    """The answer as it goes into the conversation. Its tool call ids must be the actions' `provider_call_id`s."""
    tokens: TokenUsage = NO_TOKENS
    model: str = ""


class Planner(Protocol):
    """Decides the next step. Yields deltas while the model speaks, then exactly one `Decision`. Raises `ModelError`."""

    @property
    def multi_action(self) -> bool: ...

    def plan(self, turn: "Turn") -> AsyncGenerator[Piece | Decision]: ...

    def conclude(self, turn: "Turn") -> AsyncGenerator[Piece | Decision]:
        """One last answer of a run that a limit stops (`early_stopping_method: generate`): no tools, always a finish."""
        ...

    def observe(self, call: PlannedCall, outcome: ToolOutcome) -> Message:
        """The result of one call as the model will see it. Its `tool_call_id` is the call's `provider_call_id`."""
        ...

    def messages(self, turn: "Turn") -> Sequence[Message]:
        """The context of the next model call."""
        ...


@immutable
class Round:
    """One finished plan-act cycle."""

    message: Message | None
    results: tuple[tuple[PlannedCall, ToolOutcome], ...]
    """In call order."""
    shown: tuple[Message, ...] = ()
    """The results as the model sees them (`Planner.observe`), in call order."""


@immutable
class Turn:
    """What a planner decides from. The lists grow in place and must not be changed or kept."""

    messages: Sequence[Message]
    """The whole conversation, this run's rounds included."""
    before: int
    """How many of `messages` come before this run's first round (history and input)."""
    rounds: Sequence[Round]
    iteration: int
    """1-based number of the round now planned."""
    new_id: Callable[[], str]
