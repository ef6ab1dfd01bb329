"""Results of calls that outlive what was told: whole long ones, and what was found out later; both go with their run."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import replace

import pytest

from app.agent.ports import WholeResult
from app.core.ids import new_id
from app.storage.open import Stores
from tests.contracts.samples import Driver, a_call, a_dispatch, a_result, started

pytestmark = pytest.mark.anyio

DATA = bytes(range(256)) * 20_000
WHOLE = WholeResult(DATA, hashlib.sha256(DATA).hexdigest(), "application/octet-stream", complete=False)
FOUND: Mapping[str, object] = {"at": 1_800_000_001_000, "status": "success", "observation": {"a": [1, None]}}


async def unknown_call(stores: Stores) -> tuple[Driver, str]:
    driver = await started(stores.runs)
    call = a_call(driver.run)
    await driver.append(calls=(call,), dispatches=(a_dispatch(call),))
    await driver.append(("step", {}), results=(a_result(call, state="unknown", status="unknown"),))
    return driver, call.id


async def test_a_whole_result_reads_back_for_its_tenant_and_goes_with_its_run(stores: Stores) -> None:
    driver = await started(stores.runs)
    call, short = a_call(driver.run), a_call(driver.run, 2)
    await driver.append(calls=(call, short))
    await driver.append(("step", {}), results=(replace(a_result(call), whole=WHOLE), a_result(short)))
    assert await stores.results.whole("acme", call.id) == WHOLE
    assert await stores.results.whole("acme", short.id) is None
    assert await stores.results.whole("other", call.id) is None
    await driver.end()
    assert await stores.runs.delete("acme", driver.run.id)
    assert await stores.results.whole("acme", call.id) is None


async def test_retention_takes_long_results_along_however_many_there_are(stores: Stores) -> None:
    driver = await started(stores.runs)
    calls = [a_call(driver.run, step) for step in range(1, 4)]
    await driver.append(calls=calls)
    await driver.append(("step", {}), results=[replace(a_result(call), whole=WHOLE) for call in calls])
    assert await stores.results.kept_bytes(driver.run.id) == 3 * len(DATA)
    assert await stores.results.kept_bytes(new_id()) == 0
    await driver.end()
    while (await stores.retention.delete_runs(1_800_000_009_001)).more:
        continue
    assert await stores.runs.get("acme", driver.run.id) is None
    assert [await stores.results.whole("acme", call.id) for call in calls] == [None, None, None]


async def test_an_unknown_call_is_reconciled_once_whoever_else_tries(stores: Stores) -> None:
    driver, call_id = await unknown_call(stores)
    tries = [{**FOUND, "observation": number} for number in range(5)]
    recorded = await asyncio.gather(*(stores.results.reconcile("acme", call_id, found) for found in tries))
    assert all(found == recorded[0] for found in recorded)
    after = await stores.runs.call(driver.run.id, 1)
    assert after is not None
    assert (after.status, after.reconciled) == ("unknown", recorded[0])


async def test_nothing_is_recorded_for_another_tenant_or_a_call_with_another_outcome(stores: Stores) -> None:
    driver, call_id = await unknown_call(stores)
    done = a_call(driver.run, 2)
    await driver.append(calls=(done,), results=(a_result(done),))
    for tenant, of in (("other", call_id), ("acme", done.id), ("acme", new_id())):
        await stores.results.reconcile(tenant, of, FOUND)
    assert [call.reconciled for call in await stores.runs.calls(driver.run.id)] == [None, None]
