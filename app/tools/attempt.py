"""One attempt at a tool call: what came of it, and what that means for the call (the table in docs/tools.md)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Literal, Protocol

from app.agent.ports import StepStatus, WholeResult
from app.core.principal import Principal
from app.core.values import immutable
from app.tools.plugin_api import Effect
from app.tools.questions import NONE_GIVEN, Answers, Question
from app.tools.run_view import OUTSIDE, RunView
from app.tools.store_api import StoreAccess

AttemptKind = Literal["output", "failed", "not_executed", "uncertain", "deferred", "asks"]
"""`failed`: the tool said no, definitely. `not_executed`: it certainly did nothing. `uncertain`: nobody can tell.
`asks`: it stopped at a question, to run again with the answer.
"""

NO_META: Mapping[str, object] = {}


@immutable
class Attempt:
    """What came of sending a call once."""

    kind: AttemptKind
    output: object = None
    code: str = "tool_error"
    message: str = ""
    """What the model may read about it."""
    retryable: bool = False
    retry_after_s: float | None = None
    http_status: int | None = None
    timed_out: bool = False
    meta: Mapping[str, object] = field(default_factory=lambda: NO_META)
    request_id: str | None = None
    """Set where the log holds more under this id."""
    whole: WholeResult | None = None
    """Where `output` is only its beginning."""
    update: object = None
    """What it would change of the thread's state, as it came."""
    goto: object = None
    """Where it would have the run go, as it came."""
    question: Question | None = None
    """What it asks."""


@immutable
class Sending:
    """A call that passed its checks: the same for each of its attempts."""

    tool: str
    tool_call_id: str
    idempotency_key: str
    arguments: dict[str, object]
    """With the constants in."""
    principal: Principal
    run_id: str | None
    thread_id: str | None
    context: Mapping[str, object]
    timestamp_ms: int
    """When the call was made (milliseconds since the epoch); the same after a restart, so that bodies are too."""
    deadline_ms: int
    new_id: Callable[[], str]
    view: RunView = OUTSIDE
    store: StoreAccess | None = None
    answers: Answers = NONE_GIVEN
    """To what the tool asked before."""


Send = Callable[[int, float], Awaitable[Attempt]]
"""`(attempt number, timeout in seconds) -> Attempt`. Raises only cancellation."""


class Executor(Protocol):
    """How a tool is reached. `prepare` does once what all attempts share."""

    def prepare(self, sending: Sending) -> Send: ...


@immutable
class Verdict:
    """The end of a call."""

    status: StepStatus
    state: Literal["failed", "unknown"] = "failed"


def settle(attempt: Attempt, effect: Effect, idempotent: bool) -> Verdict:
    """What the last attempt makes of the call, when no other follows."""
    match attempt.kind:
        case "output":
            return Verdict("success")
        case "failed" | "not_executed":
            return Verdict("error")
        case "deferred" | "asks":
            return Verdict("unknown", "unknown")
        case "uncertain":
            if effect != "write":
                return Verdict("timeout" if attempt.timed_out else "error")
            if idempotent and attempt.timed_out:
                return Verdict("timeout", "unknown")
            return Verdict("unknown", "unknown")


def may_repeat(attempt: Attempt, idempotent: bool) -> bool:
    """Whether sending again is safe and of use. `idempotent` is true for a pure or reading tool unless it says otherwise."""
    match attempt.kind:
        case "failed":
            return attempt.retryable
        case "not_executed":
            return attempt.retryable
        case "uncertain":
            return idempotent
        case _:
            return False


def backoff_s(attempt: int, jitter: float) -> float:
    """Seconds to wait after the given attempt (1-based): 0.2, 0.4, 0.8, … up to 30, times 0.5 to 1. `jitter`: 0 to 1."""
    return min(30.0, 0.2 * 2 ** (min(attempt, 20) - 1)) * (0.5 + jitter / 2)
