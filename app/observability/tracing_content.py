"""Content in spans: what was said, asked and answered, where the operator asks for it. Bounded, and without secrets."""

from collections.abc import Iterable

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai

from app.agent.ports import ModelAnswer, ModelRequest, PlannedCall, ToolOutcome
from app.core.json import encode_text
from app.core.messages import Message
from app.observability.redaction import Redactor

MAX_CHARS = 8192
"""Characters of one attribute."""


class Content:
    """Attributes in the shape of the semantic conventions: messages with `role` and `parts`, as JSON text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets`: the server's own, which are cut out wherever they turn up."""
        self._redactor = Redactor(secrets)

    def asked(self, request: ModelRequest) -> dict[str, str]:
        """The conversation's end, as much as fits, oldest first; system text apart."""
        parts: list[str] = []
        room = MAX_CHARS - 2
        for message in reversed(request.messages):
            if message.role != "system":
                text = _bounded(self._message(message), room)
                room -= len(text) + 1
                if room < 0:
                    break
                parts.append(text)
        found = {gen_ai.GEN_AI_INPUT_MESSAGES: f"[{','.join(reversed(parts))}]"}
        system = [self._text(message) for message in request.messages if message.role == "system"]
        if system:
            found[gen_ai.GEN_AI_SYSTEM_INSTRUCTIONS] = _bounded([_text_part(text) for text in system])
        return found

    def answered(self, answer: ModelAnswer) -> dict[str, str]:
        parts = [_text_part(self._redactor.text(answer.content))] if answer.content else []
        parts += [
            self._call(call.provider_id, call.name, call.raw_args if call.args is None else call.args)
            for call in answer.calls
        ]
        message = {"role": "assistant", "parts": parts, "finish_reason": answer.finish_reason}
        return {gen_ai.GEN_AI_OUTPUT_MESSAGES: _bounded([message])}

    def arguments(self, call: PlannedCall) -> dict[str, str]:
        return {gen_ai.GEN_AI_TOOL_CALL_ARGUMENTS: _bounded(self._redactor.value(call.action.tool_input))}

    def result(self, outcome: ToolOutcome) -> dict[str, str]:
        return {gen_ai.GEN_AI_TOOL_CALL_RESULT: _bounded(self._redactor.value(outcome.observation))}

    def _message(self, message: Message) -> object:
        text = self._text(message)
        if message.role == "tool":
            part = {"type": "tool_call_response", "id": message.tool_call_id, "response": text}
            return {"role": "tool", "parts": [part]}
        parts = [_text_part(text)] if text else []
        parts += [self._call(call.id, call.name, call.args) for call in message.tool_calls]
        return {"role": message.role, "parts": parts}

    def _call(self, call_id: str | None, name: str, arguments: object) -> dict[str, object]:
        return {"type": "tool_call", "id": call_id, "name": name, "arguments": self._redactor.value(arguments)}

    def _text(self, message: Message) -> str:
        if isinstance(message.content, list):
            said = " ".join(str(part.get("text") or f"[{part.get('type')}]") for part in message.content)
            return self._redactor.text(said)
        return self._redactor.text(message.content or "")


def _text_part(text: str) -> dict[str, object]:
    return {"type": "text", "content": text}


def _bounded(value: object, room: int = MAX_CHARS) -> str:
    """A value as JSON text; of one that does not fit its begin, and how long it was."""
    try:
        text = encode_text(value)
    except (TypeError, ValueError):  # a lone surrogate, a number beyond 64 bits
        return '"[not JSON]"'
    if len(text) <= room:
        return text
    said = encode_text({"cut": text[: max(0, room - 128) // 2], "chars": len(text)})
    return said if len(said) <= room else encode_text({"chars": len(text)})
