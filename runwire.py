"""Runwire's public module: what plugins in Python need, and the client. What is in `app` is private to the server.

from runwire import ToolContext, ToolError, tool

@tool(effect="read")
async def lookup_order(order_id: str, context: ToolContext) -> dict[str, object]:
    '''Find an order by its id.'''
"""

import importlib
from typing import TYPE_CHECKING

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
from app.core.actions import AgentAction, AgentFinish, AgentStep
from app.core.errors import ModelError
from app.core.messages import Message, ToolCall
from app.core.usage import TokenUsage
from app.models.plugin_api import ModelPlugin, model
from app.tools.plugin_api import Command, Effect, Tool, ToolContext, ToolError, tool
from app.tools.policy_api import PolicyAnswer, PolicyRequest, ToolPolicy, tool_policy

if TYPE_CHECKING:
    from app.client import (
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
        StreamLost,
        Unauthorized,
        UnexpectedAnswer,
    )

_CLIENT = frozenset(
    (
        "Client", "ClientError", "Conflict", "ConnectionFailed", "Event", "FieldProblem", "Forbidden", "Gone", "Interrupt",
        "InvalidRequest", "NotFound", "Page", "ProblemError", "RateLimited", "Response", "Run", "RunStream", "ServerError", "Step", "StreamLost",
        "Unauthorized", "UnexpectedAnswer",
    )
)  # fmt: skip
"""Loaded when asked for: a plugin needs no HTTP client."""


def __getattr__(name: str) -> object:
    if name in _CLIENT:
        value = globals()[name] = getattr(importlib.import_module("app.client"), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AgentAction",
    "AgentFinish",
    "AgentStep",
    "ChatModel",
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
    "StreamLost",
    "TextDelta",
    "TokenUsage",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolPolicy",
    "Unauthorized",
    "UnexpectedAnswer",
    "model",
    "parsing_error_handler",
    "planner",
    "reducer",
    "step_trimmer",
    "tool",
    "tool_policy",
]
