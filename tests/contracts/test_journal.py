"""Appending to a run: fencing, batches, the run's projection, the thread's head, and what readers see."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.core.ids import new_id
from app.core.messages import Message
from app.runs.records import Batch, Progress
from app.storage.database import Database
from app.storage.open import Stores, build_stores, open_database
from tests.contracts.samples import (
    HELLO,
    Driver,
    a_call,
    a_checkpoint,
    a_dispatch,
    ending,
    events,
    new_run,
    started,
)

pytestmark = pytest.mark.anyio

ALL = 1 << 30


async def test_an_append_moves_the_runs_projection_with_its_events(stores: Stores) -> None:
    driver = await started(stores.runs)
    result = await driver.append(
        ("output", {"text": "a\nb"}), ("usage", {}), progress=Progress(1, 2, {"model_calls": 1}, 250)
    )
    assert (result.fenced, result.cancel_requested, result.dispatches) == (False, False, ())
    run = await stores.runs.get("acme", driver.run.id)
    assert run == replace(
        driver.run, last_seq=3, batches=2, iterations=1, steps=2, usage={"model_calls": 1}, active_ms=250
    )


async def test_a_batch_comes_back_with_the_same_bytes_and_offsets(stores: Stores) -> None:
    driver = await started(stores.runs)
    append = driver.next(("output", {"text": "ä\r\n"}), ("output", {"text": "\x00"}))
    await stores.runs.append(append)
    assert list(await stores.runs.events(driver.run.id, after=1, max_bytes=ALL)) == [append.events]


async def test_an_older_epoch_writes_nothing(stores: Stores) -> None:
    driver = await started(stores.runs)
    run = driver.run
    claimed = await stores.runs.claim(run.id, "another process")
    assert claimed is not None
    call = a_call(run)
    result = await driver.append(
        ("finish", {}),
        calls=(call,),
        dispatches=(a_dispatch(call),),
        checkpoint=a_checkpoint(run, run.checkpoint_id, HELLO),
        progress=Progress(9, 9, {}, 9),
        transition=ending(),
    )
    assert result.fenced
    assert await stores.runs.get("acme", run.id) == claimed
    assert await stores.runs.calls(run.id) == []
    assert len(await stores.runs.events(run.id, after=0, max_bytes=ALL)) == 1
    assert not (await Driver(stores.runs, claimed).append(("output", {}))).fenced


async def test_nothing_can_follow_the_end(stores: Stores) -> None:
    driver = await started(stores.runs)
    await driver.end()
    assert (await driver.append(("output", {}))).fenced
    run = await stores.runs.get("acme", driver.run.id)
    assert run is not None
    assert (run.status, run.stop_reason, run.output, run.last_seq) == ("success", "finish", {"output": "done"}, 2)
    assert run.finished_at == 1_800_000_009_000


async def test_the_end_moves_the_threads_head_to_the_runs_newest_checkpoint(stores: Stores) -> None:
    driver = await started(stores.runs)
    run = driver.run
    answer = Message("assistant", "hi")
    checkpoint = a_checkpoint(run, run.checkpoint_id, answer)
    await driver.append(("output", {}), checkpoint=checkpoint)
    last = a_checkpoint(run, checkpoint.id, answer)
    await driver.end("error", checkpoint=last)
    after, _ = await stores.runs.create(new_run(thread_id=run.thread_id), None)
    assert (after.base_checkpoint_id, after.before) == (last.id, 4)


async def test_a_row_of_private_records_takes_no_ids_and_is_no_event_row(stores: Stores) -> None:
    driver = await started(stores.runs)
    await driver.append(private=({"type": "raw", "answer": {}},))
    await driver.append(("output", {}))
    read = await stores.runs.events(driver.run.id, after=0, max_bytes=ALL)
    assert [(batch.first_seq, batch.n) for batch in read] == [(1, 1), (2, 1)]
    run = await stores.runs.get("acme", driver.run.id)
    assert run is not None
    assert (run.last_seq, run.batches) == (2, 3)


async def test_events_are_paged_across_batches_by_bytes(stores: Stores) -> None:
    driver = await started(stores.runs)
    for size in (1, 3, 2):
        await driver.append(*[("output", {"text": "x" * 1000})] * size)
    store, run_id = stores.runs, driver.run.id

    async def first_seqs(after: int, max_bytes: int) -> list[int]:
        return [batch.first_seq for batch in await store.events(run_id, after=after, max_bytes=max_bytes)]

    assert await first_seqs(0, ALL) == [1, 2, 3, 6]
    assert await first_seqs(0, 1) == [1]
    assert await first_seqs(1, 1) == [2]
    assert await first_seqs(1, 4500) == [2, 3]
    assert await first_seqs(4, 1) == [3], "a row that begins before `after` and reaches beyond it"
    assert await first_seqs(7, ALL) == []
    assert await first_seqs(6, ALL) == [6]


async def test_reading_on_from_page_to_page_gives_every_event_once(stores: Stores) -> None:
    driver = await started(stores.runs)
    await asyncio.gather(*(stores.runs.append(driver.next(("output", {"n": n}))) for n in range(600)))
    seen: list[int] = []
    while page := await stores.runs.events(driver.run.id, after=len(seen), max_bytes=4096):
        for batch in page:
            seen.extend(range(batch.first_seq, batch.last_seq + 1))
    assert seen == list(range(1, 602))


async def test_a_reader_sees_only_committed_rows(stores: Stores, database: Database) -> None:
    driver = await started(stores.runs)
    appends = [asyncio.ensure_future(stores.runs.append(driver.next(("output", {"n": n})))) for n in range(300)]
    last = 0
    while not all(append.done() for append in appends):
        done = sum(append.done() for append in appends)
        read = await stores.runs.events(driver.run.id, after=0, max_bytes=ALL)
        if len(read) < 256:  # the most rows of one answer
            assert len(read) >= done + 1, "what was acknowledged is there"
        assert [batch.first_seq for batch in read] == list(range(1, len(read) + 1))
        last = max(last, len(read))
        await asyncio.sleep(0)
    await asyncio.gather(*appends)


async def test_all_survives_a_restart(database_url: str) -> None:
    database = open_database(database_url)
    await database.start()
    stores = build_stores(database, "x" * 16)
    driver = await started(stores.runs)
    call = a_call(driver.run)
    await driver.append(("action", {}), calls=(call,))
    await stores.tools.create("acme", "lookup", {"a": 1}, None)
    ref = await stores.secrets.put("acme", "s3cret")
    before = await stores.runs.get("acme", driver.run.id)
    await database.stop()

    again = open_database(database_url)
    await again.start()
    stores = build_stores(again, "x" * 16)
    assert await stores.runs.get("acme", driver.run.id) == before
    assert await stores.runs.calls(driver.run.id) == [call]
    assert len(await stores.runs.events(driver.run.id, after=0, max_bytes=ALL)) == 2
    assert await stores.tools.get("acme", "lookup") is not None
    assert await stores.secrets.get("acme", ref) == "s3cret"
    assert [run_id for run_id, _ in await stores.runs.unfinished()] == [driver.run.id]
    await again.stop()


async def test_a_failing_append_leaves_nothing_and_its_siblings_are_written(stores: Stores) -> None:
    drivers = [await started(stores.runs) for _ in range(8)]
    broken: Any = replace(drivers[3].next(("output", {})), batch=1)  # that row exists
    appends = [driver.next(("output", {})) for driver in drivers]
    appends[3] = replace(broken, progress=Progress(7, 7, {}, 7))
    outcomes = await asyncio.gather(*(stores.runs.append(append) for append in appends), return_exceptions=True)
    assert [isinstance(outcome, Exception) for outcome in outcomes] == [index == 3 for index in range(8)]
    for index, driver in enumerate(drivers):
        run = await stores.runs.get("acme", driver.run.id)
        assert run is not None
        assert (run.last_seq, run.iterations) == ((1, 0) if index == 3 else (2, 0))


async def test_runs_appended_to_at_once_do_not_mix(stores: Stores) -> None:
    drivers = [await started(stores.runs) for _ in range(12)]

    async def drive(driver: Driver) -> None:
        for number in range(20):
            await driver.append(("output", {"run": driver.run.id, "n": number}))
        await driver.end()

    await asyncio.gather(*map(drive, drivers))
    for driver in drivers:
        read = await stores.runs.events(driver.run.id, after=0, max_bytes=ALL)
        assert [batch.first_seq for batch in read] == list(range(1, 23))
        expected = events(2, ("output", {"run": driver.run.id, "n": 0}))
        assert read[1] == expected


async def test_an_append_to_an_unknown_run_is_fenced(stores: Stores) -> None:
    driver = await started(stores.runs)
    append = replace(driver.next(("output", {})), run_id=new_id())
    assert (await stores.runs.append(append)).fenced


async def test_an_empty_append_is_a_row_without_events(stores: Stores) -> None:
    driver = await started(stores.runs)
    await driver.append()
    assert list(await stores.runs.events(driver.run.id, after=1, max_bytes=ALL)) == []
    assert Batch(2, 0, b"", ()).last_seq == 1
