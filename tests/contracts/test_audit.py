"""The audit: found by each filter, newest first, and by an index however many calls there are."""

from collections.abc import Sequence

import pytest

from app.core.ids import new_id
from app.runs.audit import AuditedCall, AuditFilter
from app.storage.audit import page_query
from app.storage.database import Database, Tx
from app.storage.open import Stores
from app.storage.statement import Params, Statement
from tests.contracts.samples import Driver, a_call, a_result, started

pytestmark = pytest.mark.anyio

MANY = AuditFilter()


def id_at(ms: int, number: int) -> str:
    digits = f"{ms:012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-{number:012x}"


async def with_calls(stores: Stores, times: Sequence[int], tenant: str = "acme") -> tuple[Driver, list[str]]:
    """A run with a call at each time; every third ends `unknown`, every second is of the tool `even`."""
    driver = await started(stores.runs, tenant)
    ids: list[str] = []
    for number, at in enumerate(times):
        tool = "even" if number % 2 == 0 else "odd"
        call = a_call(driver.run, number + 1, id=id_at(at, number), created_at=at, tool=tool)
        status = "unknown" if number % 3 == 0 else "success"
        await driver.append(calls=(call,))
        await driver.append(results=(a_result(call, status=status),))
        ids.append(call.id)
    return driver, ids


def ids_of(found: Sequence[AuditedCall]) -> list[str]:
    return [item.call.id for item in found]


async def test_calls_of_all_runs_are_listed_newest_first_page_by_page(stores: Stores) -> None:
    _, first = await with_calls(stores, [1000, 3000, 5000])
    _, second = await with_calls(stores, [2000, 4000])
    await with_calls(stores, [6000], "other")
    expected = [first[2], second[1], first[1], second[0], first[0]]
    found = await stores.audit.page("acme", MANY, after=None, limit=3)
    assert ids_of(found) == expected[:3]
    assert ids_of(await stores.audit.page("acme", MANY, after=found[-1].call.id, limit=3)) == expected[3:]
    assert await stores.audit.page("nobody", MANY, after=None, limit=3) == []


async def test_the_calls_of_one_run_are_paged_too(stores: Stores) -> None:
    driver, ids = await with_calls(stores, [1000, 2000, 3000])
    where = AuditFilter(run_id=driver.run.id)
    newest = await stores.audit.page("acme", where, after=None, limit=1)
    rest = await stores.audit.page("acme", where, after=newest[0].call.id, limit=5)
    assert ids_of([*newest, *rest]) == [ids[2], ids[1], ids[0]]


async def test_each_filter_finds_its_own_and_all_must_hold(stores: Stores) -> None:
    driver, ids = await with_calls(stores, [1000, 2000, 3000, 4000])
    _, others = await with_calls(stores, [2500])
    run = driver.run

    async def found(where: AuditFilter) -> set[str]:
        return set(ids_of(await stores.audit.page("acme", where, after=None, limit=100)))

    assert await found(AuditFilter(tool="odd")) == {ids[1], ids[3]}
    assert await found(AuditFilter(outcome="unknown")) == {ids[0], ids[3], others[0]}
    assert await found(AuditFilter(outcome="success")) == {ids[1], ids[2]}
    assert await found(AuditFilter(run_id=run.id)) == set(ids)
    assert await found(AuditFilter(thread_id=run.thread_id)) == set(ids)
    assert await found(AuditFilter(from_ms=2000, to_ms=3000)) == {ids[1], others[0]}
    assert await found(AuditFilter(from_ms=2001)) == {ids[2], ids[3], others[0]}
    assert await found(AuditFilter(tool="odd", outcome="unknown", run_id=run.id, from_ms=1, to_ms=9000)) == {ids[3]}
    assert await found(AuditFilter(tool="none")) == set()


async def test_one_call_is_found_with_its_runs_caller_by_its_tenant_only(stores: Stores) -> None:
    driver, ids = await with_calls(stores, [1000])
    found = await stores.audit.get("acme", ids[0])
    assert found is not None
    assert (found.call, found.subject, found.agent) == (
        await stores.runs.call(driver.run.id, 1), driver.run.subject, driver.run.agent,
    )  # fmt: skip
    assert await stores.audit.get("other", ids[0]) is None
    assert await stores.audit.get("acme", new_id()) is None


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (AuditFilter(), "ix_tool_calls_tenant"),
        (AuditFilter(tool="odd"), "ix_tool_calls_tool"),
        (AuditFilter(outcome="unknown"), "ix_tool_calls_unsuccessful"),
        (AuditFilter(thread_id="t"), "ix_tool_calls_thread"),
        (AuditFilter(run_id="r"), "ix_tool_calls_step"),
        (AuditFilter(from_ms=10_000_000, to_ms=20_000_000), "ix_tool_calls_tenant"),
    ],
)
async def test_a_page_is_read_from_an_index(stores: Stores, database: Database, where: AuditFilter, index: str) -> None:
    statement, values = page_query("acme", where, after=id_at(15_000_000, 0), limit=21)
    plan = await explained(database, statement, values)
    if database.dialect == "sqlite":
        assert index in plan
        assert "SCAN tool_calls" not in plan
        assert "TEMP B-TREE" not in plan
    else:  # with no rows any index serves it; that there is one is what can be seen
        assert "Seq Scan on tool_calls" not in plan


class _Said(Statement):
    """A statement of the test's own, in the database's words."""

    __slots__ = ("_sql", "_values")

    def __init__(self, sql: str, values: Params, *, write: bool = False) -> None:
        self._sql, self._values, self.write = sql, values, write

    def on(self, dialect: object) -> tuple[str, Params]:
        return self._sql, self._values


async def explained(database: Database, statement: Statement, values: Params) -> str:
    sql, constants = statement.on(database.dialect)
    if database.dialect == "sqlite":
        rows = await database.read(lambda tx: tx.all(_Said(f"EXPLAIN QUERY PLAN {sql}", constants), values))
        return "\n".join(str(row[3]) for row in rows)

    def plan(tx: Tx) -> list[str]:
        tx.run(_Said("SET LOCAL enable_seqscan = off", {}, write=True), {})
        return [str(row[0]) for row in tx.all(_Said(f"EXPLAIN {sql}", constants, write=True), values)]

    return "\n".join(await database.write(plan))
