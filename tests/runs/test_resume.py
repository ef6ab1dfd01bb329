"""Resuming: answers that fit their question, and streams that stay while nobody has answered."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import FieldError, InvalidRequest
from app.runs import follower
from app.runs.fold import fold
from app.runs.follower import FollowOptions, follow
from app.runs.hub import Hub
from app.runs.records import Interrupt, Progress, RunRecord, Transition
from app.runs.resume import ResumeSpec, answers_of
from app.storage.open import open_database
from app.storage.runs import SqlRunStore
from tests.contracts.samples import a_call, a_dispatch, new_run, started

pytestmark = pytest.mark.anyio

APPROVAL: dict[str, object] = {"id": "a", "reason": "tool_approval", "tool": "refund"}
CLIENT: dict[str, object] = {"id": "c", "reason": "client_tool", "tool": "local"}


class Judge:
    """Finds `wrong` with whatever it is asked about, and remembers that."""

    def __init__(self, *wrong: FieldError) -> None:
        self.wrong = wrong
        self.seen: list[tuple[str, str, object]] = []
        self.made = 0

    async def of(self, run: RunRecord) -> "Judge":
        self.made += 1
        return self

    def input_faults(self, name: str, tool_input: object) -> Sequence[FieldError]:
        self.seen.append(("input", name, tool_input))
        return self.wrong

    def output_faults(self, name: str, output: object) -> Sequence[FieldError]:
        self.seen.append(("output", name, output))
        return self.wrong


def asking(*shown: dict[str, object]) -> RunRecord:
    return replace(new_run().run, status="interrupted", interrupts=list(shown))


def body(*responses: dict[str, object]) -> ResumeSpec:
    return ResumeSpec.model_validate({"responses": list(responses)})


async def refused_at(run: RunRecord, spec: ResumeSpec, *wrong: FieldError) -> list[str]:
    with pytest.raises(InvalidRequest) as caught:
        await answers_of(run, spec, Judge(*wrong).of)
    return [error.pointer for error in caught.value.errors]


@pytest.mark.parametrize(
    "decided",
    [
        {"decision": "approve"},
        {"decision": "reject", "message": "no"},
        {"decision": "edit", "tool_input": {"amount": 1}},
        {"decision": "edit", "tool_input": None},
        {"decision": "respond", "output": None},
        {"decision": "respond", "message": "done by hand"},
    ],
)
async def test_an_answer_is_kept_as_it_was_sent_and_nothing_is_added(decided: dict[str, object]) -> None:
    (answer,) = await answers_of(asking(APPROVAL), body({"interrupt_id": "a", **decided}), Judge().of)
    assert (answer.interrupt_id, answer.decided) == ("a", decided)


@pytest.mark.parametrize("decision", ["approve", "edit"])
async def test_a_question_to_the_caller_takes_no_decision_about_a_call(decision: str) -> None:
    more: dict[str, object] = {"tool_input": {}} if decision == "edit" else {}
    spec = body({"interrupt_id": "a", "decision": "approve"}, {"interrupt_id": "c", "decision": decision, **more})
    assert await refused_at(asking(APPROVAL, CLIENT), spec) == ["/responses/1/decision"]


@pytest.mark.parametrize(
    ("said", "seen", "at"),
    [
        ({"decision": "edit", "tool_input": {"amount": 9}}, ("input", "refund", {"amount": 9}), "tool_input"),
        ({"decision": "respond", "output": None}, ("output", "refund", None), "output"),
        ({"decision": "respond", "message": "by hand"}, ("output", "refund", "by hand"), "message"),
        ({"decision": "respond", "output": 1, "message": "by hand"}, ("output", "refund", 1), "output"),
    ],
)
async def test_a_value_is_held_to_the_tool_of_its_own_question(
    said: dict[str, object], seen: tuple[str, str, object], at: str
) -> None:
    spec = body({"interrupt_id": "a", **said})
    wrong = (FieldError("/amount", "too much"), FieldError("", "odd"))
    assert await refused_at(asking(APPROVAL), spec, *wrong) == [f"/responses/0/{at}/amount", f"/responses/0/{at}"]
    judge = Judge()
    assert len(await answers_of(asking(APPROVAL), spec, judge.of)) == 1
    assert judge.seen == [seen]


async def test_a_runs_tools_are_made_ready_once_for_all_its_answers_and_not_for_a_yes_or_no() -> None:
    judge = Judge()
    await answers_of(asking(APPROVAL), body({"interrupt_id": "a", "decision": "approve"}), judge.of)
    assert judge.made == 0
    spec = body(
        {"interrupt_id": "a", "decision": "respond", "output": 1},
        {"interrupt_id": "c", "decision": "respond", "output": 2},
    )
    await answers_of(asking(APPROVAL, CLIENT), spec, judge.of)
    assert (judge.made, [name for _, name, _ in judge.seen]) == (1, ["refund", "local"])


async def test_two_answers_to_one_question_are_refused_even_if_they_are_equal() -> None:
    one: dict[str, object] = {"interrupt_id": "a", "decision": "approve"}
    assert await refused_at(asking(APPROVAL), body(one, one)) == ["/responses/1/interrupt_id"]


async def test_an_answer_to_a_question_that_is_not_open_is_left_for_the_store_to_refuse() -> None:
    spec = body({"interrupt_id": "gone", "decision": "edit", "tool_input": 1})
    assert [answer.interrupt_id for answer in await answers_of(asking(APPROVAL), spec, Judge().of)] == ["gone"]


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_sent_call_that_was_called_back_is_not_lost_by_a_crash(attempts: int) -> None:
    run = new_run().run
    log = [{"attempt": number, "outcome": "running"} for number in range(1, attempts + 1)]
    sent = a_call(run, state="dispatched", attempts=attempts, attempt_log=log, late_result={"body": {"output": 1}})
    (item,) = fold(run, [], [sent]).open_calls
    assert item.resumed is not None
    assert (item.resumed.waiting.reason, item.resumed.answer) == ("deferred", {"body": {"output": 1}})
    assert item.waits is False
    assert [entry["attempt"] for entry in item.call.dispatched] == list(range(1, attempts + 1))
    (silent,) = fold(run, [], [replace(sent, late_result=None)]).open_calls
    assert (silent.resumed, silent.sent) == (None, attempts)


# --- streams of runs that wait ---------------------------------------------------------------------------------------


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlRunStore]:
    database = open_database(f"sqlite:///{tmp_path}/runs.db")
    await database.start()
    yield SqlRunStore(database)
    await database.stop()


@pytest.mark.parametrize("parked", ["people", "tools"])
async def test_a_held_stream_of_a_run_that_waits_looks_for_nothing_and_wakes_at_once(
    store: SqlRunStore, parked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the stream was opened after the run was let go, as after a restart."""
    looks: list[str] = []
    get = store.get

    async def counted(tenant: str, run_id: str) -> RunRecord | None:
        looks.append(run_id)
        return await get(tenant, run_id)

    monkeypatch.setattr(store, "get", counted)
    monkeypatch.setattr(follower, "ELSEWHERE_POLL_S", 0.0005)
    hub, driver = Hub(), await started(store)
    call = a_call(driver.run)
    await driver.append(("action", {}), calls=(call,), dispatches=(a_dispatch(call),))
    status = "interrupted" if parked == "people" else "running"
    let_go = Transition(status, None, None, None, None, parked=parked)
    asked = Interrupt("a", driver.run.id, call.id, "tool_approval", APPROVAL, 1, 2**52)
    more: dict[str, Any] = {"interrupts": (asked,)} if parked == "people" else {}
    done = await driver.append(("run", {}), transition=let_go, progress=Progress(1, 1, {}, 0), **more)
    assert (done.fenced, done.unasked) == (False, False)
    pieces = follow(store, hub, "acme", driver.run.id, FollowOptions(driver.seq, None, hold=True, quiet_s=0.1))
    async with asyncio.timeout(10):
        assert [await anext(pieces) for _ in range(3)] == [b"", b"", b""]
        assert len(looks) <= 5
        waiting = asyncio.create_task(anext(pieces))
        hub.open(driver.run.id, 0)
        append = driver.next(("run", {"status": "running"}))
        await store.append(append)
        hub.publish(driver.run.id, append.events)
        assert b"running" in await waiting
    await pieces.aclose()
