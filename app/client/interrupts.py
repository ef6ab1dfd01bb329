"""Interrupts: what a run asks of a person or of its caller, and the answers to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from app.client.fields import (
    JsonObject,
    object_of,
    optional_object,
    optional_text,
    optional_time,
    required_text,
)

Decision = Literal["approve", "edit", "reject", "respond"]


@dataclass(frozen=True, slots=True)
class Response:
    """An answer to one interrupt, for `client.runs.resume`. Made by an `Interrupt`, or here from an interrupt's id."""

    interrupt_id: str
    decision: Decision
    tool_input: Any = None
    """Of `edit`: what the tool is called with instead."""
    output: Any = None
    """Of `respond`: what stands for the tool's own output; `None` is an output, too."""
    message: str | None = None
    """Why, for the model to read; of `reject` and `respond`."""

    @classmethod
    def approve(cls, interrupt_id: str) -> "Response":
        """The call is made as it was asked about."""
        return cls(interrupt_id, "approve")

    @classmethod
    def edit(cls, interrupt_id: str, tool_input: Mapping[str, Any] | str) -> "Response":
        """The call is made with another input, which must fit the tool's schema."""
        return cls(interrupt_id, "edit", tool_input=tool_input)

    @classmethod
    def reject(cls, interrupt_id: str, message: str | None = None) -> "Response":
        """The call is not made; the model reads so, and why."""
        return cls(interrupt_id, "reject", message=message)

    @classmethod
    def respond(cls, interrupt_id: str, output: Any) -> "Response":
        """The call is not made by the server; the model reads this output as the tool's."""
        return cls(interrupt_id, "respond", output=output)

    def to_json(self) -> JsonObject:
        """An item of the body's `responses`: only what belongs to the decision."""
        body: JsonObject = {"interrupt_id": self.interrupt_id, "decision": self.decision}
        if self.decision == "edit":
            body["tool_input"] = self.tool_input
        if self.decision == "respond":
            body["output"] = self.output
        if self.message is not None:
            body["message"] = self.message
        return body


@dataclass(frozen=True, slots=True)
class Interrupt:
    """One question of a run that waits. `approve`, `edit`, `reject` and `respond` make the answers to it."""

    id: str
    reason: str
    """`tool_approval`: may the call be made; `client_tool`: the caller runs the tool; `input`: a tool asks while it runs.

    A later version may have others.
    """
    tool: str | None = None
    tool_input: Any = None
    """What the tool would be called with."""
    tool_call_id: str | None = None
    message: str | None = None
    """The question in words."""
    response_schema: JsonObject | None = None
    """JSON Schema of an answer."""
    expires_at: datetime | None = None
    """When the call is given up without an answer; aware."""
    payload: Any = None
    """What a tool says to its question."""
    data: JsonObject = field(default_factory=dict[str, Any], repr=False)
    """The interrupt as it came."""

    def approve(self) -> Response:
        """The call is made as it stands here."""
        return Response.approve(self.id)

    def edit(self, tool_input: Mapping[str, Any] | str) -> Response:
        """The call is made with another input."""
        return Response.edit(self.id, tool_input)

    def reject(self, message: str | None = None) -> Response:
        """The call is not made; the model reads `message`."""
        return Response.reject(self.id, message)

    def respond(self, output: Any) -> Response:
        """`output` stands for the tool's own, or is the answer to what it asked."""
        return Response.respond(self.id, output)

    @property
    def decisions(self) -> tuple[str, ...]:
        """Which answers it takes, as its `response_schema` says; empty where it does not."""
        properties = optional_object(self.response_schema or {}, "properties") or {}
        allowed = (optional_object(properties, "decision") or {}).get("enum")
        return tuple(map(str, allowed)) if isinstance(allowed, list) else ()  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    @classmethod
    def of(cls, value: object) -> "Interrupt":
        """An Interrupt from its JSON. Raises `NotOurs`."""
        data = object_of(value, "an interrupt")
        return cls(
            id=required_text(data, "id", "an interrupt"),
            reason=optional_text(data, "reason") or "",
            tool=optional_text(data, "tool"),
            tool_input=data.get("tool_input"),
            payload=data.get("payload"),
            tool_call_id=optional_text(data, "tool_call_id"),
            message=optional_text(data, "message"),
            response_schema=optional_object(data, "response_schema"),
            expires_at=optional_time(data, "expires_at"),
            data=data,
        )
