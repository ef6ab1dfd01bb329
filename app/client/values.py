"""Values: what a server says, as frozen dataclasses that tolerate fields they do not know and miss."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from app.client.fields import (
    JsonObject,
    JsonObjects,
    NotOurs,
    number,
    object_of,
    objects,
    optional_object,
    optional_text,
    optional_time,
    required_text,
)
from app.client.interrupts import Interrupt

T = TypeVar("T")

FINISHED = frozenset(("success", "error", "cancelled"))
"""Statuses that a run never leaves."""


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
    """The agent's return values: `{"output": …}`, with an `output_schema` also `"structured"`."""
    error: JsonObject | None = None
    """`{"code", "message", …}` of a failed run."""
    interrupts: list[Interrupt] = field(default_factory=list[Interrupt])
    """What it waits for somebody to answer: `client.runs.resume`."""
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
    def structured(self) -> Any:
        """The answer as data that fits the agent's `output_schema`; `None` where there is none (see `stop_reason`)."""
        return None if self.output is None else self.output.get("structured")

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
        steps = objects(data.get("intermediate_steps"))
        return cls(
            id=required_text(data, "id", "a run"),
            status=required_text(data, "status", "a run"),
            thread_id=optional_text(data, "thread_id"),
            agent=optional_text(data, "agent"),
            stop_reason=optional_text(data, "stop_reason"),
            input=data.get("input"),
            output=optional_object(data, "output"),
            error=optional_object(data, "error"),
            interrupts=[Interrupt.of(item) for item in objects(data.get("interrupts"))],
            iterations=number(data, "iterations"),
            attempt=number(data, "attempt"),
            usage=optional_object(data, "usage") or {},
            created_at=optional_time(data, "created_at"),
            started_at=optional_time(data, "started_at"),
            finished_at=optional_time(data, "finished_at"),
            metadata=optional_object(data, "metadata") or {},
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
        return optional_text(self.action, "tool")

    @classmethod
    def of(cls, value: object) -> "Step":
        """A Step from its JSON. Raises `NotOurs`."""
        data = object_of(value, "a step")
        duration = data.get("duration_ms")
        return cls(
            step=number(data, "step"),
            status=required_text(data, "status", "a step"),
            iteration=number(data, "iteration"),
            tool_call_id=optional_text(data, "tool_call_id"),
            action=optional_object(data, "action") or {},
            observation=data.get("observation"),
            error=optional_object(data, "error"),
            started_at=optional_time(data, "started_at"),
            duration_ms=duration if isinstance(duration, int | float) else None,
            chain=objects(data.get("chain")),
            attempts=objects(data.get("attempts")),
            idempotency_key=optional_text(data, "idempotency_key"),
            envelope=optional_object(data, "envelope"),
            data=data,
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a run."""

    id: int
    """The run's own number: 1, 2, 3, …"""
    event: str
    """`run`, `output`, `action`, `progress`, `step`, `state`, `custom`, `interrupt`, `usage`, `finish`, `error`, `end`; a later
    version may have others."""
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


__all__ = [
    "FINISHED",
    "Event",
    "Interrupt",
    "JsonObject",
    "JsonObjects",
    "NotOurs",
    "Page",
    "Run",
    "Step",
    "object_of",
]
