"""Switches and rotated secrets in storage: in force at once, kept, and gone when their time is over."""

import asyncio

import pytest

from app.core.errors import InvalidRequest
from app.core.idempotency import IdempotencyKey
from app.runs.records import Dispatch, DispatchVerdict
from app.storage.open import Stores
from app.storage.tool_signing import OLD_SIGNS_MS
from app.tools.port import ALL_TOOLS, Rotation, Switch
from tests.contracts.samples import Clock, Driver, a_call, a_dispatch, started

pytestmark = pytest.mark.anyio


async def dispatched(driver: Driver, step: int, tool: str) -> DispatchVerdict:
    call = a_call(driver.run, step, tool=tool)
    result = await driver.append(calls=(call,), dispatches=(a_dispatch(call, registered=False),))
    return result.dispatches[0]


async def test_a_dispatch_is_stopped_by_a_switch_of_its_tool_or_of_all_and_of_no_other(stores: Stores) -> None:
    driver, other = await started(stores.runs), await started(stores.runs, "other")
    tool = a_call(driver.run).tool
    assert await dispatched(driver, 1, tool) == "sent"
    switch = await stores.switches.disable("acme", tool, "why", "me")
    assert await dispatched(driver, 2, tool) == switch
    assert await dispatched(driver, 3, f"{tool}_2") == "sent"
    assert await dispatched(other, 1, tool) == "sent"
    everything = await stores.switches.disable("acme", ALL_TOOLS, "", "me")
    assert await dispatched(driver, 4, f"{tool}_2") == everything
    assert await stores.switches.lift("acme", ALL_TOOLS, "you")
    assert await dispatched(driver, 5, f"{tool}_2") == "sent"
    assert not await stores.switches.lift("acme", ALL_TOOLS, "you")
    stopped = await stores.runs.call(driver.run.id, 2)
    assert stopped is not None
    assert (stopped.state, stopped.attempts) == ("proposed", 0)


async def test_what_stops_a_dispatch_stops_a_call_that_goes_to_the_caller_and_nothing_of_it_is_recorded(
    stores: Stores,
) -> None:
    driver = await started(stores.runs)

    async def leaves(step: int, tool: str, *, registered: bool = True) -> DispatchVerdict:
        call = a_call(driver.run, step, tool=tool, tool_version=1)
        result = await driver.append(calls=(call,), dispatches=(Dispatch(call.id, (), tool, registered),))
        kept = await stores.runs.call(driver.run.id, step)
        assert kept is not None
        assert (kept.state, kept.attempts, kept.started_at, kept.attempt_log) == ("proposed", 0, None, [])
        return result.dispatches[0]

    assert await leaves(1, "inline", registered=False) == "sent"
    assert await leaves(2, "local") == "withdrawn"
    await stores.tools.put("acme", "local", {})
    assert await leaves(3, "local") == "sent"
    switch = await stores.switches.disable("acme", "local", "why", "me")
    assert await leaves(4, "local") == switch
    await stores.switches.lift("acme", "local", "me")
    everything = await stores.switches.disable("acme", ALL_TOOLS, "", "me")
    assert await leaves(5, "local") == everything
    await stores.switches.lift("acme", ALL_TOOLS, "me")
    await stores.tools.delete("acme", "local")
    assert await leaves(6, "local") == "withdrawn"
    await stores.runs.request_cancel("acme", driver.run.id)
    assert await leaves(7, "inline", registered=False) == "cancelled"


async def test_a_switch_and_a_dispatch_at_once_are_in_one_order(stores: Stores) -> None:
    for number in range(10):
        driver = await started(stores.runs)
        name = f"tool_{number}"
        verdict, switch = await asyncio.gather(
            dispatched(driver, 1, name), stores.switches.disable("acme", name, "", "me")
        )
        assert verdict in ("sent", switch)
        assert await dispatched(driver, 2, name) == switch


async def test_switches_are_kept_with_who_set_and_lifted_them(stores: Stores, clock: Clock) -> None:
    first = await stores.switches.disable("acme", "t", "one", "me")
    assert await stores.switches.disable("acme", "t", "one", "you") == first
    second = await stores.switches.disable("acme", "t", "two", "you")
    assert await stores.switches.in_force("acme") == [second]
    assert await stores.switches.stopping("acme", "t") == second
    assert await stores.switches.stopping("other", "t") is None
    await stores.switches.lift("acme", "t", "she")
    newest, oldest = await stores.switches.history("acme", "t", limit=10)
    assert isinstance(newest, Switch)
    assert (newest.reason, newest.disabled_by, newest.lifted_by) == ("two", "you", "she")
    assert (oldest.reason, oldest.disabled_by, oldest.lifted_by) == ("one", "me", "you")


async def test_the_newest_two_secrets_sign_and_the_old_one_is_deleted_when_its_time_is_over(
    stores: Stores, clock: Clock
) -> None:
    put = stores.secrets.put
    refs = [await put("acme", f"secret {number}") for number in range(3)]
    assert await stores.signing.secrets_of("acme", refs[0]) == []
    made, _ = await stores.signing.rotate("acme", refs[0], refs[1], None)
    assert [item.ref for item in await stores.signing.secrets_of("acme", refs[0])] == [refs[1], refs[0]]
    assert await stores.signing.secrets_of("other", refs[0]) == []
    clock.now += 1000
    again, _ = await stores.signing.rotate("acme", refs[0], refs[2], None)
    assert again.old_expires_at > made.old_expires_at
    assert [item.ref for item in await stores.signing.secrets_of("acme", refs[0])] == [refs[2], refs[1]]
    assert [await stores.secrets.get("acme", ref) for ref in refs] == [None, "secret 1", "secret 2"]
    clock.now += OLD_SIGNS_MS
    assert [item.ref for item in await stores.signing.secrets_of("acme", refs[0])] == [refs[2]]
    await stores.retention.delete_secrets(clock.now + 1)
    assert [await stores.secrets.get("acme", ref) for ref in refs] == [None, None, "secret 2"]
    await stores.signing.forget("acme", refs[0])
    assert await stores.secrets.get("acme", refs[2]) is None


async def test_a_key_rotates_once(stores: Stores) -> None:
    refs = [await stores.secrets.put("acme", f"secret {number}") for number in range(4)]
    key = IdempotencyKey.of("acme", "POST /tools/t/rotate-secret", "k", b"")
    made = await stores.signing.rotate("acme", refs[0], refs[1], key)
    assert await stores.signing.rotate("acme", refs[0], refs[2], key) == (made[0], True)
    with pytest.raises(InvalidRequest):
        await stores.signing.rotate("acme", refs[0], refs[2], IdempotencyKey.of(key.tenant, key.route, key.key, b"{}"))
    for ref in refs[2:]:
        await stores.signing.rotate("acme", refs[0], ref, None)
        stale, replayed = await stores.signing.rotate("acme", refs[0], refs[1], key)
        assert (stale, replayed) == (Rotation(None, made[0].old_expires_at), True)
