"""A tool as callers see it: its spec without any secret, and what the server knows of it."""

from typing import cast

from app.core.clock import rfc3339
from app.core.registry import Versioned
from app.tools.compiled import CompiledTool


def registered_json(tool: Versioned, *, shadowed: bool = False) -> dict[str, object]:
    """The stored spec with its secrets left out, `version`, `source` and `created_at` (RFC 3339).

    `shadowed`: a plugin of its name serves in its place.
    """
    body = {name: value for name, value in tool.spec.items() if name != "signing_secret"}
    if body["http"] is not None:
        http = dict(cast("dict[str, object]", body["http"]))
        if http.get("auth") is not None:
            http["auth"] = {"type": "bearer"}
        headers = cast("dict[str, object]", http.get("headers") or {})
        http["headers"] = {name: value if isinstance(value, str) else None for name, value in headers.items()}
        body["http"] = http
    body["version"] = tool.version
    body["source"] = "registered"
    body["shadowed"] = shadowed
    body["created_at"] = rfc3339(tool.created_at)
    return body


def shadowed_by_plugin(name: str) -> str:
    """For the operator: what a registered tool's name being a plugin's means, and what to do."""
    return (
        f"The plugin tool {name} serves in the place of a registered tool of that name."
        f" Rename one, or remove the registered one with DELETE /tools/{name}."
    )


def plugin_json(tool: CompiledTool) -> dict[str, object]:
    """The same of an in-process tool; it has no version, no time and no address."""
    return {
        "name": tool.name,
        "description": tool.definition.description,
        "parameters": dict(tool.definition.parameters),
        "output_schema": None,
        "http": None,
        "effect": tool.effect,
        "idempotent": tool.idempotent,
        "coerce": False,
        "requires_approval": False,
        "scopes": list(tool.scopes),
        "return_direct": tool.return_direct,
        "constants": {},
        "timeout_s": tool.timeout_s,
        "deadline_s": tool.deadline_s,
        "retry": {"max_attempts": tool.max_attempts},
        "status_url": None,
        "concurrency_key": None,
        "max_concurrency": None,
        "max_result_bytes": tool.max_result_bytes,
        "version": None,
        "source": "plugin",
        "shadowed": False,
        "created_at": None,
    }
