"""LangChain's serialised form of actions, steps, finishes and messages: what `langchain_core.load.load` reads. Pure.

A value of a caller, a model or a tool that looks like that form itself (a dict with the key `lc`) is wrapped as
`{"__lc_escaped__": …}`, as `langchain_core.load.dumpd` does: it is data, and loading must give it back as data.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from app.core.actions import AgentAction, AgentActionMessageLog, AgentFinish
from app.core.messages import Message, ToolCall

ESCAPED = "__lc_escaped__"

_CLASSES = {
    "system": ("SystemMessage", "system"), "user": ("HumanMessage", "human"), "assistant": ("AIMessage", "ai"),
    "tool": ("ToolMessage", "tool"),
}  # fmt: skip


def action_json(action: AgentAction) -> dict[str, object]:
    """An `AgentAction`, or an `AgentActionMessageLog` where the action came as a chat message.

    Not the peer's `ToolAgentAction`: its own `load` does not find that class.
    """
    values: dict[str, object] = {
        "tool": action.tool, "tool_input": escaped(action.tool_input), "log": action.log,
    }  # fmt: skip
    if not isinstance(action, AgentActionMessageLog):
        return _constructor(("agent", "AgentAction"), {**values, "type": "AgentAction"})
    log = [message_json(message) for message in action.message_log]
    return _constructor(
        ("agent", "AgentActionMessageLog"), {**values, "type": "AgentActionMessageLog", "message_log": log}
    )


def step_json(action: AgentAction, observation: object) -> dict[str, object]:
    """`{"action": …, "observation": any JSON}`: the pair that AgentExecutor returns. The peer cannot load its own AgentStep."""
    return {"action": action_json(action), "observation": escaped(observation)}


def finish_json(finish: AgentFinish) -> dict[str, object]:
    return _constructor(
        ("agent", "AgentFinish"),
        {"return_values": escaped(finish.return_values), "log": finish.log, "type": "AgentFinish"},
    )


def message_json(message: Message) -> dict[str, object]:
    name, kind = _CLASSES[message.role]
    values: dict[str, object] = {
        "content": "" if message.content is None else escaped(message.content), "type": kind,
    }  # fmt: skip
    if message.name is not None:
        values["name"] = message.name
    if message.role == "tool":
        values |= {"tool_call_id": message.tool_call_id or "", "status": message.status or "success"}
    if message.role == "assistant":
        values["tool_calls"] = [_call(call, call.args) for call in message.tool_calls if isinstance(call.args, dict)]
        values["invalid_tool_calls"] = [
            {"type": "invalid_tool_call", "id": call.id, "name": call.name, "args": call.args, "error": None}
            for call in message.tool_calls
            if isinstance(call.args, str)
        ]
        if message.refusal is not None:
            values["additional_kwargs"] = {"refusal": message.refusal}
    return _constructor(("messages", name), values)


def escaped(value: object) -> object:
    """JSON data that `load` gives back as it is, whatever it looks like."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        if "lc" in fields or (len(fields) == 1 and ESCAPED in fields):
            return {ESCAPED: fields}
        return {key: escaped(item) for key, item in fields.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [escaped(item) for item in cast("Sequence[object]", value)]
    return value


def _call(call: ToolCall, args: Mapping[str, object]) -> dict[str, object]:
    return {"name": call.name, "args": escaped(args), "id": call.id, "type": "tool_call"}


def _constructor(path: tuple[str, str], values: Mapping[str, object]) -> dict[str, object]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", *path], "kwargs": values}
