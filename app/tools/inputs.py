"""Inputs: a call that asked while it ran, how it waits for the answer, and how it goes on with it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from app.agent.ports import PlannedCall, Resumed, Waiting
from app.core.clock import now_ms, rfc3339
from app.core.errors import FieldError
from app.core.json import encode_text
from app.tools.compiled import CompiledTool
from app.tools.ending import End, Live
from app.tools.questions import NONE_GIVEN, Answers, Question
from app.tools.schema import ArgumentSchema

INPUT_DECISIONS = ("respond", "reject")


def answers_of(resumed: Resumed | None) -> Answers:
    """The answers that a call goes on with. One that asked nothing while it ran has none."""
    if resumed is None or resumed.waiting.reason != "input":
        return NONE_GIVEN
    before = cast("list[object]", resumed.waiting.facts.get("answers") or [])
    return Answers((*before, resumed.answer.get("output")), attempts_before(resumed.waiting))


def attempts_before(waiting: Waiting) -> int:
    """How many attempts stopped at a question: they are settled, whatever became of the process."""
    return cast("int", waiting.facts.get("sent") or 0) if waiting.reason == "input" else 0


def needs_input(
    call: PlannedCall,
    tool: CompiledTool,
    live: Live,
    question: Question,
    given: Sequence[object],
    sent: int,
    new_id: str,
) -> Waiting:
    """The call waits for the answer to what it asked in its attempt `sent`. `given`: the answers before that."""
    until = now_ms() + int(question.expires_s * 1000)
    live.note("execution", "interrupted", "it asks, and runs again with the answer")
    facts: dict[str, object] = {
        "started_at": live.started_at,
        "chain": live.chain,
        "attempts": live.attempts,
        "tool_version": tool.version,
        "tool_input": call.action.tool_input,
        "answers": list(given),
        "sent": sent,
    }
    return Waiting("input", until, facts, _shown(call, tool, question, new_id, until))


def as_it_ran(call: PlannedCall, resumed: Resumed) -> PlannedCall:
    """The call with the input that it ran with, which a person may have edited."""
    tool_input = resumed.waiting.facts.get("tool_input")
    if not isinstance(tool_input, str | dict):
        return call
    return replace(call, action=replace(call.action, tool_input=cast("str | dict[str, object]", tool_input)))


def refused(tool: str, answer: Mapping[str, object]) -> End | None:
    """The end of a call whose question was rejected, or not answered in time; `None`: it runs again."""
    if answer["decision"] == "expired":
        return End("denied", f"{tool} did not go on: nobody answered its question in time.", "interrupt_expired")
    if answer["decision"] == "reject":
        said = str(answer.get("message") or "").strip()
        because = f": {said}" if said else "."
        return End("denied", f"{tool} did not go on: its question was rejected{because}", "rejected")
    return None


def answer_schema(
    decisions: Sequence[str], output: Mapping[str, object] | None, interrupt_id: str
) -> dict[str, object]:
    """JSON Schema of an answer, an item of `responses` without its id. `output`: what an answer's output must fit."""
    if output is not None and "$id" not in output and "$ref" in encode_text(output):
        output = {"$id": f"urn:uuid:{interrupt_id}", **output}  # so that what it refers to is itself, here too
    return {
        "type": "object",
        "properties": {
            "decision": {"enum": list(decisions)},
            "output": {} if output is None else output,
            "message": {"type": "string"},
        },
    }


def input_faults(shown: Mapping[str, object], output: object) -> Sequence[FieldError]:
    """What of an answer does not fit the schema that the question shows. Pointers are within the answer."""
    properties = cast("Mapping[str, Mapping[str, object]]", shown["response_schema"])["properties"]
    schema = cast("Mapping[str, object]", properties["output"])
    if not schema:
        return ()
    compiled = ArgumentSchema(schema)  # checked when it was asked
    try:
        return () if compiled.is_valid(output) else compiled.faults(output)
    except ValueError:
        return (FieldError("", "it holds text or nesting that cannot be checked"),)


def _shown(call: PlannedCall, tool: CompiledTool, question: Question, new_id: str, until: int) -> dict[str, object]:
    message = question.message
    if message is None:
        message = question.payload if isinstance(question.payload, str) else f"{tool.name} needs an answer to go on."
    return {
        "id": new_id,
        "reason": "input",
        "tool_call_id": call.tool_call_id,
        "tool": tool.name,
        "tool_input": call.action.tool_input,
        "message": message,
        "payload": question.payload,
        "response_schema": answer_schema(INPUT_DECISIONS, question.response_schema, new_id),
        "expires_at": rfc3339(until),
    }
