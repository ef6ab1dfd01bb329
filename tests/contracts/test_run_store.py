"""Accepting, finding, listing, claiming, cancelling and deleting runs."""

import asyncio
from dataclasses import replace

import pytest

from app.core.errors import Conflict, InvalidRequest, NotFound
from app.core.idempotency import KEPT_MS, IdempotencyKey
from app.core.ids import new_id
from app.core.messages import Message, ToolCall
from app.runs.ports import RunFilter
from app.storage.open import Stores
from tests.contracts.samples import HELLO, Clock, Driver, a_call, ending, new_run, started

pytestmark = pytest.mark.anyio


def key(body: bytes = b"{}", name: str = "k1", tenant: str = "acme") -> IdempotencyKey:
    return IdempotencyKey.of(tenant, "POST /runs", name, body)


async def test_a_created_run_reads_back_as_it_was_written(stores: Stores) -> None:
    new = new_run(metadata={"ticket": "T-1", "n": 3})
    run, replayed = await stores.runs.create(new, None)
    assert not replayed
    assert run == replace(
        new.run, base_checkpoint_id=None, checkpoint_id=new.checkpoint_id, before=1, last_seq=1, batches=1
    )
    assert await stores.runs.get("acme", run.id) == run
    assert list(await stores.runs.events(run.id, after=0, max_bytes=1 << 20)) == [new.first]
    assert await stores.runs.messages(run.thread_id, run.checkpoint_id) == [HELLO]


async def test_the_callers_trace_context_is_kept_through_queue_and_takeover(stores: Stores) -> None:
    traceparent, tracestate = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1,b=2"
    new = new_run(claimed=False)
    new.run.traceparent, new.run.tracestate = traceparent, tracestate
    run, _ = await stores.runs.create(new, None)
    for owner in ("me", "you"):
        claimed = await stores.runs.claim(run.id, owner)
        assert claimed is not None
        assert (claimed.traceparent, claimed.tracestate) == (traceparent, tracestate)
    without = await started(stores.runs)
    assert (without.run.traceparent, without.run.tracestate) == (None, None)


async def test_a_pending_run_has_no_events_yet(stores: Stores) -> None:
    run, _ = await stores.runs.create(new_run(claimed=False), None)
    assert (run.status, run.epoch, run.last_seq, run.batches) == ("pending", 0, 0, 0)
    assert list(await stores.runs.events(run.id, after=0, max_bytes=1)) == []


async def test_input_messages_keep_every_field(stores: Stores) -> None:
    messages = (
        Message("system", "be brief"),
        Message("user", [{"type": "text", "text": "ä"}]),
        Message("assistant", None, tool_calls=(ToolCall("1", "t", {"a": [1]}), ToolCall("2", "t", "{bad"))),
        Message("tool", "x", tool_call_id="1", name="t"),
        Message("assistant", None, refusal="no"),
    )
    run, _ = await stores.runs.create(new_run(messages=messages), None)
    assert run.before == 5
    assert await stores.runs.messages(run.thread_id, run.checkpoint_id) == list(messages)


async def test_an_unknown_thread_or_one_of_another_tenant_is_not_found(stores: Stores) -> None:
    other = await started(stores.runs, "other")
    for thread_id in (new_id(), other.run.thread_id):
        with pytest.raises(NotFound) as failure:
            await stores.runs.create(new_run(thread_id=thread_id), None)
        assert failure.value.code == "thread_not_found"


async def test_a_thread_is_busy_until_its_run_ends_and_then_continues_its_state(stores: Stores) -> None:
    first = await started(stores.runs)
    follow_up = new_run(thread_id=first.run.thread_id)
    with pytest.raises(Conflict) as failure:
        await stores.runs.create(follow_up, None)
    assert failure.value.code == "thread_busy"
    assert await stores.runs.get("acme", follow_up.run.id) is None
    await first.end()
    second, _ = await stores.runs.create(follow_up, None)
    assert second.base_checkpoint_id == first.run.checkpoint_id
    assert second.before == 2
    assert await stores.runs.messages(second.thread_id, second.checkpoint_id) == [HELLO, HELLO]


async def test_of_two_runs_posted_to_one_thread_at_once_one_wins(stores: Stores) -> None:
    first = await started(stores.runs)
    await first.end()
    outcomes = await asyncio.gather(
        *(stores.runs.create(new_run(thread_id=first.run.thread_id), None) for _ in range(10)), return_exceptions=True
    )
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 9


async def test_the_same_key_and_body_give_the_run_as_it_is_now(stores: Stores) -> None:
    run, replayed = await stores.runs.create(new_run(), key())
    assert not replayed
    await Driver(stores.runs, run).end()
    again, replayed = await stores.runs.create(new_run(), key())
    assert replayed
    assert again == await stores.runs.get("acme", run.id)
    assert again.status == "success"
    assert await stores.runs.find_replay(key()) == run.id


async def test_the_same_key_with_another_body_is_refused(stores: Stores) -> None:
    await stores.runs.create(new_run(), key(b"1"))
    new = new_run()
    with pytest.raises(InvalidRequest) as failure:
        await stores.runs.create(new, key(b"2"))
    assert failure.value.code == "idempotency_mismatch"
    with pytest.raises(InvalidRequest):
        await stores.runs.find_replay(key(b"2"))
    assert await stores.runs.get("acme", new.run.id) is None


async def test_a_key_belongs_to_its_tenant_and_route(stores: Stores) -> None:
    await stores.runs.create(new_run(), key(b"1"))
    assert await stores.runs.find_replay(key(b"2", tenant="other")) is None
    assert await stores.runs.find_replay(IdempotencyKey.of("acme", "POST /runs/wait", "k1", b"2")) is None
    assert await stores.runs.find_replay(key(name="never used")) is None


async def test_a_key_older_than_a_day_is_forgotten_and_may_be_used_again(stores: Stores, clock: Clock) -> None:
    old, _ = await stores.runs.create(new_run(), key(b"1"))
    clock.now += KEPT_MS - 1
    assert await stores.runs.find_replay(key(b"1")) == old.id
    clock.now += 1
    assert await stores.runs.find_replay(key(b"2")) is None
    new, replayed = await stores.runs.create(new_run(), key(b"2"))
    assert not replayed
    assert await stores.runs.find_replay(key(b"2")) == new.id


async def test_a_key_whose_run_was_deleted_makes_a_new_run(stores: Stores) -> None:
    run, _ = await stores.runs.create(new_run(), key())
    await Driver(stores.runs, run).end()
    assert await stores.runs.delete("acme", run.id)
    assert await stores.runs.find_replay(key()) is None
    new, replayed = await stores.runs.create(new_run(), key())
    assert not replayed
    assert new.id != run.id


async def test_a_hundred_equal_creates_at_once_make_one_run(stores: Stores) -> None:
    made = await asyncio.gather(*(stores.runs.create(new_run(), key()) for _ in range(100)))
    assert len({run.id for run, _ in made}) == 1
    assert sum(not replayed for _, replayed in made) == 1
    assert len(await stores.runs.page("acme", RunFilter(), after=None, limit=100)) == 1


async def test_pages_are_newest_first_and_continue_after_a_run(stores: Stores) -> None:
    ids = [(await started(stores.runs)).run.id for _ in range(5)]
    await started(stores.runs, "other")
    newest = [run.id for run in await stores.runs.page("acme", RunFilter(), after=None, limit=3)]
    assert newest == ids[:1:-1]
    rest = [run.id for run in await stores.runs.page("acme", RunFilter(), after=newest[-1], limit=3)]
    assert rest == [ids[1], ids[0]]


async def test_pages_are_filtered_by_status_agent_thread_and_metadata(stores: Stores) -> None:
    long = "x" * 4000
    one = await started(stores.runs, metadata={"a": "1", "flag": True, "long": long, "none": None, "deep": {"x": [1]}})
    two = await started(stores.runs, agent=None, metadata={"a": 1, "b": "%_'"})
    await two.end()

    async def found(**where: object) -> set[str]:
        return {run.id for run in await stores.runs.page("acme", RunFilter(**where), after=None, limit=10)}  # pyright: ignore[reportArgumentType]

    assert await found(status="success") == {two.run.id}
    assert await found(agent="support") == {one.run.id}
    assert await found(thread_id=two.run.thread_id) == {two.run.id}
    assert await found(metadata={"a": "1"}) == {one.run.id, two.run.id}
    assert await found(metadata={"a": "1", "b": "%_'"}) == {two.run.id}
    assert await found(metadata={"flag": "true"}) == {one.run.id}
    assert await found(metadata={"none": "null"}) == {one.run.id}
    assert await found(metadata={"deep": '{"x":[1]}'}) == {one.run.id}
    assert await found(metadata={"long": long}) == {one.run.id}
    assert await found(metadata={"long": long + "x"}) == set()
    assert await found(metadata={"a' OR 1=1 --": "1"}) == set()


async def test_claim_raises_epoch_and_attempt_and_keeps_the_first_start(stores: Stores, clock: Clock) -> None:
    run, _ = await stores.runs.create(new_run(claimed=False), None)
    clock.now += 5
    claimed = await stores.runs.claim(run.id, "me")
    assert claimed is not None
    assert (claimed.status, claimed.epoch, claimed.attempt, claimed.owner) == ("running", 1, 1, "me")
    assert claimed.started_at == clock.now
    clock.now += 5
    again = await stores.runs.claim(run.id, "you")
    assert again is not None
    assert (again.epoch, again.attempt, again.owner, again.started_at) == (2, 2, "you", clock.now - 5)
    assert again == await stores.runs.get("acme", run.id)


async def test_runs_that_ended_or_wait_or_are_gone_cannot_be_claimed(stores: Stores) -> None:
    ended = await started(stores.runs)
    await ended.end()
    parked = await started(stores.runs)
    await parked.append(transition=replace(ending("interrupted"), finished_at=None, output=None))
    for run_id in (ended.run.id, parked.run.id, new_id()):
        assert await stores.runs.claim(run_id, "me") is None


async def test_unfinished_lists_pending_and_running_runs_oldest_first(stores: Stores) -> None:
    running = await started(stores.runs)
    ended = await started(stores.runs)
    await ended.end()
    parked = await started(stores.runs)
    await parked.append(transition=replace(ending("interrupted"), finished_at=None))
    pending, _ = await stores.runs.create(new_run("other", claimed=False), None)
    assert list(await stores.runs.unfinished()) == [(running.run.id, "running"), (pending.id, "pending")]


async def test_cancel_sets_the_flag_of_an_active_run_only(stores: Stores) -> None:
    driver = await started(stores.runs)
    flagged = await stores.runs.request_cancel("acme", driver.run.id)
    assert flagged is not None
    assert flagged.cancel_requested
    assert (await driver.append(("output", {}))).cancel_requested
    await driver.end("cancelled")
    ended = await started(stores.runs)
    await ended.end()
    after = await stores.runs.request_cancel("acme", ended.run.id)
    assert after is not None
    assert (after.status, after.cancel_requested) == ("success", False)


async def test_delete_takes_a_finished_run_with_its_journal_and_calls_but_not_the_state(stores: Stores) -> None:
    driver = await started(stores.runs, metadata={"a": "1"})
    run = driver.run
    await driver.append(calls=(a_call(run),))
    with pytest.raises(Conflict) as failure:
        await stores.runs.delete("acme", run.id)
    assert failure.value.code == "run_active"
    await driver.end()
    assert await stores.runs.delete("acme", run.id)
    assert not await stores.runs.delete("acme", run.id)
    assert await stores.runs.get("acme", run.id) is None
    assert list(await stores.runs.events(run.id, after=0, max_bytes=1 << 20)) == []
    assert await stores.runs.calls(run.id) == []
    assert await stores.runs.page("acme", RunFilter(metadata={"a": "1"}), after=None, limit=1) == []
    assert await stores.runs.messages(run.thread_id, run.checkpoint_id) == [HELLO]
    assert (await driver.append(("output", {}))).fenced


async def test_another_tenants_run_is_absent_everywhere(stores: Stores) -> None:
    driver = await started(stores.runs, "other")
    run_id = driver.run.id
    assert await stores.runs.get("acme", run_id) is None
    assert await stores.runs.request_cancel("acme", run_id) is None
    assert not (await driver.append(("output", {}))).cancel_requested
    await driver.end()
    assert not await stores.runs.delete("acme", run_id)
    assert await stores.runs.page("acme", RunFilter(), after=None, limit=10) == []
    assert await stores.runs.get("other", run_id) is not None
