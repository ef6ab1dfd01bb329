"""Deleting what is kept no longer: finished runs, threads without one, used keys, secrets that nothing refers to."""

from typing import Any

import pytest

from app.core.errors import NotFound
from app.core.idempotency import KEPT_MS, IdempotencyKey
from app.core.messages import Message
from app.runs.ports import RetentionStore, Swept
from app.runs.records import Transition
from app.storage import idempotency, retention
from app.storage.database import Database
from app.storage.open import Stores
from app.storage.statement import Statement
from app.storage.tables import SCHEMA
from tests.contracts.samples import HELLO, Clock, Driver, a_call, a_checkpoint, a_result, new_run, started

pytestmark = pytest.mark.anyio

END_MS = 1_800_000_009_000
"""When the samples' runs end."""

AFTER_MS = END_MS + 1


async def sweep(store: RetentionStore, before_ms: int = AFTER_MS) -> tuple[int, int]:
    """(runs, threads) deleted."""
    counts: list[int] = []
    for delete_some in (store.delete_runs, store.delete_threads):
        total, swept = 0, Swept(0, more=True)
        while swept.more:
            swept = await delete_some(before_ms)
            total += swept.count
        counts.append(total)
    return counts[0], counts[1]


async def finished(stores: Stores, *, steps: int = 2, **changes: Any) -> Driver:
    driver = await started(stores.runs, **changes)
    calls = [a_call(driver.run, step) for step in range(1, steps + 1)]
    await driver.append(("action", {}), calls=calls)
    await driver.append(("step", {}), results=[a_result(call) for call in calls])
    await driver.end()
    return driver


async def rows(database: Database) -> dict[str, int]:
    """How many rows each table has, of those that have any."""
    counted: dict[str, int] = {}
    for table in SCHEMA.sorted_tables:
        query = Statement(table.select())
        found = await database.read(lambda tx, query=query: tx.all(query, {}))
        if found:
            counted[table.name] = len(found)
    return counted


async def test_a_run_that_finished_before_the_time_leaves_nothing_behind(stores: Stores, database: Database) -> None:
    driver = await finished(stores, metadata={"ticket": "T-1"})
    assert await sweep(stores.retention, END_MS) == (0, 0)
    assert await stores.runs.get("acme", driver.run.id) is not None
    assert await sweep(stores.retention) == (1, 1)
    assert await rows(database) == {}
    assert await sweep(stores.retention) == (0, 0)


async def test_runs_that_did_not_finish_stay_however_old_they_are(stores: Stores) -> None:
    running = await started(stores.runs)
    pending, _ = await stores.runs.create(new_run(claimed=False), None)
    parked = await started(stores.runs)
    await parked.append(("run", {}), transition=Transition("interrupted", "awaiting_input", None, None, None))
    assert await sweep(stores.retention, END_MS * 2) == (0, 0)
    for run in (running.run, pending, parked.run):
        assert await stores.runs.get("acme", run.id) is not None


@pytest.mark.parametrize("status", ["success", "error", "cancelled"])
async def test_every_way_to_finish_counts(stores: Stores, status: str) -> None:
    driver = await started(stores.runs)
    await driver.append(("end", {}), transition=Transition(status, None, None, None, END_MS))  # pyright: ignore[reportArgumentType]
    assert await sweep(stores.retention) == (1, 1)


async def test_a_thread_that_lives_on_keeps_the_messages_of_a_deleted_run(stores: Stores) -> None:
    first = await finished(stores)
    second = Driver(
        stores.runs, (await stores.runs.create(new_run(thread_id=first.run.thread_id, messages=[HELLO]), None))[0]
    )
    assert await sweep(stores.retention) == (1, 0)
    assert await stores.runs.get("acme", first.run.id) is None
    assert await stores.runs.messages(second.run.thread_id, second.run.checkpoint_id) == [HELLO, HELLO]
    await second.end()
    assert await sweep(stores.retention) == (1, 1)
    with pytest.raises(NotFound):
        await stores.runs.create(new_run(thread_id=first.run.thread_id), None)


async def test_a_listed_thread_outlives_its_runs(stores: Stores, database: Database) -> None:
    driver = await finished(stores)
    threads = SCHEMA.tables["threads"]
    await database.write(lambda tx: tx.run(Statement(threads.update().values(listed=1)), {}))
    assert await sweep(stores.retention) == (1, 0)
    again, _ = await stores.runs.create(new_run(thread_id=driver.run.thread_id), None)
    assert await stores.runs.messages(again.thread_id, again.checkpoint_id) == [HELLO, HELLO]


async def test_the_thread_of_a_run_deleted_by_hand_goes_when_it_is_old(stores: Stores, database: Database) -> None:
    driver = await finished(stores)
    assert await stores.runs.delete("acme", driver.run.id)
    assert await sweep(stores.retention, driver.run.created_at) == (0, 0)
    assert await sweep(stores.retention) == (0, 1)
    assert await rows(database) == {}


async def test_a_thread_with_anything_new_in_it_stays(stores: Stores, database: Database) -> None:
    driver = await started(stores.runs)
    checkpoint = a_checkpoint(driver.run, driver.run.checkpoint_id, Message("assistant", "new"))
    await driver.append(("output", {}), checkpoint=checkpoint)
    await driver.end()
    newest = checkpoint.created_at
    await stores.runs.delete("acme", driver.run.id)
    assert await sweep(stores.retention, newest) == (0, 0)
    assert await sweep(stores.retention, newest + 1) == (0, 1)
    assert await rows(database) == {}


async def test_runs_go_in_small_transactions_oldest_first(stores: Stores) -> None:
    runs = [await finished(stores, steps=1) for _ in range(retention.MAX_ITEMS + 1)]
    first = await stores.retention.delete_runs(AFTER_MS)
    assert first.more
    assert 0 < first.count <= retention.MAX_ITEMS
    left = [run for run in runs if await stores.runs.get("acme", run.run.id) is not None]
    assert len(left) == len(runs) - first.count
    assert (await sweep(stores.retention))[0] == len(left)


async def test_a_run_too_large_for_one_transaction_is_hidden_and_cut_from_its_end(
    stores: Stores, database: Database
) -> None:
    driver = await finished(stores, steps=retention.MAX_ROWS + 50)
    big = await started(stores.runs)
    for _ in range(retention.MAX_ROWS + 10):
        await big.append(("output", {"delta": "token"}))
    await big.end()
    seen: list[int] = []
    total, swept = 0, Swept(0, more=True)
    while swept.more:
        swept = await stores.retention.delete_runs(AFTER_MS)
        total += swept.count
        batches = await stores.runs.events(big.run.id, after=0, max_bytes=1 << 30)
        if batches:
            assert batches[0].first_seq == 1
        hidden = await stores.runs.get("acme", big.run.id) is None
        if len(batches) < min(256, retention.MAX_ROWS):
            assert hidden
        seen.append(len(batches))
    assert total == 2
    assert len(seen) >= 4
    assert await stores.runs.get("acme", driver.run.id) is None
    assert (await sweep(stores.retention))[1] == 2
    assert await rows(database) == {}


async def test_the_state_of_a_long_thread_goes_in_pieces(
    stores: Stores, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MAX_ROWS", 3)
    driver = await started(stores.runs)
    parent = driver.run.checkpoint_id
    for number in range(10):
        checkpoint = a_checkpoint(driver.run, parent, Message("assistant", str(number)))
        await driver.append(("output", {}), checkpoint=checkpoint)
        parent = checkpoint.id
    await driver.end()
    await stores.runs.delete("acme", driver.run.id)
    assert await stores.retention.delete_threads(AFTER_MS) == Swept(0, more=True)
    with pytest.raises(NotFound):
        await stores.runs.create(new_run(thread_id=driver.run.thread_id), None)
    assert await sweep(stores.retention) == (0, 1)
    assert await rows(database) == {}


async def test_long_rows_count_by_their_bytes(
    stores: Stores, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MAX_BYTES", 10_000)
    for _ in range(3):
        driver = await started(stores.runs)
        await driver.append(("output", {"delta": "x" * 6_000}))
        await driver.end()
    counts: list[int] = []
    while (swept := await stores.retention.delete_runs(AFTER_MS)).more:
        counts.append(swept.count)
    assert counts == [1, 1, 1]
    await sweep(stores.retention)
    assert await rows(database) == {}


async def test_a_key_is_forgotten_a_day_after_it_was_used(stores: Stores, database: Database, clock: Clock) -> None:
    for number in range(idempotency.MOST_FORGOTTEN + 5):
        await stores.runs.create(new_run(), IdempotencyKey.of("acme", "POST /runs", f"k{number}", b"{}"))
    clock.now += KEPT_MS
    await stores.runs.create(new_run(), IdempotencyKey.of("acme", "POST /runs", "new", b"{}"))
    assert await stores.retention.forget_keys() == Swept(0, more=False)
    clock.now += 1
    assert await stores.retention.forget_keys() == Swept(idempotency.MOST_FORGOTTEN, more=True)
    assert await stores.retention.forget_keys() == Swept(5, more=False)
    assert (await rows(database))["idempotency"] == 1


async def test_only_secrets_that_nothing_refers_to_are_deleted(stores: Stores, clock: Clock) -> None:
    used = {name: await stores.secrets.put("acme", name) for name in ("tool", "old tool", "agent", "run")}
    unused = [await stores.secrets.put("acme", "nobody's") for _ in range(450)]

    def holding(name: str) -> dict[str, object]:
        return {"http": {"headers": {"x-key": {"secret_ref": used[name]}}}}

    await stores.tools.put("acme", "t", holding("old tool"))
    await stores.tools.put("acme", "t", holding("tool"))
    await stores.agents.put("acme", "a", {"tools": [{"name": "t", "spec": holding("agent")}]})
    await stores.agents.delete("acme", "a")
    run, _ = await stores.runs.create(new_run(spec={"model": {"api_key": {"secret_ref": used["run"]}}}), None)
    clock.now += 1
    young = await stores.secrets.put("acme", "its run comes yet")
    assert await stores.retention.delete_secrets(clock.now) == Swept(len(unused), more=False)
    assert [await stores.secrets.get("acme", ref) for ref in used.values()] == list(used)
    assert await stores.secrets.get("acme", young) == "its run comes yet"
    assert {await stores.secrets.get("acme", ref) for ref in unused} == {None}
    await Driver(stores.runs, run).end()
    assert await sweep(stores.retention) == (1, 1)
    assert await stores.retention.delete_secrets(clock.now) == Swept(1, more=False)
    assert await stores.secrets.get("acme", used["run"]) is None
    assert await stores.secrets.get("acme", used["agent"]) == "agent"


async def test_references_are_found_beyond_the_first_page(stores: Stores, clock: Clock) -> None:
    kept: list[str] = []
    for number in range(401):
        ref = await stores.secrets.put("acme", str(number))
        kept.append(ref)
        spec: dict[str, object] = {"signing_secret": {"secret_ref": ref}}
        if number % 2:
            await stores.tools.put("acme", f"t{number}", spec)
        else:
            await stores.runs.create(new_run(spec=spec), None)
    clock.now += 1
    assert await stores.retention.delete_secrets(clock.now) == Swept(0, more=False)
    assert None not in [await stores.secrets.get("acme", ref) for ref in kept]
