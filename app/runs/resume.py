"""Resuming: the answers to a run's interrupts, checked before any of them is kept."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Literal, cast

from pydantic import Field, model_validator

from app.core.errors import FieldError, InvalidRequest
from app.runs.records import RunRecord
from app.runs.spec import Spec
from app.runs.waiting import Answer
from app.tools.approval import APPROVAL_DECISIONS, CLIENT_DECISIONS

InputFaults = Callable[[RunRecord, str, object], Awaitable[Sequence[tuple[str, str]]]]
"""(run, tool, input) -> (pointer within the input, what is wrong there), of the tool as the run pinned it."""


class ResponseSpec(Spec):
    """One answer. `edit` brings `tool_input`, `respond` an `output` (or a `message`), `reject` may say why."""

    interrupt_id: str
    decision: Literal["approve", "edit", "reject", "respond"]
    tool_input: object = None
    message: Annotated[str, Field(max_length=100_000)] | None = None
    output: object = None

    @model_validator(mode="after")
    def _fits(self) -> "ResponseSpec":
        sent = self.model_fields_set
        if (self.decision == "edit") != ("tool_input" in sent):
            raise ValueError("`tool_input` belongs to the decision `edit`, which must have it")
        if "output" in sent and self.decision != "respond":
            raise ValueError("`output` belongs to the decision `respond`")
        if self.decision == "respond" and not {"output", "message"} & sent:
            raise ValueError("`respond` needs an `output`")
        return self

    def decided(self) -> dict[str, object]:
        return cast("dict[str, object]", self.model_dump(exclude={"interrupt_id"}, exclude_unset=True))


class ResumeSpec(Spec):
    """The body of `POST /runs/{id}/resume`."""

    responses: Annotated[list[ResponseSpec], Field(min_length=1, max_length=1024)]


async def answers_of(run: RunRecord, body: ResumeSpec, faults: InputFaults) -> list[Answer]:
    """The answers, each fitting its question. One to a question that is not open is left for the store to refuse.

    Raises `InvalidRequest`: a decision that the question does not take, an input that does not fit the tool's schema,
    two answers to one question.
    """
    asked = {str(item["id"]): item for item in run.interrupts}
    answers: list[Answer] = []
    for index, response in enumerate(body.responses):
        at = f"/responses/{index}"
        if any(answer.interrupt_id == response.interrupt_id for answer in answers):
            raise _misfit(f"{at}/interrupt_id", "this interrupt is answered twice")
        shown = asked.get(response.interrupt_id)
        if shown is not None:
            await _check(run, shown, response, at, faults)
        answers.append(Answer(response.interrupt_id, response.decided()))
    return answers


async def _check(
    run: RunRecord, shown: Mapping[str, object], response: ResponseSpec, at: str, faults: InputFaults
) -> None:
    taken = APPROVAL_DECISIONS if shown["reason"] == "tool_approval" else CLIENT_DECISIONS
    if response.decision not in taken:
        raise _misfit(f"{at}/decision", f"this interrupt takes {', '.join(taken)}")
    if response.decision == "edit":
        wrong = await faults(run, str(shown["tool"]), response.tool_input)
        if wrong:
            errors = tuple(FieldError(f"{at}/tool_input{pointer}", detail) for pointer, detail in wrong)
            raise InvalidRequest("The edited input does not fit the tool's schema; nothing was kept.", errors=errors)


def _misfit(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest("The answer does not fit; nothing was kept.", errors=(FieldError(pointer, detail),))
