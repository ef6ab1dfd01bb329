"""The cases' middleware, and tools, which the test server loads as plugins. What runs, and when, is told as `custom` events."""

# ruff: noqa: RUF012, ASYNC230  (schemas stand in their class, as authors write them; a line in a file is quick)

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from runwire import (
    CallModel,
    CallTool,
    Command,
    Message,
    Middleware,
    MiddlewareContext,
    ModelAnswer,
    ModelError,
    ModelRequest,
    ToolContext,
    ToolError,
    ToolRequest,
    ToolResult,
    guardrail_check,
    tool,
)

State = Mapping[str, object]


@tool(effect="pure")
async def echo(x: str, context: ToolContext) -> str:
    """echo"""
    context.custom(f"TOOL {x}")
    return f"echo:{x}"


@tool(effect="pure")
async def other(x: str) -> str:
    """other"""
    return f"other:{x}"


@tool(effect="read")
async def boom(x: str) -> str:
    """boom"""
    raise ValueError(f"kaput {x}")


@tool(effect="write")
async def pay(x: str, context: ToolContext) -> str:
    """pay"""
    context.custom(f"PAID {x}")
    raise ToolError("the bank says no")


@tool(effect="read")
async def look(x: str, context: ToolContext) -> str:
    """look"""
    context.custom(f"LOOKED {x}")
    raise ToolError("nothing there")


class Traced(Middleware):
    """Tells of every hook."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def before_agent(self, state: State, context: MiddlewareContext) -> None:
        context.custom(f"{self.name}.before_agent")

    async def before_model(self, state: State, context: MiddlewareContext) -> None:
        context.custom(f"{self.name}.before_model")

    def after_model(self, state: State, context: MiddlewareContext) -> None:
        context.custom(f"{self.name}.after_model")

    def after_agent(self, state: State, context: MiddlewareContext) -> None:
        context.custom(f"{self.name}.after_agent")

    async def wrap_model_call(
        self, request: ModelRequest, call_next: CallModel, context: MiddlewareContext
    ) -> ModelAnswer:
        context.custom(f"{self.name}.wrap_model>")
        answer = await call_next(request)
        context.custom(f"{self.name}.wrap_model<")
        return answer

    async def wrap_tool_call(self, request: ToolRequest, call_next: CallTool, context: MiddlewareContext) -> ToolResult:
        context.custom(f"{self.name}.wrap_tool>")
        result = await call_next(request)
        context.custom(f"{self.name}.wrap_tool<")
        return result


m1, m2, m3 = Traced("m1"), Traced("m2"), Traced("m3")


class Jump(Middleware):
    """Goes where its config says, at the hook that it says, the first `times` times."""

    name = "jump"
    config_schema = {
        "type": "object",
        "properties": {"at": {"type": "string"}, "to": {}, "times": {"type": "integer"}, "update": {"type": "object"}, "output": {}},
        "required": ["at"],
        "additionalProperties": False,
    }  # fmt: skip
    state_schema = {"jumps": {"schema": {"type": "integer"}, "reducer": "sum", "default": 0}}

    def _at(self, hook: str, state: State, context: MiddlewareContext) -> Command | None:
        config = cast("dict[str, Any]", context.config)
        if config["at"] != hook:
            return None
        context.custom(f"J.{hook}")
        if cast("int", state["jumps"]) >= config.get("times", 1000):
            return None
        return Command(
            update={"jumps": 1, **config.get("update", {})}, goto=config.get("to"), output=config.get("output")
        )

    def before_agent(self, state: State, context: MiddlewareContext) -> Command | None:
        return self._at("before_agent", state, context)

    async def before_model(self, state: State, context: MiddlewareContext) -> Command | None:
        return self._at("before_model", state, context)

    async def after_model(self, state: State, context: MiddlewareContext) -> Command | None:
        return self._at("after_model", state, context)

    async def after_agent(self, state: State, context: MiddlewareContext) -> Command | None:
        return self._at("after_agent", state, context)


class Model(Middleware):
    """What its config says becomes of the model's call."""

    name = "model"
    config_schema = {"type": "object", "properties": {"does": {"type": "string"}}, "required": ["does"]}

    def __init__(self, name: str, *, hold: bool = False) -> None:
        self.name = name
        self.hold_output = hold

    async def wrap_model_call(
        self, request: ModelRequest, call_next: CallModel, context: MiddlewareContext
    ) -> ModelAnswer:
        does = context.config["does"]
        if does == "short":
            return ModelAnswer("short-circuit")
        if does == "twice":
            await call_next(request)
            return await call_next(request)
        if does == "catch":
            try:
                return await call_next(request)
            except ModelError as error:
                return ModelAnswer(f"caught {error.code}")
        if does == "only echo":
            kept = [definition for definition in request.tools if definition.name == "echo"]
            return await call_next(request.override(tools=kept))
        if does == "nothing":
            return cast("ModelAnswer", None)
        if does == "prompt":
            return await call_next(request.override(messages=[Message("system", "Be kind."), *request.messages]))
        answer = await call_next(request)
        return answer.override(content="REDACTED")


around, held = Model("around"), Model("held", hold=True)


class ToolCalls(Middleware):
    """What its config says becomes of a tool's call."""

    name = "calls"
    config_schema = {"type": "object", "properties": {"does": {"type": "string"}}, "required": ["does"]}

    async def wrap_tool_call(
        self, request: ToolRequest, call_next: CallTool, context: MiddlewareContext
    ) -> ToolResult | Command:
        does = context.config["does"]
        if does == "block":
            return ToolResult(output="blocked")
        if does == "deny":
            raise ToolError("not today", code="closed")
        if does == "change":
            return await call_next(request.override(arguments={"x": "changed"}))
        if does == "spoil":
            return await call_next(request.override(arguments={"y": "unknown"}))
        if does == "reword":
            result = await call_next(request)
            return result.override(output=f"E:{result.output}")
        if does == "write":
            result = await call_next(request)
            return Command(output=result.output, update={"seen": [request.tool]})
        if does == "end":
            return Command(output="that is all", goto="end")
        for _ in range(2):
            result = await call_next(request)
        return await call_next(request.override(arguments=request.arguments))


class Counts(Middleware):
    """Keeps what it counts in the state."""

    name = "counts"
    state_schema = {
        "a": {"schema": {"type": "array"}, "reducer": "append"},
        "b": {"schema": {"type": "integer"}},
    }

    def before_model(self, state: State, context: MiddlewareContext) -> State:
        return {"a": ["m2"], "b": cast("int", state.get("b", 0)) + 1}


class Appends(Middleware):
    name = "appends"
    state_schema = {"a": {"schema": {"type": "array"}, "reducer": "append"}}

    def before_model(self, state: State, context: MiddlewareContext) -> State:
        return {"a": ["m1"]}


class Clashes(Middleware):
    name = "clashes"
    state_schema = {"a": {"schema": {"type": "integer"}, "reducer": "sum"}}

    def before_model(self, state: State, context: MiddlewareContext) -> None:
        return None


class Notes(Middleware):
    """Adds a message before every call of the model."""

    name = "notes"

    def before_model(self, state: State, context: MiddlewareContext) -> State:
        return {"messages": [{"role": "user", "content": "note"}]}


class Raises(Middleware):
    """Fails where its config says."""

    name = "raises"
    config_schema = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}

    def _at(self, hook: str, context: MiddlewareContext) -> None:
        if context.config["at"] == hook:
            raise KeyError("the secret of the hook")

    def before_agent(self, state: State, context: MiddlewareContext) -> None:
        self._at("before_agent", context)

    async def before_model(self, state: State, context: MiddlewareContext) -> None:
        self._at("before_model", context)

    async def after_model(self, state: State, context: MiddlewareContext) -> None:
        self._at("after_model", context)

    async def after_agent(self, state: State, context: MiddlewareContext) -> None:
        self._at("after_agent", context)

    async def wrap_model_call(
        self, request: ModelRequest, call_next: CallModel, context: MiddlewareContext
    ) -> ModelAnswer:
        self._at("wrap_model_call", context)
        return await call_next(request)

    async def wrap_tool_call(self, request: ToolRequest, call_next: CallTool, context: MiddlewareContext) -> ToolResult:
        result = await call_next(request)
        self._at("wrap_tool_call", context)
        return result


class Waits(Middleware):
    """Writes a line to the file that the context names, and hangs where its config says, as long as there is no file `go` beside it."""

    name = "waits"
    config_schema = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
    state_schema = {"marks": {"schema": {"type": "array"}, "reducer": "append"}}

    async def _at(self, hook: str, context: MiddlewareContext) -> State | None:
        if "file" not in context.context:
            if context.config["at"] == hook:
                await asyncio.Event().wait()
            return None
        path = Path(str(context.context["file"]))
        with path.open("a") as file:
            file.write(f"{hook}\n")
        if context.config["at"] == hook and not path.with_name("go").exists():
            context.custom("waiting")
            await asyncio.Event().wait()
        return {"marks": [hook]}

    def before_agent(self, state: State, context: MiddlewareContext) -> Awaitable[State | None]:
        return self._at("before_agent", context)

    def before_model(self, state: State, context: MiddlewareContext) -> Awaitable[State | None]:
        return self._at("before_model", context)

    def after_model(self, state: State, context: MiddlewareContext) -> Awaitable[State | None]:
        return self._at("after_model", context)

    def after_agent(self, state: State, context: MiddlewareContext) -> Awaitable[State | None]:
        return self._at("after_agent", context)


class Deaf(Middleware):
    """Takes no cancellation for an answer."""

    name = "deaf"
    config_schema = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}

    async def _at(self, hook: str, context: MiddlewareContext) -> None:
        if context.config["at"] == hook:
            context.custom("waiting")
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    continue

    async def before_model(self, state: State, context: MiddlewareContext) -> None:
        await self._at("before_model", context)

    async def wrap_model_call(
        self, request: ModelRequest, call_next: CallModel, context: MiddlewareContext
    ) -> ModelAnswer:
        await self._at("wrap_model_call", context)
        return await call_next(request)

    async def wrap_tool_call(self, request: ToolRequest, call_next: CallTool, context: MiddlewareContext) -> ToolResult:
        result = await call_next(request)
        await self._at("wrap_tool_call", context)
        return result


@guardrail_check("shouts")
def shouts(text: str) -> bool:
    if text == "fail":
        raise KeyError("the secret of the check")
    return text.isupper()


plugins: Sequence[Middleware] = (
    Jump(), ToolCalls(), Counts(), Appends(), Clashes(), Notes(), Raises(), Waits(), Deaf(),
)  # fmt: skip
jump, calls, counts, appends, clashes, notes, raises, waits, deaf = plugins
