"""Tools, a middleware and a model in Python, inside the server: `RUNWIRE_PLUGINS=shop`. See README.md."""

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, ClassVar, cast

from pydantic import Field

from runwire import (
    CallTool,
    Command,
    Middleware,
    MiddlewareContext,
    ModelAnswer,
    ModelError,
    ModelRequest,
    ProposedCall,
    TextDelta,
    TokenUsage,
    ToolContext,
    ToolError,
    ToolRequest,
    ToolResult,
    model,
    tool,
)

ORDERS = {
    ("default", "A-17"): {"item": "teapot", "status": "on its way"},
    ("other", "B-3"): {"item": "kettle", "status": "delivered"},
}
"""By tenant and id. A real tool asks your database."""


@tool(effect="read")
async def order_status(
    order_id: Annotated[str, Field(description="As in A-17", pattern="^[A-Z]-[0-9]+$")], context: ToolContext
) -> dict[str, str]:
    """Find out where an order is."""
    # The tenant is who the run acts for. Never take it from the arguments: the model chooses those.
    order = ORDERS.get((context.principal.tenant, order_id))
    if order is None:
        raise ToolError(f"There is no order {order_id}.", code="no_order")  # the model reads this
    return order


@tool
def cancel_order(order_id: str, context: ToolContext) -> str:
    """Cancel an order."""
    # Runs again from its start with the answer: what has an effect stands behind the question.
    why = context.interrupt({"order": order_id}, {"type": "string", "minLength": 1}, message=f"Why cancel {order_id}?")
    return f"{order_id} is cancelled: {why}"


class Once(Middleware):
    """Answers a call that was made before in the thread from memory, without asking the tool."""

    name = "once"
    description = "Remembers what tools that only read have answered."
    state_schema: ClassVar[Mapping[str, Mapping[str, object]]] = {"answers": {"reducer": "merge_object", "default": {}}}

    async def wrap_tool_call(
        self, request: ToolRequest, call_next: CallTool, context: MiddlewareContext
    ) -> ToolResult | Command:
        key = f"{request.tool} {json.dumps(request.arguments, sort_keys=True)}"
        known = cast("Mapping[str, object]", context.state["answers"])
        if key in known:
            return ToolResult(output=known[key])
        result = await call_next(request)
        if request.effect != "read" or result.status != "success":
            return result
        return Command(output=result.output, update={"answers": {key: result.output}})


once = Once()


@model("clerk", description="Looks up the order that is asked about; no language model.")
class Clerk:
    """Stands for a model that is called in a way of its own: over another protocol, in another process."""

    def __init__(self, model: str, params: Mapping[str, object]) -> None:
        greeting = params.get("greeting", "")
        if not isinstance(greeting, str):
            raise ModelError("`greeting` is text.", code="model_bad_request")
        self.name = model
        self._greeting = greeting

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelAnswer]:
        last = request.messages[-1]
        said = str(last.content)
        if last.role == "user" and any(offered.name == "order_status" for offered in request.tools):
            order_id = said.rstrip("?!. ").rpartition(" ")[2]
            yield ModelAnswer("", (ProposedCall("order_status", {"order_id": order_id}),), finish_reason="tool_calls")
            return
        text = f"{self._greeting}This is what I found: {said}"
        for word in text.split(" "):
            yield TextDelta(f"{word} ")
        yield ModelAnswer(text, tokens=TokenUsage(input_tokens=len(said), output_tokens=len(text)))
