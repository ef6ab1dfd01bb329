"""The work of `runwire runs resume`: answers from the command line or a file, sent to a run that waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from app.cli import exits
from app.cli.inputs import UsageError, read_document, read_json, split
from app.cli.questions import how_to_answer
from app.cli.session import Session, named_url, say
from app.client.interrupts import Decision, Interrupt, Response

ALL = "all"
"""Instead of an id: every question that is open."""

DECISIONS: tuple[Decision, ...] = ("approve", "edit", "reject", "respond")


@dataclass(frozen=True, slots=True)
class AnswersGiven:
    """What the command line says."""

    approve: tuple[str, ...] = ()
    reject: tuple[str, ...] = ()
    edit: tuple[str, ...] = ()
    """`ID=JSON`, as `respond`."""
    respond: tuple[str, ...] = ()
    message: str | None = None
    file: str | None = None

    @property
    def needs_the_questions(self) -> bool:
        return ALL in self.approve or ALL in self.reject

    def responses(self, asked: Sequence[Interrupt]) -> list[Response]:
        """`asked`: what `all` stands for; a question that is answered by its id is not among them. Raises `UsageError`."""
        if self.message is not None and not self.reject:
            raise UsageError("--message says why something is rejected: add --reject.")
        if ALL in self.approve and ALL in self.reject:
            raise UsageError("Everything can be approved or rejected, not both.")
        found = [Response(name, "edit", tool_input=value) for name, value in _values(self.edit, "--edit")]
        found += [Response.respond(name, value) for name, value in _values(self.respond, "--respond")]
        found += [Response.approve(name) for name in self.approve if name != ALL]
        found += [Response.reject(name, self.message) for name in self.reject if name != ALL]
        found += _of_file(self.file) if self.file is not None else []
        named = [response.interrupt_id for response in found]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"{twice} is answered twice.")
        left = [item.id for item in asked if item.id not in named]
        if ALL in self.approve:
            found += [Response.approve(name) for name in left]
        if ALL in self.reject:
            found += [Response.reject(name, self.message) for name in left]
        return found


def _values(pairs: Sequence[str], option: str) -> list[tuple[str, object]]:
    return [(name, read_json(text, f"The value of {option} {name}")) for name, text in split(pairs, option)]


def _of_file(path: str) -> list[Response]:
    """The body of `POST /runs/{id}/resume`, or its list of responses."""
    value = read_document(path)
    if isinstance(value, dict):
        value = cast("dict[str, object]", value).get("responses")
    if not isinstance(value, list):
        raise UsageError('The file must hold a list of answers, or {"responses": [...]}.')
    return [_response(item, at) for at, item in enumerate(cast("list[object]", value))]


def _response(value: object, at: int) -> Response:
    item = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    name, decision, message = item.get("interrupt_id"), item.get("decision"), item.get("message")
    if decision is None and "output" in item:
        decision = "respond"
    if not isinstance(name, str) or decision not in DECISIONS or not isinstance(message, str | None):
        raise UsageError(f"Answer {at} of the file needs `interrupt_id` and a `decision`: {', '.join(DECISIONS)}.")
    odd = item.keys() - {"interrupt_id", "decision", "message", "tool_input", "output"}
    if odd:
        raise UsageError(f"Answer {at} of the file has a field that no answer has: {sorted(odd)[0]}.")
    return Response(name, decision, item.get("tool_input"), item.get("output"), message)


async def resume_run(session: Session, run_id: str, given: AnswersGiven) -> int:
    """Answer; exit code 1 where nothing is asked, 6 where something is left. Raises `UsageError`, `ClientError`."""
    runs = session.client.runs
    asked: Sequence[Interrupt] = ()
    if given.needs_the_questions:
        run = await runs.get(run_id)
        asked = run.interrupts
        if not asked:
            say(f"There is nothing to answer: the run is {run.status}.")
            return exits.FAILED
    responses = given.responses(asked)
    if not responses:
        raise UsageError(
            "Give an answer: --approve ID, --reject ID, --edit ID=JSON, --respond ID=JSON, or --json-file."
        )
    run = await runs.resume(run_id, responses)
    if session.screen.as_json:
        session.screen.json(run.data)
    else:
        session.screen.line(f"answered {len(responses)}; the run is {run.status}")
    if run.status != "interrupted":
        say(f"Follow it: runwire runs stream {run.id}{named_url(session)}")
        return exits.SUCCESS
    left = "\n".join(f"  {line}" for line in how_to_answer(session, run.id, run.interrupts))
    say(f"It still waits for {len(run.interrupts)} more:\n{left}")
    return exits.WAITS
