"""The plugin author's words: `tool`, `Tool`, `ToolContext`, `ToolError`. Re-exported by the public module `runwire`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from app.core.interrupts import ANSWER_S, Ask, nobody_to_ask
from app.core.plugins import Plugin
from app.core.principal import Principal
from app.tools.store_api import ToolStore

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

Effect = Literal["pure", "read", "write"]
"""`pure`: computes only. `read`: looks at the world. `write`: changes it."""


class ToolError(Exception):
    """A failure the model should know of: `message` reaches it word for word, so no secret belongs in it.

    `retryable` says that nothing was done and that asking again later may work.
    """

    def __init__(self, message: str = "", *, code: str = "tool_error", retryable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.retryable = retryable


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a tool returns that changes the thread's state, or says where the run goes on."""

    output: object = None
    """The tool's result, as the model sees it."""
    update: Mapping[str, object] | None = None
    """Fields of the agent's `state_schema`, through their reducers; `messages` are appended."""
    goto: Literal["end", "model", "tools"] | None = None
    """`end`: the run ends when the round is closed, with `output` for its answer."""


def _nowhere(_event: str, _data: Mapping[str, object]) -> None:
    """Outside a run nobody listens."""


def no_store() -> ToolStore:
    """Where the server gave the tool none."""
    raise RuntimeError("There is no store here.")


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know about the call it serves. A parameter of this type is filled in and hidden from the model."""

    principal: Principal
    """Who the run acts for; the only identity to trust (`tenant`, `subject`)."""
    run_id: str | None
    """`None` when the tool is invoked outside a run."""
    thread_id: str | None
    tool_call_id: str
    idempotency_key: str
    """The same on every attempt of this call (64 hexadecimal digits)."""
    attempt: int = 1
    """1-based; an attempt that stopped at a question does not count."""
    context: Mapping[str, object] = field(default_factory=dict[str, object])
    """The run's `context`, as its caller gave it; never shown to the model, never identity."""
    state: Mapping[str, object] = field(default_factory=dict[str, object])
    """The thread's state as of the round's start: `messages` and the agent's fields. Read only; `Command` changes it."""
    tell: Callable[[str, Mapping[str, object]], None] = field(default=_nowhere, repr=False)
    """Adds an event; `custom` and `progress` are the words for it."""
    open_store: Callable[[], ToolStore] = field(default=no_store, repr=False)
    """Makes `store`."""
    ask: Ask = field(default=nobody_to_ask, repr=False)
    """Asks a person; `interrupt` is the word for it."""

    @property
    def store(self) -> ToolStore:
        """Long-term memory across threads, of the principal's tenant."""
        return self.open_store()

    def interrupt(
        self,
        payload: object = None,
        response_schema: Mapping[str, object] | None = None,
        *,
        message: str | None = None,
        expires_s: float = ANSWER_S,
    ) -> Any:
        """Ask a person, and give their answer: any JSON value, `None` too. Without one yet, the tool stops here.

        It then runs again from its start when the answer is there, after a restart too, so put what has an effect
        behind the question. Several questions are asked one after the other and answered in order. `payload`: JSON
        for whoever answers; `response_schema`: what the answer must fit; `message`: the question in words;
        `expires_s`: how long it waits, 0 < seconds <= 366 days. Rejected or not answered in time, the call ends
        `denied` and the tool does not run again.

        Raises `ValueError`: what is asked cannot be kept (no JSON, over 64 KiB, no schema). A plain function, for
        async tools too.
        """
        return self.ask(payload, response_schema, message, expires_s)

    def custom(self, data: object) -> None:
        """Send the run's readers a `custom` event, now, in order with the rest. `data`: JSON of at most 64 KiB.

        Raises `ValueError`. Outside a run nobody reads it.
        """
        self.tell("custom", {"data": data})

    def progress(self, progress: float | None = None, message: str | None = None) -> None:
        """Send a `progress` event: a share of 1, a sentence, or both. Raises `ValueError`."""
        if progress is not None and not 0 <= progress <= 1:
            raise ValueError("progress is a number from 0 to 1")
        self.tell("progress", {"progress": progress, "message": message})


@dataclass(frozen=True, slots=True)
class Tool(Plugin, Generic[P, R]):
    """A function with what the server must know about it. Calling it calls the function."""

    function: Callable[P, R]
    name: str
    description: str
    effect: Effect = "write"
    idempotent: bool = False
    """Safe to run again with the same key."""
    return_direct: bool = False
    scopes: tuple[str, ...] = ()
    """What the calling principal must hold."""
    timeout_s: float = 30.0
    requires_approval: bool | Mapping[str, object] | None = None
    """Whether a person is asked before a call (as in a ToolSpec); `None` = the server's default."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "write",
    idempotent: bool | None = None,
    return_direct: bool = False,
    scopes: Sequence[str] = (),
    timeout_s: float = 30.0,
    requires_approval: bool | Mapping[str, object] | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "write",
    idempotent: bool | None = None,
    return_direct: bool = False,
    scopes: Sequence[str] = (),
    timeout_s: float = 30.0,
    requires_approval: bool | Mapping[str, object] | None = None,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a tool of a function with type hints, bare or with arguments.

    The name is the function's, the description its docstring, the schema its type hints (read when the server loads
    it). `effect` defaults to "write", which is never repeated blindly; `idempotent` to true for "pure" and "read".
    A synchronous function runs in a thread. `timeout_s`: 0 < seconds <= 3600.
    """

    def make(target: Callable[P, R]) -> Tool[P, R]:
        return Tool(
            function=target,
            name=name if name is not None else getattr(target, "__name__", type(target).__name__),
            description=description if description is not None else _docstring(target),
            effect=effect,
            idempotent=idempotent if idempotent is not None else effect != "write",
            return_direct=return_direct,
            scopes=tuple(scopes),
            timeout_s=timeout_s,
            requires_approval=requires_approval,
        )

    return make if function is None else make(function)


def _docstring(function: object) -> str:
    lines = (function.__doc__ or "").strip().splitlines()
    return "\n".join([lines[0], *(line.strip() for line in lines[1:])]).strip() if lines else ""
