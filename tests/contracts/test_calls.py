"""Tool calls: recorded, dispatched once allowed, finished, listed."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from sqlalchemy import bindparam, select

from app.core.ids import new_id
from app.runs.records import DispatchVerdict
from app.storage.database import Database
from app.storage.open import Stores
from app.storage.statement import Statement
from app.storage.tables import journal
from tests.contracts.samples import a_call, a_dispatch, a_result, started

pytestmark = pytest.mark.anyio

_PRIVATE = Statement(select(journal.c.private).where(journal.c.run_id == bindparam("run")).order_by(journal.c.batch))


async def private_records(database: Database, run_id: str) -> list[Any]:
    rows = await database.read(lambda tx: tx.all(_PRIVATE, {"run": run_id}))
    return [record for (text,) in rows if text is not None for record in orjson.loads(text)]


async def test_a_call_reads_back_as_it_was_proposed(stores: Stores) -> None:
    driver = await started(stores.runs)
    first = a_call(driver.run)
    second = a_call(driver.run, 2, tool_input="text", refusal="too many", state="waiting", tool_version=None)
    await driver.append(("action", {}), calls=(first, second))
    assert await stores.runs.calls(driver.run.id) == [first, second]
    assert await stores.runs.call(driver.run.id, 2) == second
    assert await stores.runs.call(driver.run.id, 3) is None
    assert await stores.runs.call(new_id(), 1) is None


async def test_a_dispatch_is_recorded_with_its_attempt(stores: Stores, database: Database) -> None:
    driver = await started(stores.runs)
    call = a_call(driver.run)
    await driver.append(calls=(call,))
    sent = await driver.append(private=({"type": "other"},), dispatches=(a_dispatch(call),))
    assert sent.dispatches == ("sent",)
    again = a_dispatch(call, attempt=2, at=1_800_000_000_900)
    assert (await driver.append(dispatches=(again,))).dispatches == ("sent",)
    assert await stores.runs.calls(driver.run.id) == [
        replace(call, state="dispatched", attempts=2, started_at=1_800_000_000_400, attempt_log=list(again.log))
    ]
    assert await private_records(database, driver.run.id) == [
        {"type": "other"},
        {"type": "dispatch", "tool_call_id": call.id, "attempt": 1, "at": 1_800_000_000_400},
        {"type": "dispatch", "tool_call_id": call.id, "attempt": 2, "at": 1_800_000_000_900},
    ]


async def test_an_input_that_was_not_asked_for_is_recorded_where_the_call_leaves_and_its_hash_with_it(
    stores: Stores,
) -> None:
    driver = await started(stores.runs)
    sent, handed = a_call(driver.run), a_call(driver.run, 2)
    await driver.append(calls=(sent, handed))
    other: dict[str, object] = {"q": "ö", "n": [1, None]}
    dispatch = replace(a_dispatch(sent), sent_input=other, arguments_sha256="d" * 64)
    await driver.append(dispatches=(dispatch, replace(dispatch, tool_call_id=handed.id, log=())))
    await stores.switches.disable("acme", sent.tool, "", "me")
    await driver.append(dispatches=(replace(dispatch, sent_input={"never": "sent"}),))
    first, second = await stores.runs.calls(driver.run.id)
    for kept, state in ((first, "dispatched"), (second, "proposed")):
        assert (kept.state, kept.sent_input, kept.arguments_sha256) == (state, other, "d" * 64)
        assert kept.tool_input == sent.tool_input
    await driver.append(("step", {}), results=(a_result(sent),))
    done = await stores.runs.call(driver.run.id, 1)
    assert done is not None
    assert (done.state, done.sent_input) == ("done", other)


async def test_after_a_cancel_no_dispatch_is_recorded_but_the_rest_of_the_append_is(
    stores: Stores, database: Database
) -> None:
    driver = await started(stores.runs)
    call = a_call(driver.run)
    await driver.append(calls=(call,))
    await stores.runs.request_cancel("acme", driver.run.id)
    result = await driver.append(("progress", {}), dispatches=(a_dispatch(call),))
    assert (result.cancel_requested, result.dispatches) == (True, ("cancelled",))
    assert await stores.runs.call(driver.run.id, 1) == call
    assert await private_records(database, driver.run.id) == []
    assert len(await stores.runs.events(driver.run.id, after=1, max_bytes=1 << 20)) == 1


async def test_a_cancel_and_a_dispatch_at_once_are_in_one_order(stores: Stores, database: Database) -> None:
    """Whichever comes first: an acknowledged cancel has no dispatch after it."""
    for cancel_first in (True, False):
        driver = await started(stores.runs)
        call = a_call(driver.run)
        await driver.append(calls=(call,))
        cancel = stores.runs.request_cancel("acme", driver.run.id)
        dispatch = driver.append(dispatches=(a_dispatch(call),))
        if cancel_first:
            _, result = await asyncio.gather(cancel, dispatch)
            assert result.dispatches == ("cancelled",)
        else:
            result, _ = await asyncio.gather(dispatch, cancel)
            assert result.dispatches == ("sent",)
        sent = len(await private_records(database, driver.run.id))
        assert sent == (0 if cancel_first else 1)
        later = await driver.append(dispatches=(a_dispatch(call, attempt=2),))
        assert later.dispatches == ("cancelled",)


async def test_a_registered_tool_must_still_be_there_for_the_runs_own_tenant(stores: Stores) -> None:
    driver = await started(stores.runs)
    calls = (a_call(driver.run), a_call(driver.run, 2))
    await driver.append(calls=calls)

    async def verdicts(*registered: bool) -> Sequence[DispatchVerdict]:
        dispatches = tuple(a_dispatch(call, registered=flag) for call, flag in zip(calls, registered, strict=False))
        return (await driver.append(dispatches=dispatches)).dispatches

    await stores.tools.create("other", "lookup", {}, None)
    assert await verdicts(True, False) == ("withdrawn", "sent")
    await stores.tools.create("acme", "lookup", {}, None)
    assert await verdicts(True) == ("sent",)
    await stores.tools.put("acme", "lookup", {"new": True})
    assert await verdicts(True) == ("sent",)
    await stores.tools.delete("acme", "lookup")
    assert await verdicts(True) == ("withdrawn",)
    assert [call.state for call in await stores.runs.calls(driver.run.id)] == ["dispatched", "dispatched"]


async def test_a_call_may_be_proposed_dispatched_and_finished_in_one_append(stores: Stores) -> None:
    driver = await started(stores.runs)
    call = a_call(driver.run)
    assert (await driver.append(calls=(call,), dispatches=(a_dispatch(call),))).dispatches == ("sent",)
    other = a_call(driver.run, 2)
    await driver.append(calls=(other,), results=(a_result(other, started_at=None, status="denied"),))
    finished = await stores.runs.call(driver.run.id, 2)
    assert finished is not None
    assert (finished.state, finished.status, finished.started_at) == ("done", "denied", None)


async def test_a_result_fills_the_call_in(stores: Stores) -> None:
    driver = await started(stores.runs)
    call = a_call(driver.run)
    await driver.append(calls=(call,), dispatches=(a_dispatch(call),))
    result = a_result(call, state="unknown", status="unknown", error={"code": "unknown_outcome"}, observation=None)
    await driver.append(("step", {}), results=(result,))
    assert await stores.runs.call(driver.run.id, 1) == replace(
        call,
        state="unknown",
        status="unknown",
        attempts=1,
        observation=None,
        error={"code": "unknown_outcome"},
        envelope=dict(result.envelope),
        attempt_log=list(result.attempt_log),
        chain=list(result.chain),
        started_at=result.started_at,
        duration_ms=12.5,
    )


async def test_calls_are_listed_in_step_order_and_filtered(stores: Stores) -> None:
    driver = await started(stores.runs)
    calls = [a_call(driver.run, step, iteration=1 + step // 3, tool="ab"[step % 2]) for step in range(1, 6)]
    await driver.append(calls=tuple(reversed(calls)))
    await driver.append(dispatches=(a_dispatch(calls[1]), a_dispatch(calls[2])))
    await driver.append(results=(a_result(calls[2]), a_result(calls[3], status="denied")))

    async def steps(**where: Any) -> list[int]:
        return [call.step for call in await stores.runs.calls(driver.run.id, **where)]

    assert await steps() == [1, 2, 3, 4, 5]
    assert await steps(after=2) == [3, 4, 5]
    assert await steps(after=1, limit=2) == [2, 3]
    assert await steps(status="waiting") == [1, 5]
    assert await steps(status="running") == [2]
    assert await steps(status="success") == [3]
    assert await steps(status="denied") == [4]
    assert await steps(tool="b") == [1, 3, 5]
    assert await steps(tool="b", status="success", after=3) == []
    assert [call.step for call in await stores.runs.recent_calls_of(driver.run.id, 2)] == [3, 4, 5]


async def test_calls_of_another_run_are_left_alone(stores: Stores) -> None:
    driver, other = await started(stores.runs), await started(stores.runs)
    call = a_call(other.run)
    await other.append(calls=(call,))
    await driver.append(dispatches=(a_dispatch(call),), results=(a_result(call),))
    assert await stores.runs.calls(other.run.id) == [call]
