"""A deferred call's end: what the tool called back with, or that it never did."""

from app.agent.ports import PlannedCall, Resumed
from app.core.errors import Unavailable
from app.tools.attempt import Attempt
from app.tools.callbacks import late_attempt
from app.tools.compiled import CompiledTool
from app.tools.ending import End, Live, output_end, settled
from app.tools.run_context import ToolRunContext


async def called_back(tool: CompiledTool, run: ToolRunContext, call: PlannedCall, place: str | None) -> End | None:
    """The end of a call whose own answer did not come, but whose tool has called back. `None`: nobody knows of that."""
    if not run.may_wait:
        return None
    try:
        result = await run.late_result(call.tool_call_id)
    except Unavailable:
        return None
    return None if result is None else _end(tool, late_attempt(tool.name, result, tool.max_result_bytes), place)


def late_end(tool: CompiledTool, live: Live, resumed: Resumed, place: str | None) -> End:
    """`place`: where an over-long result can be read whole."""
    answer = resumed.answer
    if answer.get("decision") == "expired":
        text = f"{tool.name} said that it would answer later, and did not in time"
        attempt = Attempt("uncertain", code="tool_timeout", message=text, timed_out=True)
    else:
        attempt = late_attempt(tool.name, answer, tool.max_result_bytes)
    end = _end(tool, attempt, place)
    live.note("execution", end.status, end.code or None)
    return end


def _end(tool: CompiledTool, attempt: Attempt, place: str | None) -> End:
    return output_end(tool, attempt, place) if attempt.kind == "output" else settled(tool, attempt)
