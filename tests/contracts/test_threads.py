"""Threads in storage: fields beside messages, changes, forks, the line of runs, deletion."""

from dataclasses import replace
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from app.agent.state_schema import FieldUpdate, Values, apply, updates_of
from app.core.errors import Conflict, NotFound
from app.core.ids import new_id
from app.core.messages import Message
from app.runs.records import Checkpoint, RunRecord
from app.storage import checkpoints
from app.storage.database import Database
from app.storage.open import Stores
from app.storage.statement import Statement
from app.storage.tables import SCHEMA
from app.threads.ports import Change
from tests.contracts.samples import HELLO, Driver, a_call, a_checkpoint, a_result, new_run, started

pytestmark = pytest.mark.anyio


def add(name: str, value: object, reducer: str = "append") -> FieldUpdate:
    return FieldUpdate(name, reducer, value)


def a_change(thread_id: str, head: str | None, *messages: Message, fields: tuple[FieldUpdate, ...] = ()) -> Change:
    delta: dict[str, object] = {"messages": [message.to_json() for message in messages]}
    if fields:
        delta["fields"] = [update.to_json() for update in fields]
    return Change(head, Checkpoint(new_id(), thread_id, head, None, delta, 1, "update"), whole_messages=False)


async def finished(stores: Stores) -> RunRecord:
    driver = await started(stores.runs)
    await driver.end()
    run = await stores.runs.get("acme", driver.run.id)
    assert run is not None
    return run


async def test_a_run_begins_with_defaults_that_the_thread_lacks_and_with_its_own_fields(stores: Stores) -> None:
    first = replace(new_run(), defaults=(add("a", [0], "replace"),), fields=(add("a", [1]), add("b", 2, "sum")))
    run, _ = await stores.runs.create(first, None)
    assert await stores.runs.state(run.thread_id, run.checkpoint_id) == ([HELLO], {"a": [0, 1], "b": 2})
    await Driver(stores.runs, run).end()
    second = replace(
        new_run(thread_id=run.thread_id),
        defaults=(add("a", [0], "replace"), add("c", 5, "replace")),
        fields=(add("a", [2]),),
    )
    run, _ = await stores.runs.create(second, None)
    assert await stores.runs.values("acme", run.thread_id) == {"a": [0, 1], "b": 2}
    assert (await stores.runs.state(run.thread_id, run.checkpoint_id))[1] == {"a": [0, 1, 2], "b": 2, "c": 5}
    with pytest.raises(NotFound):
        await stores.runs.values("other", run.thread_id)


async def test_a_change_needs_the_head_that_it_was_made_for_and_an_idle_thread(stores: Stores) -> None:
    run = await finished(stores)
    thread = await stores.threads.get("acme", run.thread_id)
    assert thread is not None
    head = thread.head_checkpoint_id
    change = a_change(run.thread_id, head, HELLO, fields=(add("a", [1]),))
    assert await stores.threads.change("acme", run.thread_id, change)
    assert not await stores.threads.change("acme", run.thread_id, a_change(run.thread_id, head, HELLO))
    with pytest.raises(NotFound):
        await stores.threads.change("other", run.thread_id, a_change(run.thread_id, change.checkpoint.id))
    state = await stores.threads.state(run.thread_id, change.checkpoint.id)
    assert state is not None
    assert state.values == {"a": [1]}
    await started(stores.runs, thread_id=run.thread_id)
    with pytest.raises(Conflict):
        await stores.threads.change("acme", run.thread_id, a_change(run.thread_id, change.checkpoint.id))


async def test_overwritten_messages_are_gone_from_then_on_and_there_before(stores: Stores) -> None:
    run = await finished(stores)
    change = a_change(run.thread_id, run.checkpoint_id, Message("user", "only"))
    whole = Change(change.expected_head, change.checkpoint, whole_messages=True)
    assert await stores.threads.change("acme", run.thread_id, whole)
    assert await stores.runs.messages(run.thread_id, change.checkpoint.id) == [Message("user", "only")]
    assert await stores.runs.messages(run.thread_id, run.checkpoint_id) == [HELLO]
    driver = await started(stores.runs, thread_id=run.thread_id)
    assert driver.run.before == 2
    assert await stores.runs.messages(run.thread_id, driver.run.checkpoint_id) == [Message("user", "only"), HELLO]


async def test_a_fork_outlives_its_origin(stores: Stores, database: Database) -> None:
    run = await finished(stores)
    change = a_change(run.thread_id, run.checkpoint_id, fields=(add("a", [1]),))
    await stores.threads.change("acme", run.thread_id, change)
    root = Checkpoint(new_id(), new_id(), None, None, {"messages": []}, 5, "fork")
    made = await stores.threads.fork("acme", run.thread_id, root, change.checkpoint.id, {"k": "v"}, None)
    assert made == (root.thread_id, False)
    assert await stores.threads.delete("acme", run.thread_id)
    assert await stores.runs.state(root.thread_id, root.id) == ([HELLO], {"a": [1]})
    driver = await started(stores.runs, thread_id=root.thread_id)
    assert driver.run.before == 2
    (found,) = await stores.threads.page("acme", {"k": "v"}, after=None, limit=5)
    assert (found.id, found.listed, found.status) == (root.thread_id, True, "busy")
    left = {
        table.name: await database.read(
            lambda tx, t=table: tx.one(Statement(select(func.count()).where(t.c.thread_id == run.thread_id)), {})
        )
        for table in SCHEMA.sorted_tables
        if "thread_id" in table.c
    }
    assert set(left.values()) == {(0,)}


async def test_deleting_a_long_thread_leaves_no_row_and_no_busy_one_is_deleted(
    stores: Stores, database: Database
) -> None:
    driver = await started(stores.runs)
    thread_id, parent = driver.run.thread_id, driver.run.checkpoint_id
    with pytest.raises(Conflict):
        await stores.threads.delete("acme", thread_id)
    for step in range(1, 351):
        checkpoint = a_checkpoint(driver.run, parent, HELLO)
        call = a_call(driver.run, step)
        await driver.append(("custom", {}), checkpoint=checkpoint, calls=(call,), results=(a_result(call),))
        parent = checkpoint.id
    await driver.end()
    assert not await stores.threads.delete("other", thread_id)
    assert await stores.threads.delete("acme", thread_id)
    assert not await stores.threads.delete("acme", thread_id)
    for table in SCHEMA.sorted_tables:
        if table.name != "alembic_version":
            rows = await database.read(lambda tx, t=table: tx.one(Statement(select(func.count()).select_from(t)), {}))
            assert rows == (0,), table.name


async def test_the_end_of_a_run_gives_its_thread_to_the_next_in_the_line(stores: Stores) -> None:
    first = await started(stores.runs)
    thread_id = first.run.thread_id
    waiting: list[RunRecord] = []
    for number in range(3):
        new = replace(new_run(thread_id=thread_id, messages=[Message("user", str(number))]), when_busy="enqueue")
        run, _ = await stores.runs.create(new, None)
        assert (run.status, run.epoch, run.last_seq, run.checkpoint_id) == ("pending", 0, 0, None)
        waiting.append(run)
    assert await stores.runs.claim(waiting[0].id, "me") is None, "it has no thread yet"
    assert waiting[0].id not in [run_id for run_id, _ in await stores.runs.unfinished()]
    await stores.runs.request_cancel("acme", waiting[1].id)
    assert waiting[1].id in [run_id for run_id, _ in await stores.runs.unfinished()]
    ended = await first.end()
    assert ended.next_run == waiting[0].id
    second = await stores.runs.claim(waiting[0].id, "me")
    assert second is not None
    assert (second.base_checkpoint_id, second.before, second.queued) == (first.run.checkpoint_id, 2, None)
    cancelled = await stores.runs.claim(waiting[1].id, "me")
    assert cancelled is not None
    assert (await Driver(stores.runs, cancelled).end("cancelled")).next_run is None, "it never had the thread"
    assert (await Driver(stores.runs, second).end()).next_run == waiting[2].id
    third = await stores.runs.claim(waiting[2].id, "me")
    assert third is not None
    texts = [message.content for message in await stores.runs.messages(thread_id, third.checkpoint_id)]
    assert texts == ["hello", "0", "2"]


async def test_a_rolled_back_run_leaves_the_thread_where_it_began(stores: Stores) -> None:
    base = await finished(stores)
    driver = await started(stores.runs, thread_id=base.thread_id)
    await driver.append(checkpoint=a_checkpoint(driver.run, driver.run.checkpoint_id, HELLO))
    new = replace(new_run(thread_id=base.thread_id, messages=[Message("user", "new")]), when_busy="rollback")
    run, _ = await stores.runs.create(new, None)
    assert run.queued is not None
    assert run.queued["displaces"] == [driver.run.id]
    await stores.runs.displace_again()  # as a start does after a crash
    displaced = await stores.runs.get("acme", driver.run.id)
    assert displaced is not None
    assert (displaced.cancel_requested, displaced.displaced) == (True, "rollback")
    assert await stores.runs.displace([driver.run.id, base.id], "rollback") == [(driver.run.id, False)]
    assert (await driver.end("cancelled")).next_run == run.id
    after = await stores.runs.claim(run.id, "me")
    assert after is not None
    assert [m.content for m in await stores.runs.messages(base.thread_id, after.checkpoint_id)] == ["hello", "new"]


_FIELDS = st.lists(
    st.one_of(
        st.tuples(st.just("log"), st.just("append"), st.lists(st.text("abä", max_size=20), max_size=3)),
        st.tuples(st.just("sum"), st.just("sum"), st.integers(-5, 5)),
        st.tuples(st.just("seen"), st.just("union"), st.lists(st.integers(0, 5), max_size=3)),
        st.tuples(st.just("any"), st.just("replace"), st.none() | st.text("xy", max_size=30)),
    ),
    max_size=3,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deltas=st.lists(st.tuples(_FIELDS, st.integers(0, 2)), min_size=1, max_size=20), threshold=st.integers(1, 600))
async def test_a_state_read_back_is_the_fold_of_its_updates_with_snapshots_or_without(
    database: Database,
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
    deltas: list[tuple[list[tuple[str, str, object]], int]],
    threshold: int,
) -> None:
    monkeypatch.setattr(checkpoints, "MIN_SNAPSHOT_BYTES", threshold)
    thread_id, _ = await stores.threads.create("acme", new_id(), {}, None)
    plain: Values = {}
    count = 0
    parent: str | None = None
    for fields, messages in deltas:
        updates = tuple(FieldUpdate(*item) for item in fields)
        change = a_change(thread_id, parent, *[HELLO] * messages, fields=updates)
        assert await stores.threads.change("acme", thread_id, change)
        parent = change.checkpoint.id
        plain, count = apply(plain, updates), count + messages
        found, values = await stores.runs.state(thread_id, parent)
        assert (len(found), values) == (count, plain)
    points = await stores.threads.history(thread_id, after=None, limit=100)
    assert len(points) == len(deltas)
    replayed: Values = {}
    for point in reversed(points):
        replayed = apply(replayed, updates_of(cast("list[object]", point.delta.get("fields") or [])))
    assert replayed == plain


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    deltas=st.lists(st.tuples(_FIELDS, st.integers(0, 2)), min_size=1, max_size=12),
    cut=st.integers(0, 11),
    threshold=st.integers(1, 400),
)
async def test_a_fork_that_is_given_the_same_has_the_same_state(
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
    deltas: list[tuple[list[tuple[str, str, object]], int]],
    cut: int,
    threshold: int,
) -> None:
    monkeypatch.setattr(checkpoints, "MIN_SNAPSHOT_BYTES", threshold)
    cut = min(cut, len(deltas) - 1)
    origin, _ = await stores.threads.create("acme", new_id(), {}, None)
    heads: list[str] = []

    async def write(thread_id: str, head: str | None, number: int) -> str:
        fields, count = deltas[number]
        messages = [Message("user", f"{number} {place}") for place in range(count)]
        change = a_change(thread_id, head, *messages, fields=tuple(FieldUpdate(*item) for item in fields))
        assert await stores.threads.change("acme", thread_id, change)
        return change.checkpoint.id

    for number in range(len(deltas)):
        heads.append(await write(origin, heads[-1] if heads else None, number))
    root = Checkpoint(new_id(), new_id(), None, None, {"messages": []}, 5, "fork")
    await stores.threads.fork("acme", origin, root, heads[cut], {}, None)
    head = root.id
    for number in range(cut + 1, len(deltas)):
        head = await write(root.thread_id, head, number)
    assert await stores.runs.state(root.thread_id, head) == await stores.runs.state(origin, heads[-1])
