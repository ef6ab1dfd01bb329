"""Request bodies as tests post them."""

from collections.abc import Mapping
from typing import Any, cast

from tests.support.chat_completions import RecordedRequest


def scripted(*turns: Mapping[str, object], repeat: bool = False) -> dict[str, object]:
    """A model that plays turns."""
    return {"provider": "scripted", "script": list(turns), "repeat": repeat}


def says(content: str, **more: object) -> dict[str, object]:
    return {"content": content, **more}


def calls(*wanted: tuple[str, Mapping[str, object]], **more: object) -> dict[str, object]:
    """A turn that calls tools `(name, arguments)`, with the ids call_1, call_2, …"""
    made = [{"id": f"call_{number}", "name": name, "args": dict(args)} for number, (name, args) in enumerate(wanted, 1)]
    return {"tool_calls": made, **more}


def openai(base_url: str, **more: object) -> dict[str, object]:
    """An inline model of a tenant's own server."""
    return {"provider": "openai", "model": "test-model", "base_url": base_url, **more}


def shown(request: RecordedRequest) -> list[dict[str, Any]]:
    """The messages that a model was shown."""
    return cast("list[dict[str, Any]]", request.json["messages"])


def run_body(model: object, *tools: object, text: object = "go", **more: object) -> dict[str, object]:
    """A RunCreate with an inline agent. `agent` in `more` adds settings to it."""
    settings = cast("dict[str, object]", more.pop("agent", {}))
    return {"agent": {"model": model, "tools": list(tools), **settings}, "input": text, **more}


def tool_spec(name: str, url: str, **more: object) -> dict[str, object]:
    """A ToolSpec whose arguments are free."""
    return {"name": name, "description": f"The tool {name}.", "http": {"url": url}, **more}
