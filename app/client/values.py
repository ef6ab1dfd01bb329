"""Values: what a server says, as frozen dataclasses that tolerate fields they do not know and miss."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")

JsonObject = dict[str, Any]
JsonObjects = list[JsonObject]

FINISHED = frozenset(("success", "error", "cancelled"))
"""Statuses that a run never leaves."""


class NotOurs(ValueError):
    """JSON that lacks what every Runwire server says. The message names what is missing."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run. Times are aware and in UTC. A field that the server does not send is `None` or empty."""

    id: str
    status: str
    """`pending`, `running`, `interrupted`, `success`, `error`, `cancelled`; a later version may have others."""
    thread_id: str | None = None
    agent: str | None = None
    """The registered agent's name; `None` for an inline one."""
    stop_reason: str | None = None
    """`finish`, or which limit or event stopped it."""
    input: Any = None
    output: JsonObject | None = None
    """The agent's return values: `{"output": …}`."""
    error: JsonObject | None = None
    """`{"code", "message", …}` of a failed run."""
    interrupts: list[JsonObject] = field(default_factory=list[JsonObject])
    iterations: int = 0
    attempt: int = 0
    usage: JsonObject = field(default_factory=dict[str, Any])
    """`model_calls, tool_calls, input_tokens, output_tokens, total_tokens, cost_usd`."""
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    metadata: JsonObject = field(default_factory=dict[str, Any])
    intermediate_steps: "list[Step] | None" = None
    """The finished steps, where the agent says `return_intermediate_steps`."""
    data: JsonObject = field(default_factory=dict[str, Any], repr=False)
    """The Run as it came, with fields of later versions."""

    @property
    def text(self) -> str | None:
        """The answer, when there is one and it is text."""
        value = None if self.output is None else self.output.get("output")
        return value if isinstance(value, str) else None

    @property
    def finished(self) -> bool:
        """Whether the run is at its end. An interrupted one waits for somebody and is not."""
        return self.status in FINISHED

    @property
    def ok(self) -> bool:
        """Whether it ended well; a run stopped by a limit did (see `stop_reason`)."""
        return self.status == "success"

    @classmethod
    def of(cls, value: object) -> "Run":
        """A Run from its JSON. Raises `NotOurs`."""
        data = object_of(value, "a run")
        steps = _objects(data.get("intermediate_steps"))
        return cls(
            id=_required_text(data, "id", "a run"),
            status=_required_text(data, "status", "a run"),
            thread_id=_text(data, "thread_id"),
            agent=_text(data, "agent"),
            stop_reason=_text(data, "stop_reason"),
            input=data.get("input"),
            output=_object(data, "output"),
            error=_object(data, "error"),
            interrupts=_objects(data.get("interrupts")),
            iterations=_number(data, "iterations"),
            attempt=_number(data, "attempt"),
            usage=_object(data, "usage") or {},
            created_at=_time(data, "created_at"),
            started_at=_time(data, "started_at"),
            finished_at=_time(data, "finished_at"),
            metadata=_object(data, "metadata") or {},
            intermediate_steps=None if data.get("intermediate_steps") is None else [Step.of(step) for step in steps],
            data=data,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call of a run."""

    step: int
    """Its number, in call order."""
    status: str
    """`success, error, timeout, denied, cancelled, unknown`, or `waiting`, `running` when not finished."""
    iteration: int = 0
    tool_call_id: str | None = None
    action: JsonObject = field(default_factory=dict[str, Any])
    """The AgentAction: `tool`, `tool_input`, `log`."""
    observation: Any = None
    """What the model was shown of the result."""
    error: JsonObject | None = None
    started_at: datetime | None = None
    duration_ms: float | None = None
    chain: list[JsonObject] = field(default_factory=list[JsonObject])
    """From the intent to the recorded state; `client.runs.step` has it, lists do not."""
    attempts: list[JsonObject] = field(default_factory=list[JsonObject])
    idempotency_key: str | None = None
    envelope: JsonObject | None = None
    data: JsonObject = field(default_factory=dict[str, Any], repr=False)
    """The step as it came."""

    @property
    def tool(self) -> str | None:
        """The tool's name."""
        return _text(self.action, "tool")

    @classmethod
    def of(cls, value: object) -> "Step":
        """A Step from its JSON. Raises `NotOurs`."""
        data = object_of(value, "a step")
        duration = data.get("duration_ms")
        return cls(
            step=_number(data, "step"),
            status=_required_text(data, "status", "a step"),
            iteration=_number(data, "iteration"),
            tool_call_id=_text(data, "tool_call_id"),
            action=_object(data, "action") or {},
            observation=data.get("observation"),
            error=_object(data, "error"),
            started_at=_time(data, "started_at"),
            duration_ms=duration if isinstance(duration, int | float) else None,
            chain=_objects(data.get("chain")),
            attempts=_objects(data.get("attempts")),
            idempotency_key=_text(data, "idempotency_key"),
            envelope=_object(data, "envelope"),
            data=data,
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a run."""

    id: int
    """The run's own number: 1, 2, 3, …"""
    event: str
    """`run`, `output`, `action`, `step`, `usage`, `finish`, `error`, `end`; a later version may have others."""
    data: JsonObject
    raw: str = field(repr=False)
    """The data as JSON text."""

    @property
    def type(self) -> str:
        """The same as `event`."""
        return self.event


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list. `next_cursor` is the `after` of the next page, `None` on the last."""

    data: list[T]
    has_more: bool = False
    next_cursor: str | None = None


def object_of(value: object, what: str) -> JsonObject:
    """`value` as a JSON object. Raises `NotOurs`."""
    if not isinstance(value, dict):
        raise NotOurs(f"{what} that is not a JSON object")
    return cast("JsonObject", value)


def _required_text(data: Mapping[str, Any], name: str, what: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise NotOurs(f"{what} without `{name}`")
    return value


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) else None


def _number(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) else 0


def _object(data: Mapping[str, Any], name: str) -> JsonObject | None:
    value = data.get(name)
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _objects(value: object) -> list[JsonObject]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("JsonObject", item) for item in items if isinstance(item, dict)]


def _time(data: Mapping[str, Any], name: str) -> datetime | None:
    value = data.get(name)
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)  # RFC 3339 with `Z` from Python 3.11 on
    except ValueError:
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at
