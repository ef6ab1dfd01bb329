"""The set of in-process tools: Python functions found by entry point or by name, compiled at start-up."""

import asyncio
import contextvars
import functools
import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import structlog
from pydantic import ValidationError

from app.agent.ports import ToolDefinition
from app.agent.state_schema import own_copy
from app.core.errors import InvalidRequest
from app.core.events import EventType
from app.core.ids import NAME_PATTERN
from app.core.interrupts import Interrupted
from app.core.json import encode
from app.core.leash import leashed
from app.core.plugins import PluginError, load_plugins
from app.core.values import immutable
from app.tools.approval import rule_of
from app.tools.attempt import Attempt, Send, Sending
from app.tools.compiled import CompiledTool, text_key_of
from app.tools.plugin_api import Command, Tool, ToolContext, ToolError, no_store
from app.tools.progress import Reports
from app.tools.questions import Questions
from app.tools.result import as_json
from app.tools.run_view import StateView
from app.tools.schema import check_schema
from app.tools.signature import Signature, read_signature
from app.tools.store_api import ToolStore

ENTRY_POINT_GROUP = "runwire.tools"

THREADS = 64
"""How many synchronous tools run at once; more wait their turn."""

MAX_TOLD_BYTES = 64 * 1024
"""Longest data of an event that a tool sends: a row of the journal stays about as small."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

AnyTool = Tool[..., object]


class PluginSet:
    """Tools by name, ready to run. Made once, at start-up."""

    def __init__(self, tools: Iterable[AnyTool] = (), *, approve_writes: bool = False) -> None:
        """Raises `PluginError`: a wrong name or signature, two tools of one name."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="runwire-tool")
        self._tools: dict[str, CompiledTool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise PluginError(f"There are two plugin tools named {tool.name!r}; rename one.")
            self._tools[tool.name] = _compile(tool, self._threads, approve_writes=approve_writes)

    @classmethod
    def load(
        cls,
        names: Sequence[str] = (),
        *,
        entry_points: bool = True,
        also: Iterable[AnyTool] = (),
        approve_writes: bool = False,
    ) -> "PluginSet":
        """From `module[:attr]` names, then the entry points of group `runwire.tools`, and the tools given.

        A module without `attr` stands for every tool in it. Raises `PluginError`.
        """
        group = ENTRY_POINT_GROUP if entry_points else None
        found = {id(tool): tool for tool in (*also, *load_plugins(cast("type[AnyTool]", Tool), names, group))}
        return cls(found.values(), approve_writes=approve_writes)

    def get(self, name: str) -> CompiledTool | None:
        return self._tools.get(name)

    @property
    def names(self) -> Sequence[str]:
        """In name order."""
        return sorted(self._tools)

    def close(self) -> None:
        """Let the threads go; a function that still runs in one is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _compile(tool: AnyTool, threads: ThreadPoolExecutor, *, approve_writes: bool) -> CompiledTool:
    if not re.fullmatch(NAME_PATTERN, tool.name):
        raise PluginError(f"Plugin tool {tool.name!r}: a name must match {NAME_PATTERN}.")
    if not 0 < tool.timeout_s <= 3600:
        raise PluginError(f"Plugin tool {tool.name!r}: timeout_s must be above 0 and at most 3600 seconds.")
    if tool.effect not in ("pure", "read", "write"):
        raise PluginError(f'Plugin tool {tool.name!r}: effect must be "pure", "read" or "write".')
    try:
        signature = read_signature(tool.function)
        schema = check_schema(signature.parameters, "")
        asks = tool.requires_approval
        approval = rule_of((approve_writes and tool.effect == "write") if asks is None else asks)
    except TypeError as error:
        raise PluginError(f"Plugin tool {tool.name!r}: {error}.") from error
    except InvalidRequest as error:
        details = "; ".join(f"{fault.pointer}: {fault.detail}" for fault in error.errors)
        raise PluginError(f"Plugin tool {tool.name!r}: {error.message} {details}") from error
    return CompiledTool(
        name=tool.name,
        source="plugin",
        version=None,
        definition=ToolDefinition(tool.name, tool.description, signature.parameters),
        schema=schema,
        approval=() if approval is None else (approval,),
        executor=PluginExecutor(tool.function, signature, threads),
        effect=tool.effect,
        idempotent=tool.idempotent,
        scopes=tool.scopes,
        return_direct=tool.return_direct,
        timeout_s=tool.timeout_s,
        text_key=text_key_of(signature.parameters),
    )


@immutable
class PluginExecutor:
    """Calls the function: directly under a timeout if it is async, else in a thread."""

    function: Callable[..., object]
    signature: Signature
    threads: ThreadPoolExecutor
    max_result_bytes: int = 1 << 20

    def prepare(self, sending: Sending) -> Send:
        return functools.partial(self._send, sending)

    async def _send(self, sending: Sending, attempt: int, timeout_s: float) -> Attempt:
        """A tool that asked waits for its answer, whatever else it did: it may have caught the interrupt and gone on."""
        questions = Questions(sending.answers.given)
        try:
            came = await self._called(sending, attempt - sending.answers.sent, timeout_s, questions)
        except (Interrupted, BaseExceptionGroup) as error:  # a task group wraps it
            if questions.open is None and isinstance(error, Interrupted):
                return _broken(sending, "raised an interrupt of another call")
            if questions.open is None:
                raise
            came = None
        if questions.open is not None:
            return Attempt("asks", code="interrupted", question=questions.open)
        assert came is not None
        return came

    async def _called(self, sending: Sending, attempt: int, timeout_s: float, questions: Questions) -> Attempt:
        timer = asyncio.timeout(timeout_s)
        try:
            arguments = self._arguments(sending, attempt, questions)
            async with timer:
                if self.signature.is_async:
                    call = cast("Callable[..., Coroutine[Any, Any, object]]", self.function)
                    output = await leashed(call(**arguments), "tool", sending.tool)
                else:
                    work = functools.partial(contextvars.copy_context().run, self.function, **arguments)
                    output = await asyncio.get_running_loop().run_in_executor(self.threads, work)
            command = output if isinstance(output, Command) else None
            value, meta, whole = as_json(output if command is None else command.output, self.max_result_bytes)
        except ToolError as error:
            text = error.message or "Tool execution error"
            return Attempt("failed", code=error.code, message=text, retryable=error.retryable)
        except asyncio.CancelledError:
            if _being_cancelled():
                raise
            return _broken(sending, "cancelled itself")
        except Exception as error:  # noqa: BLE001  # the named boundary: foreign code behind it
            if isinstance(error, TimeoutError) and timer.expired():
                text = f"{sending.tool} did not finish within {timeout_s:g} s."
                return Attempt("uncertain", code="tool_timeout", message=text, timed_out=True)
            return _broken(sending, error)
        if command is None:
            return Attempt("output", value, meta=meta, whole=whole)
        return Attempt("output", value, meta=meta, whole=whole, update=command.update, goto=command.goto)

    def _arguments(self, sending: Sending, attempt: int, questions: Questions) -> Mapping[str, object]:
        signature = self.signature
        arguments = sending.arguments
        for name in signature.integers:
            value = arguments.get(name)
            if isinstance(value, float):
                arguments = {**arguments, name: int(value)}
        if signature.adapter is not None:
            try:
                converted = signature.adapter.validate_python(arguments)
            except ValidationError as error:
                details = "; ".join(f"at /{'/'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
                raise ToolError(f"Its arguments do not fit: {details}", code="invalid_arguments") from error
            arguments = {name: getattr(converted, name) for name in arguments}
        if signature.context_parameter is not None:
            arguments = {**arguments, signature.context_parameter: _context(sending, attempt, questions)}
        return arguments


def _context(sending: Sending, attempt: int, questions: Questions) -> ToolContext:
    return ToolContext(
        sending.principal,
        sending.run_id,
        sending.thread_id,
        sending.tool_call_id,
        sending.idempotency_key,
        attempt,
        sending.context,
        StateView(sending.view),
        _teller(sending),
        _opener(sending),
        questions.ask,
    )


def _opener(sending: Sending) -> Callable[[], ToolStore]:
    """Makes the store of the tool's tenant, where the tool asks for it."""
    if sending.store is None:
        return no_store
    return functools.partial(ToolStore, sending.store, sending.principal.tenant, asyncio.get_running_loop())


def _teller(sending: Sending) -> Callable[[str, Mapping[str, object]], None]:
    """Adds events to the run's stream from whatever thread the tool is in, in the order in which it tells them."""
    loop, here, reports = asyncio.get_running_loop(), threading.get_ident(), Reports(sending.timestamp_ms)

    def tell(event: str, data: Mapping[str, object]) -> None:
        told = told_data(sending, event, data)
        if event == "progress" and not reports.take():
            return
        name = cast("EventType", event)
        if threading.get_ident() == here:
            sending.view.tell(name, told)
        else:
            loop.call_soon_threadsafe(sending.view.tell, name, told)

    return tell


def told_data(sending: Sending, event: str, data: Mapping[str, object]) -> dict[str, object]:
    """An event's data, our own copy of it. Raises `ValueError`: no JSON, or too long."""
    copy = cast("dict[str, object]", own_copy(data))
    if len(encode(copy)) > MAX_TOLD_BYTES:
        raise ValueError(f"an event's data is at most {MAX_TOLD_BYTES} bytes")
    by = {"by": f"tool:{sending.tool}"} if event == "custom" else {}
    return {**by, "tool_call_id": sending.tool_call_id, **copy}


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _broken(sending: Sending, error: BaseException | str) -> Attempt:
    """The general sentence for an exception nobody meant to raise: its text goes to the log only."""
    request_id = sending.new_id()
    _log.error(
        "tool_failed",
        tool=sending.tool,
        tool_call_id=sending.tool_call_id,
        run_id=sending.run_id,
        request_id=request_id,
        exc_info=error if isinstance(error, BaseException) else None,
    )
    return Attempt(
        "failed", code="tool_failed", message=f"The tool failed. (request {request_id})", request_id=request_id
    )
