"""A deferred call's end: what the tool called back with, or that it never did."""

from app.agent.ports import Resumed
from app.tools.attempt import Attempt
from app.tools.callbacks import late_attempt
from app.tools.compiled import CompiledTool
from app.tools.ending import End, Live, output_end, settled


def late_end(tool: CompiledTool, live: Live, resumed: Resumed, place: str | None) -> End:
    """`place`: where an over-long result can be read whole."""
    answer = resumed.answer
    if answer.get("decision") == "expired":
        text = f"{tool.name} said that it would answer later, and did not in time"
        attempt = Attempt("uncertain", code="tool_timeout", message=text, timed_out=True)
    else:
        attempt = late_attempt(tool.name, answer, tool.max_result_bytes)
    end = output_end(tool, attempt, place) if attempt.kind == "output" else settled(tool, attempt)
    live.note("execution", end.status, end.code or None)
    return end
