"""Messages as the model is shown them, in Chat Completions' shape."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, cast

from app.core.values import immutable

Role = Literal["system", "user", "assistant", "tool"]

Content = str | list[dict[str, object]] | None
"""Text, or parts as Chat Completions has them (`{"type":"text","text":…}`, `{"type":"image_url",…}`)."""

OwnBlocks = dict[str, list[dict[str, object] | str]]
"""A model's answer in its provider's own blocks, by provider. A text stands for the tool call of that id."""


@immutable
class ToolCall:
    """A call inside an assistant message. `id` is the model-facing one: the provider's, or ours where it was missing or repeated."""

    id: str
    name: str
    args: dict[str, object] | str
    """The arguments; text where the model's JSON could not be parsed (kept as it came)."""


@immutable
class Message:
    role: Role
    content: Content = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    refusal: str | None = None
    """What the model said instead of an answer, where the provider tells the two apart."""
    provider_blocks: OwnBlocks | None = None
    """What a provider wants back unchanged (signed thinking), in order with the rest of its answer; others do not read it.

    A tool call is named by its id and stands in `tool_calls`, so a call that is left out there is left out here too.
    """
    status: Literal["error"] | None = None
    """Of a tool's message: the call did not succeed. Some providers are told (`is_error`), others read it in the content."""
    wire: dict[str, bytes] = field(default_factory=dict[str, bytes], compare=False, repr=False)
    """A cache for model clients: this message as one provider's JSON. Messages never change, so it is encoded once."""

    def to_json(self) -> dict[str, object]:
        body: dict[str, object] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            body["tool_calls"] = [{"id": call.id, "name": call.name, "args": call.args} for call in self.tool_calls]
        if self.tool_call_id is not None:
            body["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            body["name"] = self.name
        if self.refusal is not None:
            body["refusal"] = self.refusal
        if self.provider_blocks is not None:
            body["provider_blocks"] = self.provider_blocks
        if self.status is not None:
            body["status"] = self.status
        return body

    def shown(self) -> dict[str, object]:
        """As callers read it, and may send it back: without `provider_blocks`, which only a provider can make."""
        body = self.to_json()
        body.pop("provider_blocks", None)
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, object]) -> "Message":
        """The inverse of `to_json`, for what we stored ourselves (input from outside is checked by the API's schema)."""
        calls = cast("list[dict[str, object]]", body.get("tool_calls") or [])
        return cls(
            role=cast("Role", body["role"]),
            content=cast("Content", body.get("content")),
            tool_calls=tuple(
                ToolCall(str(call["id"]), str(call["name"]), cast("dict[str, object] | str", call["args"]))
                for call in calls
            ),
            tool_call_id=cast("str | None", body.get("tool_call_id")),
            name=cast("str | None", body.get("name")),
            refusal=cast("str | None", body.get("refusal")),
            provider_blocks=cast("OwnBlocks | None", body.get("provider_blocks")),
            status=cast('Literal["error"] | None', body.get("status")),
        )
