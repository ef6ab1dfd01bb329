"""The port `WaitStore`: questions and answers, late results, and when a parked run goes on; on every database."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.core.errors import Conflict, RunwireError
from app.core.ids import new_id
from app.runs.ports import RunStore
from app.runs.records import AppendResult, CallRecord, CallWait, Interrupt, Progress, RunRecord, Transition
from app.runs.waiting import Answer, HeldTurn, Woken
from app.storage.open import Stores
from tests.contracts.samples import Clock, Driver, a_call, a_dispatch, a_result, ending, started

pytestmark = pytest.mark.anyio

HOUR = 3_600_000
APPROVE: dict[str, object] = {"decision": "approve"}
PROGRESS = Progress(1, 2, {}, 5)


def asking(call: CallRecord, until: int, reason: str = "tool_approval") -> tuple[CallWait, Interrupt]:
    shown: dict[str, object] = {"id": new_id(), "reason": reason, "tool_call_id": call.id, "tool": call.tool}
    wait = {"reason": reason, "until_ms": until, "facts": {"started_at": 1}, "shown": shown}
    question = Interrupt(str(shown["id"]), call.run_id, call.id, reason, shown, 1_800_000_000_000 + call.step, until)
    return CallWait(call.id, wait, (), ({"stage": "approval", "verdict": "asked"},)), question


def deferred(call: CallRecord, until: int) -> CallWait:
    return CallWait(call.id, {"reason": "deferred", "until_ms": until, "facts": {}, "shown": None}, (), ())


def parking(parked: Any) -> Transition:
    people = parked == "people"
    return Transition(
        "interrupted" if people else "running", "awaiting_input" if people else None, None, None, None, parked=parked
    )


async def asked(
    stores: Stores, clock: Clock, *until: int, parks: bool = True
) -> tuple[Driver, list[CallRecord], list[Interrupt]]:
    """A run that asks one question a time in `until` (milliseconds from now)."""
    driver = await started(stores.runs)
    made = [a_call(driver.run, step) for step in range(1, len(until) + 1)]
    pairs = [asking(call, clock.now + left) for call, left in zip(made, until, strict=True)]
    waits, questions = tuple(wait for wait, _ in pairs), tuple(question for _, question in pairs)
    more: dict[str, Any] = {"transition": parking("people"), "progress": PROGRESS} if parks else {}
    await driver.append(("interrupt", {}), calls=tuple(made), waits=waits, interrupts=questions, **more)
    return driver, made, list(questions)


async def parked_on_tools(stores: Stores, clock: Clock, *until: int) -> tuple[Driver, list[CallRecord]]:
    driver = await started(stores.runs)
    made = [a_call(driver.run, step) for step in range(1, len(until) + 1)]
    await driver.append(("action", {}), calls=tuple(made), dispatches=tuple(a_dispatch(call) for call in made))
    waits = tuple(deferred(call, clock.now + left) for call, left in zip(made, until, strict=True))
    await driver.append(("progress", {}), waits=waits, transition=parking("tools"), progress=PROGRESS)
    return driver, made


async def run_of(store: RunStore, driver: Driver) -> RunRecord:
    run = await store.get("acme", driver.run.id)
    assert run is not None
    return run


async def refusal(work: Any) -> str:
    with pytest.raises(RunwireError) as caught:
        await work
    return caught.value.code


async def test_a_parked_run_lists_its_open_questions_in_order_and_is_owned_by_nobody(
    stores: Stores, clock: Clock
) -> None:
    driver, (first, second), questions = await asked(stores, clock, HOUR, HOUR)
    run = await run_of(stores.runs, driver)
    assert (run.status, run.stop_reason, run.parked, run.owner) == ("interrupted", "awaiting_input", "people", None)
    assert run.interrupts == [question.shown for question in questions]
    assert (await stores.runs.append(driver.next())).fenced is False
    for call in (first, second):
        kept = await stores.waits.call(call.id)
        assert kept is not None
        assert (kept.state, kept.wait is not None, kept.answer, kept.late_result) == ("waiting", True, None, None)
        assert kept.chain == [{"stage": "approval", "verdict": "asked"}]
    assert await stores.waits.call(new_id()) is None
    assert await stores.runs.unfinished() == []


async def test_the_run_goes_on_with_the_last_answer_and_its_next_claim_is_no_new_attempt(
    stores: Stores, clock: Clock
) -> None:
    driver, (first, second), (one, two) = await asked(stores, clock, HOUR, HOUR)
    run, resumed = await stores.waits.answer("acme", driver.run.id, [Answer(two.id, APPROVE)], "me")
    assert (resumed, run.status, run.interrupts) == (False, "interrupted", [one.shown])
    assert await stores.runs.claim(driver.run.id, "other") is None
    edit = {"decision": "edit", "tool_input": {"q": 1}}
    run, resumed = await stores.waits.answer("acme", driver.run.id, [Answer(one.id, edit)], "you")
    assert (resumed, run.status, run.interrupts) == (True, "pending", [])
    assert await stores.runs.unfinished() == [(driver.run.id, "pending")]
    calls = await stores.runs.calls(driver.run.id)
    assert [call.answer for call in calls] == [
        {**edit, "by": "you", "at": clock.now},
        {**APPROVE, "by": "me", "at": clock.now},
    ]
    claimed = await stores.runs.claim(driver.run.id, "other")
    assert claimed is not None
    assert (claimed.attempt, claimed.epoch, claimed.parked, claimed.status) == (1, 2, "people", "running")
    again = await stores.runs.claim(driver.run.id, "third")
    assert again is not None
    assert (again.attempt, again.parked) == (2, None)
    assert [first.id, second.id] == [call.id for call in calls]


async def test_all_answers_of_a_request_are_kept_or_none(stores: Stores, clock: Clock) -> None:
    driver, _, (one, two) = await asked(stores, clock, HOUR, HOUR)
    good = Answer(one.id, APPROVE)
    unknown = stores.waits.answer("acme", driver.run.id, [good, Answer(new_id(), APPROVE)], "me")
    assert await refusal(unknown) == "interrupt_not_found"
    twice = stores.waits.answer("acme", driver.run.id, [good, good], "me")
    assert await refusal(twice) == "interrupt_resolved"
    assert (await run_of(stores.runs, driver)).interrupts == [one.shown, two.shown]
    assert [call.answer for call in await stores.runs.calls(driver.run.id)] == [None, None]
    assert await refusal(stores.waits.answer("other", driver.run.id, [good], "me")) == "run_not_found"
    assert await refusal(stores.waits.answer("acme", new_id(), [good], "me")) == "run_not_found"
    stranger, _, (theirs,) = await asked(stores, clock, HOUR)
    mixed = stores.waits.answer("acme", driver.run.id, [Answer(theirs.id, APPROVE)], "me")
    assert await refusal(mixed) == "interrupt_not_found"
    assert (await run_of(stores.runs, stranger)).interrupts == [theirs.shown]


async def test_of_answers_at_once_one_wins_a_question_and_the_last_one_resumes(stores: Stores, clock: Clock) -> None:
    driver, _, questions = await asked(stores, clock, *[HOUR] * 5)
    tries = [
        stores.waits.answer("acme", driver.run.id, [Answer(question.id, APPROVE)], f"by_{number}")
        for number in range(4)
        for question in questions
    ]
    results = await asyncio.gather(*tries, return_exceptions=True)
    won = [result for result in results if not isinstance(result, BaseException)]
    lost = [result.code for result in results if isinstance(result, Conflict)]
    assert (len(won), len(lost), set(lost)) == (5, 15, {"interrupt_resolved"})
    assert [resumed for _, resumed in won].count(True) == 1


async def test_a_run_whose_questions_are_all_answered_is_not_let_go_and_nothing_of_that_is_written(
    stores: Stores, clock: Clock
) -> None:
    driver, _, (one, two) = await asked(stores, clock, HOUR, HOUR, parks=False)
    run, resumed = await stores.waits.answer("acme", driver.run.id, [Answer(one.id, APPROVE)], "me")
    assert (resumed, run.status, run.interrupts) == (False, "running", [two.shown])
    await stores.waits.answer("acme", driver.run.id, [Answer(two.id, APPROVE)], "me")
    assert await stores.waits.wake(driver.run.id) == Woken()
    before = await run_of(stores.runs, driver)
    seq, batch = driver.seq, driver.batch
    refused = await driver.append(("run", {"status": "interrupted"}), transition=parking("people"), progress=PROGRESS)
    assert (refused.unasked, refused.fenced) == (True, False)
    assert await run_of(stores.runs, driver) == before
    driver.seq, driver.batch = seq, batch
    assert not (await driver.append(("step", {}))).fenced
    told = await stores.runs.events(driver.run.id, after=seq, max_bytes=1 << 20)
    assert [name for item in told for name, _ in item.index] == ["step"]


async def test_a_run_is_let_go_while_one_question_is_open_or_just_asked_and_a_fenced_one_is_fenced(
    stores: Stores, clock: Clock
) -> None:
    parks: dict[str, Any] = {"transition": parking("people"), "progress": PROGRESS}
    driver, _, (one, _) = await asked(stores, clock, HOUR, HOUR, parks=False)
    await stores.waits.answer("acme", driver.run.id, [Answer(one.id, APPROVE)], "me")
    assert await driver.append(("run", {}), **parks) == AppendResult(fenced=False)
    assert (await run_of(stores.runs, driver)).status == "interrupted"
    fresh, _, (one,) = await asked(stores, clock, HOUR)
    assert (await run_of(stores.runs, fresh)).interrupts == [one.shown]
    old, _, (one,) = await asked(stores, clock, HOUR, parks=False)
    await stores.waits.answer("acme", old.run.id, [Answer(one.id, APPROVE)], "me")
    assert await stores.runs.claim(old.run.id, "other") is not None
    assert await old.append(("run", {}), **parks) == AppendResult(fenced=True)


async def test_a_call_that_waits_again_takes_an_answer_again(stores: Stores, clock: Clock) -> None:
    """Approved, and then handed to the caller. What was answered first stays with its own question."""
    driver, (call,), (first,) = await asked(stores, clock, HOUR)
    await stores.waits.answer("acme", driver.run.id, [Answer(first.id, APPROVE)], "me")
    claimed = await stores.runs.claim(driver.run.id, "other")
    assert claimed is not None
    wait, second = asking(call, clock.now + HOUR, "client_tool")
    await Driver(stores.runs, claimed).append(
        ("interrupt", {}), waits=(wait,), interrupts=(second,), transition=parking("people"), progress=PROGRESS
    )
    kept = await stores.waits.call(call.id)
    assert kept is not None
    assert (kept.state, kept.answer, (kept.wait or {})["reason"]) == ("waiting", None, "client_tool")
    again = stores.waits.answer("acme", driver.run.id, [Answer(first.id, APPROVE)], "me")
    assert await refusal(again) == "interrupt_resolved"
    given: dict[str, object] = {"decision": "respond", "output": 1}
    _, resumed = await stores.waits.answer("acme", driver.run.id, [Answer(second.id, given)], "me")
    assert resumed
    kept = await stores.waits.call(call.id)
    assert kept is not None
    assert kept.answer == {**given, "by": "me", "at": clock.now}


async def test_an_answer_to_a_call_that_has_its_result_is_refused_and_not_lost_in_silence(
    stores: Stores, clock: Clock
) -> None:
    driver, (call, _), (one, two) = await asked(stores, clock, HOUR, HOUR, parks=False)
    await driver.append(("step", {}), results=(a_result(call),))
    answers = [Answer(two.id, APPROVE), Answer(one.id, APPROVE)]
    assert await refusal(stores.waits.answer("acme", driver.run.id, answers, "me")) == "interrupt_resolved"
    assert [item.answer for item in await stores.runs.calls(driver.run.id)] == [None, None]
    assert (await run_of(stores.runs, driver)).interrupts == [one.shown, two.shown]


async def test_an_approval_is_for_the_newest_version_when_it_was_asked_for(stores: Stores, clock: Clock) -> None:
    async def verdict(driver: Driver, call: CallRecord, *, registered: bool = True, approved: bool = True) -> object:
        dispatch = replace(a_dispatch(call, registered=registered), approved=approved)
        return (await driver.append(dispatches=(dispatch,))).dispatches[0]

    await stores.tools.put("acme", "lookup", {"v": 1})
    await stores.tools.put("acme", "lookup", {"v": 2})
    driver, (one, two, three), _ = await asked(stores, clock, HOUR, HOUR, HOUR, parks=False)
    assert [call.asked_version for call in await stores.runs.calls(driver.run.id)] == [2, 2, 2]
    assert await verdict(driver, one) == "sent"
    await stores.tools.put("other", "lookup", {})
    await stores.tools.put("acme", "lookup", {"v": 3})
    assert await verdict(driver, two) == "void"
    assert await verdict(driver, two, registered=False) == "sent"
    assert await verdict(driver, three, approved=False) == "sent"
    assert [call.state for call in await stores.runs.calls(driver.run.id)] == ["dispatched"] * 3
    later, (call,), _ = await asked(stores, clock, HOUR, parks=False)
    assert await verdict(later, call) == "sent"
    await stores.tools.delete("acme", "lookup")
    last, (call,), _ = await asked(stores, clock, HOUR, parks=False)
    assert await verdict(last, call) == "withdrawn"


async def test_a_question_expires_at_its_time_and_not_before(stores: Stores, clock: Clock) -> None:
    driver, _, (one, two) = await asked(stores, clock, HOUR, 2 * HOUR)
    assert list(await stores.waits.parked()) == [(driver.run.id, clock.now + HOUR)]
    clock.now += HOUR - 1
    assert await stores.waits.wake(driver.run.id) == Woken(until_ms=one.expires_at)
    clock.now += 1
    late = stores.waits.answer("acme", driver.run.id, [Answer(one.id, APPROVE)], "me")
    assert await refusal(late) == "interrupt_expired"
    assert await stores.waits.wake(driver.run.id) == Woken(until_ms=two.expires_at)
    assert (await run_of(stores.runs, driver)).interrupts == [two.shown]
    late = stores.waits.answer("acme", driver.run.id, [Answer(one.id, APPROVE)], "me")
    assert await refusal(late) == "interrupt_expired"
    _, resumed = await stores.waits.answer("acme", driver.run.id, [Answer(two.id, APPROVE)], "me")
    assert resumed
    expired, approved = await stores.runs.calls(driver.run.id)
    assert (expired.answer, (approved.answer or {})["decision"]) == ({"decision": "expired"}, "approve")


async def test_a_late_result_wakes_the_run_and_only_the_same_one_is_taken_again(stores: Stores, clock: Clock) -> None:
    driver, (first, second) = await parked_on_tools(stores, clock, HOUR, 2 * HOUR)
    assert (await run_of(stores.runs, driver)).status == "running"
    assert await stores.waits.wake(driver.run.id) == Woken(until_ms=clock.now + HOUR)
    assert await stores.waits.deliver(first.id, {"body": {"output": 1}}) == driver.run.id
    assert await stores.waits.deliver(first.id, {"body": {"output": 1}}) == driver.run.id
    assert await refusal(stores.waits.deliver(first.id, {"body": None})) == "result_exists"
    assert await refusal(stores.waits.deliver(new_id(), {"body": None})) == "tool_call_not_found"
    assert await stores.waits.wake(driver.run.id) == Woken(ready=True)
    claimed = await stores.runs.claim(driver.run.id, "other")
    assert claimed is not None
    assert (claimed.attempt, claimed.parked) == (1, "tools")
    assert await stores.waits.wake(driver.run.id) == Woken()
    clock.now += 2 * HOUR
    assert await refusal(stores.waits.deliver(second.id, {"body": 1})) == "call_over"


async def test_results_at_once_are_one(stores: Stores, clock: Clock) -> None:
    _, (call,) = await parked_on_tools(stores, clock, HOUR)
    results = await asyncio.gather(
        *(stores.waits.deliver(call.id, {"body": number}) for number in range(20)), return_exceptions=True
    )
    assert len([result for result in results if isinstance(result, str)]) == 1
    assert len([result for result in results if isinstance(result, Conflict)]) == 19


async def test_a_call_that_was_sent_takes_its_result_at_once_whatever_it_waited_for_before(
    stores: Stores, clock: Clock
) -> None:
    """Its approval's time may be over by then."""
    driver, (call,), (question,) = await asked(stores, clock, HOUR)
    assert await refusal(stores.waits.deliver(call.id, {"body": 1})) == "call_over"
    await stores.waits.answer("acme", driver.run.id, [Answer(question.id, APPROVE)], "me")
    assert await refusal(stores.waits.deliver(call.id, {"body": 1})) == "call_over"
    claimed = await stores.runs.claim(driver.run.id, "other")
    assert claimed is not None
    driver = Driver(stores.runs, claimed)
    await driver.append(dispatches=(a_dispatch(call),))
    clock.now += 2 * HOUR
    assert await stores.waits.deliver(call.id, {"body": 1}) == driver.run.id
    kept = await stores.waits.call(call.id)
    assert kept is not None
    assert (kept.state, kept.late_result, (kept.answer or {})["decision"]) == ("dispatched", {"body": 1}, "approve")


async def test_a_call_with_its_result_and_a_run_at_its_end_take_nothing_more(stores: Stores, clock: Clock) -> None:
    driver, (call, _), (one, two) = await asked(stores, clock, HOUR, HOUR)
    await stores.waits.answer("acme", driver.run.id, [Answer(one.id, APPROVE)], "me")
    await driver.append(("step", {}), results=(a_result(call),))
    assert await refusal(stores.waits.deliver(call.id, {"body": 1})) == "call_over"
    await driver.append(("end", {}), transition=ending("cancelled"))
    assert (await run_of(stores.runs, driver)).interrupts == []
    answer = stores.waits.answer("acme", driver.run.id, [Answer(two.id, APPROVE)], "me")
    assert await refusal(answer) == "run_not_interrupted"
    again = stores.waits.answer("acme", driver.run.id, [Answer(one.id, APPROVE)], "me")
    assert await refusal(again) == "interrupt_resolved"
    unknown = stores.waits.answer("acme", driver.run.id, [Answer(new_id(), APPROVE)], "me")
    assert await refusal(unknown) == "interrupt_not_found"
    assert await stores.waits.wake(driver.run.id) == Woken()
    assert list(await stores.waits.parked()) == []
    assert await stores.waits.tell(driver.run.id, "progress", {}) is None


async def test_a_cancel_wakes_a_run_that_still_waits(stores: Stores, clock: Clock) -> None:
    for driver in ((await asked(stores, clock, HOUR))[0], (await parked_on_tools(stores, clock, HOUR))[0]):
        assert not (await stores.waits.wake(driver.run.id)).ready
        await stores.runs.request_cancel("acme", driver.run.id)
        assert await stores.waits.wake(driver.run.id) == Woken(ready=True)
        claimed = await stores.runs.claim(driver.run.id, "other")
        assert claimed is not None
        assert (claimed.cancel_requested, claimed.attempt) == (True, 1)


async def test_progress_of_a_parked_run_gets_the_next_number_and_a_driven_one_takes_none(
    stores: Stores, clock: Clock
) -> None:
    driver, _ = await parked_on_tools(stores, clock, HOUR)
    told = await asyncio.gather(*(stores.waits.tell(driver.run.id, "progress", {"n": n}) for n in range(5)))
    seqs = sorted(batch.first_seq for batch in told if batch is not None)
    assert seqs == list(range(driver.seq + 1, driver.seq + 6))
    claimed = await stores.runs.claim(driver.run.id, "other")
    assert claimed is not None
    assert claimed.last_seq == seqs[-1]
    assert await stores.waits.tell(driver.run.id, "progress", {}) is None
    after = await Driver(stores.runs, claimed).append(("run", {}))
    assert not after.fenced
    events = await stores.runs.events(driver.run.id, after=0, max_bytes=1 << 20)
    assert [seq for batch in events for seq in range(batch.first_seq, batch.last_seq + 1)] == list(
        range(1, seqs[-1] + 2)
    )


async def test_deferred_calls_without_a_result_tell_the_turns_they_hold_until_their_run_is_over(
    stores: Stores, clock: Clock
) -> None:
    driver = await started(stores.runs)
    made = [a_call(driver.run, step) for step in (1, 2, 3)]
    await driver.append(("action", {}), calls=tuple(made), dispatches=tuple(a_dispatch(call) for call in made))
    until = clock.now + HOUR
    shared = [["key", "order 1"], ["tool", "pay"]]
    wait = {"reason": "deferred", "until_ms": until, "facts": {"turns": shared}, "shown": None}
    waits = (*(CallWait(call.id, wait, (), ()) for call in made[:2]), deferred(made[2], until))
    await driver.append(("progress", {}), waits=waits, transition=parking("tools"), progress=PROGRESS)
    await asked(stores, clock, HOUR)

    async def held() -> list[HeldTurn]:
        return [turn for turn in await stores.waits.held_turns() if turn.run_id == driver.run.id]

    kept = (("key", "order 1"), ("tool", "pay"))
    assert await held() == [HeldTurn(call.id, driver.run.id, "acme", kept, until) for call in made[:2]]
    await stores.waits.deliver(made[0].id, {"body": 1})
    assert [turn.tool_call_id for turn in await held()] == [made[1].id]
    await driver.append(("end", {}), transition=ending())
    assert await held() == []
