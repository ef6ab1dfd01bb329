"""Resuming: the answers to a run's interrupts, checked before any of them is kept."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Literal, Protocol, cast

from pydantic import Field, model_validator

from app.core.errors import FieldError, InvalidRequest
from app.runs.records import RunRecord
from app.runs.spec import Spec
from app.runs.waiting import Answer
from app.tools.approval import APPROVAL_DECISIONS, CLIENT_DECISIONS
from app.tools.inputs import INPUT_DECISIONS, input_faults

_TAKEN: Mapping[str, Sequence[str]] = {
    "tool_approval": APPROVAL_DECISIONS,
    "client_tool": CLIENT_DECISIONS,
    "input": INPUT_DECISIONS,
}
"""What may be decided, by the reason of the interrupt."""


class Judge(Protocol):
    """The tools of a run, as it pinned them. Pointers are within what is judged."""

    def input_faults(self, name: str, tool_input: object, /) -> Sequence[FieldError]: ...

    def output_faults(self, name: str, output: object, /) -> Sequence[FieldError]: ...


class ResponseSpec(Spec):
    """One answer. `edit` brings `tool_input`, `respond` an `output` (or a `message`), `reject` may say why.

    Where the run asks for input, `decision` may be left out: an `output` says `respond`.
    """

    interrupt_id: str
    decision: Literal["approve", "edit", "reject", "respond"] | None = None
    tool_input: object = None
    message: Annotated[str, Field(max_length=100_000)] | None = None
    output: object = None

    @model_validator(mode="after")
    def _fits(self) -> "ResponseSpec":
        sent = self.model_fields_set
        if (self.decision == "edit") != ("tool_input" in sent):
            raise ValueError("`tool_input` belongs to the decision `edit`, which must have it")
        if "output" in sent and self.decision not in ("respond", None):
            raise ValueError("`output` belongs to the decision `respond`")
        if self.decision == "respond" and not {"output", "message"} & sent:
            raise ValueError("`respond` needs an `output`")
        return self

    def decided(self) -> dict[str, object]:
        said = cast("dict[str, object]", self.model_dump(exclude={"interrupt_id"}, exclude_unset=True))
        return {**said, "decision": self.decision or "respond"}


class ResumeSpec(Spec):
    """The body of `POST /runs/{id}/resume`."""

    responses: Annotated[list[ResponseSpec], Field(min_length=1, max_length=1024)]


async def answers_of(
    run: RunRecord, body: ResumeSpec, judge_of: Callable[[RunRecord], Awaitable[Judge]]
) -> list[Answer]:
    """The answers, each fitting its question. One to a question that is not open is left for the store to refuse.

    Raises `InvalidRequest`: a decision that the question does not take, an input or an output that does not fit the
    tool's schema, two answers to one question.
    """
    judge: Judge | None = None
    asked = {str(item["id"]): item for item in run.interrupts}
    answers: list[Answer] = []
    for index, response in enumerate(body.responses):
        at = f"/responses/{index}"
        if any(answer.interrupt_id == response.interrupt_id for answer in answers):
            raise _misfit(f"{at}/interrupt_id", "this interrupt is answered twice")
        shown = asked.get(response.interrupt_id)
        if shown is not None:
            _check_decision(shown, response, at)
            if shown["reason"] == "input":
                _check_input(shown, response, at)
            elif response.decision in ("edit", "respond"):
                judge = judge or await judge_of(run)
                _check_value(judge, str(shown["tool"]), response, at)
        answers.append(Answer(response.interrupt_id, response.decided()))
    return answers


def _check_decision(shown: Mapping[str, object], response: ResponseSpec, at: str) -> None:
    taken = _TAKEN[str(shown["reason"])]
    if response.decision is None and shown["reason"] == "input":
        return
    if response.decision not in taken:
        raise _misfit(f"{at}/decision", f"this interrupt takes {', '.join(taken)}")


def _check_input(shown: Mapping[str, object], response: ResponseSpec, at: str) -> None:
    """An answer to what a tool asked: any JSON that fits the question's own schema."""
    if response.decision == "reject":
        return
    if "output" not in response.model_fields_set:
        raise _misfit(f"{at}/output", "an answer needs an `output`, which may be null")
    wrong = input_faults(shown, response.output)
    if wrong:
        errors = tuple(FieldError(f"{at}/output{fault.pointer}", fault.detail) for fault in wrong)
        raise InvalidRequest("The answer does not fit the question's response_schema; nothing was kept.", errors=errors)


def _check_value(judge: Judge, tool: str, response: ResponseSpec, at: str) -> None:
    if response.decision == "edit":
        name, value, what = "tool_input", response.tool_input, "edited input does not fit the tool's schema"
        wrong = judge.input_faults(tool, value)
    else:
        name = "output" if "output" in response.model_fields_set else "message"
        value, what = getattr(response, name), "output does not fit the tool's output_schema"
        wrong = judge.output_faults(tool, value)
    if wrong:
        errors = tuple(FieldError(f"{at}/{name}{fault.pointer}", fault.detail) for fault in wrong)
        raise InvalidRequest(f"The {what}; nothing was kept.", errors=errors)


def _misfit(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest("The answer does not fit; nothing was kept.", errors=(FieldError(pointer, detail),))
