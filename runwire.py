"""Runwire's public module: what plugins in Python need, and the client. What is in `app` is private to the server.

from runwire import ToolContext, ToolError, tool

@tool(effect="read")
async def lookup_order(order_id: str, context: ToolContext) -> dict[str, object]:
    '''Find an order by its id.'''

In a wheel this module is the package `runwire`, and the server is inside it; in the repository and in an editable install
it is a module beside the package `app`. Names are loaded when they are asked for: a plugin needs no HTTP client, and the
command line, which starts here, no plugins.
"""

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.agent.plugin_api import (
        OutputParserException,
        PlannerContext,
        parsing_error_handler,
        planner,
        reducer,
        step_trimmer,
    )
    from app.agent.ports import (
        ChatModel,
        ModelAnswer,
        ModelRequest,
        ProposedCall,
        ReasoningDelta,
        TextDelta,
        ToolCallDelta,
        ToolDefinition,
    )
    from app.client import (
        Checkpoint,
        Client,
        ClientError,
        Conflict,
        ConnectionFailed,
        Event,
        FieldProblem,
        Forbidden,
        Gone,
        Interrupt,
        InvalidRequest,
        NotFound,
        Page,
        ProblemError,
        RateLimited,
        Response,
        Run,
        RunStream,
        ServerError,
        Step,
        StoreItem,
        StreamLost,
        Thread,
        ThreadState,
        Unauthorized,
        UnexpectedAnswer,
    )
    from app.core.actions import AgentAction, AgentFinish, AgentStep
    from app.core.errors import ModelError
    from app.core.messages import Message, ToolCall
    from app.core.usage import TokenUsage
    from app.models.plugin_api import ModelPlugin, model
    from app.runs.middleware.api import (
        CallModel,
        CallTool,
        Middleware,
        MiddlewareContext,
        ToolRequest,
        ToolResult,
        guardrail_check,
    )
    from app.tools.plugin_api import Command, Effect, Tool, ToolContext, ToolError, tool
    from app.tools.policy_api import PolicyAnswer, PolicyRequest, ToolPolicy, tool_policy
    from app.tools.store_api import StoreConflict, ToolStore

_HOMES = {
    "agent.plugin_api": (
        "OutputParserException", "PlannerContext", "parsing_error_handler", "planner", "reducer", "step_trimmer",
    ),
    "agent.ports": (
        "ChatModel", "ModelAnswer", "ModelRequest", "ProposedCall", "ReasoningDelta", "TextDelta", "ToolCallDelta",
        "ToolDefinition",
    ),
    "client": (
        "Checkpoint", "Client", "ClientError", "Conflict", "ConnectionFailed", "Event", "FieldProblem", "Forbidden", "Gone", "Interrupt",
        "InvalidRequest", "NotFound", "Page", "ProblemError", "RateLimited", "Response", "Run", "RunStream", "ServerError",
        "Step", "StoreItem", "StreamLost", "Thread", "ThreadState", "Unauthorized", "UnexpectedAnswer",
    ),
    "core.actions": ("AgentAction", "AgentFinish", "AgentStep"),
    "core.errors": ("ModelError",),
    "core.messages": ("Message", "ToolCall"),
    "core.usage": ("TokenUsage",),
    "models.plugin_api": ("ModelPlugin", "model"),
    "runs.middleware.api": (
        "CallModel", "CallTool", "Middleware", "MiddlewareContext", "ToolRequest", "ToolResult", "guardrail_check",
    ),
    "tools.plugin_api": ("Command", "Effect", "Tool", "ToolContext", "ToolError", "tool"),
    "tools.policy_api": ("PolicyAnswer", "PolicyRequest", "ToolPolicy", "tool_policy"),
    "tools.store_api": ("StoreConflict", "ToolStore"),
}  # fmt: skip
"""Where each public name lives in the server."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

_IS_PACKAGE = "__path__" in globals()
"""Whether this is the package of a wheel."""

_SERVER = f"{__name__}._server" if _IS_PACKAGE else "app"


def _load(module: str) -> ModuleType:
    """A module of the server. Raises `ImportError` where another package has the name of ours."""
    if not _IS_PACKAGE:
        _check_that_app_is_ours()
    return importlib.import_module(f"{_SERVER}.{module}")


def _check_that_app_is_ours() -> None:
    """Raises `ImportError`. Looks only: importing the other package could do anything."""
    spec = importlib.util.find_spec(_SERVER)
    if spec is None:
        return  # the import says so itself
    found = next(iter(spec.submodule_search_locations or ()), None) or spec.origin or "?"
    ours = os.path.join(os.path.dirname(os.path.abspath(__file__)), _SERVER)
    if os.path.realpath(found) != os.path.realpath(ours):
        raise ImportError(
            f"Python finds another {_SERVER!r} ({found}) before the one of this editable install of Runwire; "
            "install Runwire as a wheel, which takes no name but runwire: pip install <folder or URL>",
            name=_SERVER,
            path=found,
        )


def _main() -> None:
    """The command `runwire`."""
    try:
        command = _load("cli.main")
    except ImportError as error:
        if error.name == _SERVER:
            sys.exit(f"runwire: {error}")
        raise
    command.main()


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_load(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})


__all__ = [
    "AgentAction",
    "AgentFinish",
    "AgentStep",
    "CallModel",
    "CallTool",
    "ChatModel",
    "Checkpoint",
    "Client",
    "ClientError",
    "Command",
    "Conflict",
    "ConnectionFailed",
    "Effect",
    "Event",
    "FieldProblem",
    "Forbidden",
    "Gone",
    "Interrupt",
    "InvalidRequest",
    "Message",
    "Middleware",
    "MiddlewareContext",
    "ModelAnswer",
    "ModelError",
    "ModelPlugin",
    "ModelRequest",
    "NotFound",
    "OutputParserException",
    "Page",
    "PlannerContext",
    "PolicyAnswer",
    "PolicyRequest",
    "ProblemError",
    "ProposedCall",
    "RateLimited",
    "ReasoningDelta",
    "Response",
    "Run",
    "RunStream",
    "ServerError",
    "Step",
    "StoreConflict",
    "StoreItem",
    "StreamLost",
    "TextDelta",
    "Thread",
    "ThreadState",
    "TokenUsage",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolPolicy",
    "ToolRequest",
    "ToolResult",
    "ToolStore",
    "Unauthorized",
    "UnexpectedAnswer",
    "guardrail_check",
    "model",
    "parsing_error_handler",
    "planner",
    "reducer",
    "step_trimmer",
    "tool",
    "tool_policy",
]

if __name__ == "__main__":  # `python -m runwire`, where it is a module
    _main()
