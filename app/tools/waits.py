"""Waits: what a call waits for, as it is stored, and how it goes on with the answer."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, cast

from app.agent.ports import PlannedCall, Resumed, Waiting
from app.core.clock import now_ms, rfc3339
from app.core.json import encode_text
from app.tools.answers import given_end
from app.tools.approval import APPROVAL_DECISIONS, CLIENT_DECISIONS, ApprovalRule
from app.tools.arguments import digest
from app.tools.compiled import CompiledTool
from app.tools.ending import End, Live, earlier_attempts, first_sent_ms
from app.tools.inputs import as_it_ran, refused


def begin_live(call: PlannedCall, call_ms: int, sent_before: int, resumed: Resumed | None) -> Live:
    """A call's record, from its beginning or as it was when it began to wait."""
    earlier = earlier_attempts(call, sent_before) if sent_before else []
    if resumed is None:
        intent: dict[str, object] = {"stage": "intent", "verdict": "ok", "at": call_ms, "detail": None}
        sent_ms = first_sent_ms(earlier)
        return Live(now_ms(), time.perf_counter(), sent_before > 0, [intent], earlier, call.sent_input, sent_ms)
    facts = resumed.waiting.facts
    chain = list(cast("list[Mapping[str, object]]", facts.get("chain") or []))
    attempts = list(cast("list[Mapping[str, object]]", facts.get("attempts") or []))
    sent = sent_before > 0
    if resumed.waiting.reason == "input":  # those attempts stopped at a question: nothing of them is uncertain
        attempts = earlier_attempts(call, 0) or attempts
    else:
        attempts = attempts or earlier
        sent = bool(attempts)
    sent_ms = first_sent_ms(attempts)
    return Live(now_ms(), time.perf_counter(), sent, chain, attempts, call.sent_input, sent_ms)


def asked(
    call: PlannedCall,
    tool: CompiledTool,
    rule: ApprovalRule,
    live: Live,
    arguments: Mapping[str, object],
    new_id: str,
    why: str = "",
) -> Waiting:
    """A person is asked whether the call may be made. `why`: what the policy says to that."""
    until = now_ms() + int(rule.expires_s * 1000)
    live.note("approval", "asked")
    shown = _shown("tool_approval", call, tool, arguments, new_id, until)
    if why:
        shown["message"] = f"{shown['message']} The policy asks: {why}"
    facts = {**_facts(live, tool), "arguments_sha256": digest(dict(arguments))}
    return Waiting("tool_approval", until, facts, shown)


def handed_over(
    call: PlannedCall, tool: CompiledTool, live: Live, arguments: Mapping[str, object], new_id: str
) -> Waiting:
    """The caller runs the tool itself."""
    until = now_ms() + int(tool.deadline_s * 1000)
    live.note("execution", "handed over", "the caller runs it")
    shown = _shown("client_tool", call, tool, arguments, new_id, until)
    return Waiting("client_tool", until, _facts(live, tool), shown)


def deferred(tool: CompiledTool, live: Live, until_ms: int) -> Waiting:
    """The tool took the call and answers later."""
    live.note("execution", "deferred", "it answered 202 and calls back")
    return Waiting("deferred", until_ms, _facts(live, tool))


def taken(began_ms: int, tool_version: int | None, noted: Sequence[Mapping[str, object]] = ()) -> Waiting:
    """The wait of a call that a restart cut before the tool said that it would answer later: it has answered."""
    chain = list(noted) or [
        {"stage": stage, "verdict": "ok", "at": began_ms, "detail": "before the restart"}
        for stage in ("intent", "validation", "authorization")
    ]
    return Waiting("deferred", began_ms, {"started_at": began_ms, "chain": chain, "tool_version": tool_version})


def decided(
    call: PlannedCall, tool: CompiledTool | None, live: Live, resumed: Resumed, place: str | None
) -> tuple[PlannedCall, End | None]:
    """The call as a person or the caller wants it, and its end where it is not to be made.

    `place`: where an over-long output of theirs can be read whole.
    """
    answer, name = resumed.answer, call.action.tool
    decision = str(answer["decision"])
    stage, verdict, by = decision_of(resumed)
    live.note(stage, verdict, by)
    if resumed.waiting.reason == "input":
        return as_it_ran(call, resumed), refused(name, answer)
    if decision in ("reject", "expired"):
        end = denied_by(call, answer) if stage == "approval" else _unanswered(name, answer)
        return call, end
    if decision == "respond":
        return call, given_end(tool, answer, place)
    if decision == "edit":
        edited = cast("str | dict[str, object]", answer["tool_input"])
        return replace(call, action=replace(call.action, tool_input=edited)), None
    return call, None


_VERDICTS = {
    "approve": "approved", "edit": "edited", "reject": "rejected", "respond": "answered", "expired": "expired",
}  # fmt: skip


def decision_of(resumed: Resumed) -> tuple[str, str, str | None]:
    """What a chain tells of a decision: stage, verdict, and who decided. An edited input that is sent stands in the step."""
    answer = resumed.answer
    decision, by = str(answer["decision"]), str(answer.get("by") or "")
    stage = "approval" if resumed.waiting.reason == "tool_approval" else "execution"
    if decision == "edit":
        by = f"{by}: {encode_text(answer['tool_input'])[:2000]}"
    return stage, _VERDICTS[decision], by or None


def is_as_asked(resumed: Resumed, arguments: Mapping[str, object]) -> bool:
    """Whether what was approved is what would be sent. An edit stands for itself; the tool's version is the dispatch's business."""
    asked = resumed.waiting.facts.get("arguments_sha256")
    return asked is None or resumed.answer["decision"] != "approve" or asked == digest(dict(arguments))


def void(name: str, live: Live) -> End:
    """The end of a call that was approved as something else than it is now."""
    live.note("approval", "void", "the tool has changed since it was asked for")
    text = f"{name} was not called: it has changed since it was asked for. If it is still wanted, call it again."
    return End("denied", text, "approval_void")


def answered_ms(resumed: Resumed | None) -> int | None:
    """When a call was allowed: its own time begins then. The same after a crash."""
    at = None if resumed is None else resumed.answer.get("at")
    return at if isinstance(at, int) else None


def _unanswered(tool: str, answer: Mapping[str, object]) -> End:
    if answer["decision"] == "expired":
        return End("timeout", f"{tool}: the caller did not answer in time.", "client_timeout")
    said = str(answer.get("message") or "").strip()
    return End(
        "error", f"{tool} was not run by the caller" + (f": {said}" if said else "."), "client_refused", by_tool=True
    )


def _facts(live: Live, tool: CompiledTool) -> dict[str, object]:
    return {
        "started_at": live.started_at,
        "chain": live.chain,
        "attempts": live.attempts,
        "tool_version": tool.version,
    }


def _shown(
    reason: str, call: PlannedCall, tool: CompiledTool, arguments: Mapping[str, object], new_id: str, until: int
) -> dict[str, object]:
    return question(
        "tool_approval" if reason == "tool_approval" else "client_tool",
        interrupt_id=new_id,
        tool_call_id=call.tool_call_id,
        tool=tool.name,
        tool_input=dict(arguments),
        parameters=tool.definition.parameters,
        output_schema=tool.output_schema,
        until_ms=until,
    )


def question(
    reason: Literal["tool_approval", "client_tool"],
    *,
    interrupt_id: str,
    tool_call_id: str,
    tool: str,
    tool_input: object,
    parameters: Mapping[str, object],
    output_schema: Mapping[str, object] | None,
    until_ms: int,
) -> dict[str, object]:
    """The item of an `interrupt` event."""
    decisions = APPROVAL_DECISIONS if reason == "tool_approval" else CLIENT_DECISIONS
    properties: dict[str, object] = {"decision": {"enum": list(decisions)}, "message": {"type": "string"}}
    if reason == "tool_approval":
        message = f"May {tool} be called with this input?"
        properties["tool_input"] = parameters
    else:
        message = f"Run {tool} with this input and answer with its output."
    properties["output"] = output_schema or {}
    return {
        "id": interrupt_id,
        "reason": reason,
        "tool_call_id": tool_call_id,
        "tool": tool,
        "tool_input": tool_input,
        "message": message,
        "response_schema": {"type": "object", "properties": properties, "required": ["decision"]},
        "expires_at": rfc3339(until_ms),
    }


def denied_by(call: PlannedCall, answer: Mapping[str, object]) -> End:
    """The end of a call that a person rejected, or that nobody answered in time. Nothing was sent.

    A rejection is told in the words of LangChain's human-in-the-loop middleware.
    """
    tool = call.action.tool
    if answer["decision"] == "expired":
        return End("denied", f"{tool} was not called: nobody approved it in time.", "approval_expired")
    said = str(answer.get("message") or "").strip()
    if said:
        return End("denied", f"User rejected the tool call for `{tool}` with reason: {said}", "rejected")
    text = (
        f"User rejected the tool call for `{tool}` with id {call.provider_call_id or call.tool_call_id}. "
        "The tool was not executed. Do not retry this tool call unless the user explicitly requests it."
    )
    return End("denied", text, "rejected")
