"""A thread's state: deltas, snapshots now and then, and their fold."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import bindparam, func, select

from app.core.ids import new_id
from app.core.messages import Message
from app.runs.records import Checkpoint
from app.storage import checkpoints
from app.storage.database import Database
from app.storage.open import Stores
from app.storage.statement import Statement
from app.storage.tables import checkpoints as table
from tests.contracts.samples import HELLO, a_checkpoint, started

pytestmark = pytest.mark.anyio

_SIZES = Statement(
    select(func.count(table.c.snapshot), func.sum(func.length(table.c.snapshot)), func.sum(func.length(table.c.delta)))
    .where(table.c.thread_id == bindparam("thread"))
)  # fmt: skip


async def test_messages_are_those_up_to_the_checkpoint_asked_for(stores: Stores) -> None:
    driver = await started(stores.runs)
    run = driver.run
    one = a_checkpoint(run, run.checkpoint_id, Message("assistant", "1"), Message("tool", "2", tool_call_id="x"))
    two = a_checkpoint(run, one.id)
    three = a_checkpoint(run, two.id, Message("assistant", "3"))
    for checkpoint in (one, two, three):
        await driver.append(checkpoint=checkpoint)
    texts = [message.content for message in await stores.runs.messages(run.thread_id, three.id)]
    assert texts == ["hello", "1", "2", "3"]
    assert len(await stores.runs.messages(run.thread_id, two.id)) == 3
    assert await stores.runs.messages(run.thread_id, None) == []
    assert await stores.runs.messages(run.thread_id, new_id()) == []
    assert await stores.runs.messages(new_id(), three.id) == []
    assert await stores.runs.checkpoints_since(run.thread_id, three.id, run.checkpoint_id) == [one, two, three]
    assert await stores.runs.checkpoints_since(run.thread_id, three.id, two.id) == [three]
    assert await stores.runs.checkpoints_since(run.thread_id, three.id, three.id) == []
    root, *rest = await stores.runs.checkpoints_since(run.thread_id, two.id, None)
    assert root.id == run.checkpoint_id
    assert root.delta == {"messages": [HELLO.to_json()]}
    assert rest == [one, two]


async def test_a_checkpoint_cannot_continue_another_thread(stores: Stores) -> None:
    driver, other = await started(stores.runs), await started(stores.runs)
    with pytest.raises(LookupError):
        await driver.append(checkpoint=a_checkpoint(driver.run, other.run.checkpoint_id, HELLO))
    run = await stores.runs.get("acme", driver.run.id)
    assert run == driver.run


async def test_snapshots_stay_linear_and_a_long_thread_folds_whole(stores: Stores, database: Database) -> None:
    driver = await started(stores.runs)
    run = driver.run
    parent = run.checkpoint_id
    assert parent is not None
    for number in range(500):
        checkpoint = a_checkpoint(run, parent, Message("user", f"{number} " + "ä" * 1000))
        await driver.append(checkpoint=checkpoint)
        parent = checkpoint.id
    messages = await stores.runs.messages(run.thread_id, parent)
    assert [str(message.content).split(" ")[0] for message in messages[1:]] == [str(n) for n in range(500)]
    row = await database.read(lambda tx: tx.one(_SIZES, {"thread": run.thread_id}))
    assert row is not None
    count, snapshots, deltas = row
    assert 3 <= count <= 6, "sizes double: 64 KB, 128 KB, …"
    assert snapshots <= 3 * deltas


async def test_a_short_thread_stores_no_snapshot(stores: Stores, database: Database) -> None:
    driver = await started(stores.runs)
    await driver.append(checkpoint=a_checkpoint(driver.run, driver.run.checkpoint_id, Message("user", "x" * 60_000)))
    row = await database.read(lambda tx: tx.one(_SIZES, {"thread": driver.run.thread_id}))
    assert row is not None
    assert row[0] == 0


async def test_branches_of_one_thread_do_not_mix(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = await started(stores.runs)
    run = driver.run
    for threshold in (1 << 16, 200):
        monkeypatch.setattr(checkpoints, "MIN_SNAPSHOT_BYTES", threshold)
        left, right = run.checkpoint_id, run.checkpoint_id
        for number in range(12):
            one = a_checkpoint(run, left, Message("user", f"left {number}"))
            two = a_checkpoint(run, right, Message("user", f"right {number}"))
            await driver.append(checkpoint=one)
            await driver.append(checkpoint=two)
            left, right = one.id, two.id
        for side, last in (("left", left), ("right", right)):
            texts = [message.content for message in await stores.runs.messages(run.thread_id, last)]
            assert texts == ["hello", *(f"{side} {number}" for number in range(12))]


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
_MESSAGES = st.lists(_TEXT.map(lambda text: Message("user", text)), max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deltas=st.lists(_MESSAGES, min_size=1, max_size=25), threshold=st.integers(1, 400))
async def test_folding_with_snapshots_equals_plain_folding(
    database: Database, monkeypatch: pytest.MonkeyPatch, deltas: list[list[Message]], threshold: int
) -> None:
    monkeypatch.setattr(checkpoints, "MIN_SNAPSHOT_BYTES", threshold)
    thread_id = new_id()
    plain: list[Message] = []
    parent: str | None = None
    states = checkpoints.States()
    for delta in deltas:
        body = {"messages": [message.to_json() for message in delta]}
        checkpoint = Checkpoint(new_id(), thread_id, parent, None, body, 0)
        state = await database.write(lambda tx, c=checkpoint: checkpoints.add(tx, "acme", c, states))
        parent = checkpoint.id
        plain += delta
        assert state.messages == len(plain)
        at = parent
        assert await database.read(lambda tx, at=at: checkpoints.messages(tx, thread_id, at)) == plain
