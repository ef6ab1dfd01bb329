"""A value that the journal cannot take ends its run; it neither hangs nor is tried for ever."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.auth.keys import ANONYMOUS
from app.core.errors import Unavailable
from app.runs.records import Append, AppendResult
from app.settings import load
from app.storage.runs import SqlRunStore
from app.wiring import Parts, build
from tests.support.bodies import run_body, says, scripted

pytestmark = pytest.mark.anyio


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    built = build(load({}, database_url=f"sqlite:///{tmp_path}/runwire.db", secret_key=SecretStr("k" * 16)))
    await built.start()
    try:
        yield built
    finally:
        await built.stop(0)


async def test_an_append_that_cannot_be_made_ends_the_run_with_an_error(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SqlRunStore.append

    async def append(self: SqlRunStore, append: Append) -> AppendResult:
        if append.epoch == 1:
            raise TypeError("Integer exceeds 64-bit range")
        return await real(self, append)

    monkeypatch.setattr(SqlRunStore, "append", append)
    runs = parts.services.runs
    async with asyncio.timeout(10):
        accepted = await runs.create(ANONYMOUS, run_body(scripted(says("hi"))), None)
        done = await runs.wait(ANONYMOUS, accepted.run.id, None)
    assert (done.status, done.attempt) == ("error", 2)
    assert done.error is not None
    assert done.error["code"] == "internal_error"


async def test_a_run_that_waits_for_the_storage_is_cancelled_at_once(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SqlRunStore.append
    failing = asyncio.Event()

    async def append(self: SqlRunStore, append: Append) -> AppendResult:
        if append.transition is not None and append.transition.status != "cancelled":
            failing.set()
            raise Unavailable("The database cannot take the request now; try again.", code="storage_unavailable")
        return await real(self, append)

    monkeypatch.setattr(SqlRunStore, "append", append)
    monkeypatch.setattr("app.dispatch.local.FIRST_RETRY_S", 3600.0)
    monkeypatch.setattr("app.dispatch.local.LAST_RETRY_S", 3600.0)
    runs = parts.services.runs
    async with asyncio.timeout(10):
        accepted = await runs.create(ANONYMOUS, run_body(scripted(says("hi"))), None)
        await failing.wait()
        await until_it_pauses(parts, accepted.run.id)
        await runs.cancel(ANONYMOUS, accepted.run.id)
        done = await until_terminal(parts, accepted.run.id)
    assert done == "cancelled"


async def until_terminal(parts: Parts, run_id: str) -> str:
    while True:
        run = await parts.services.runs.get(ANONYMOUS, run_id)
        if run.finished_at is not None:
            return run.status
        await asyncio.sleep(0.01)


async def until_it_pauses(parts: Parts, run_id: str) -> None:
    while True:
        if run_id in parts.dispatcher._pauses:
            return
        await asyncio.sleep(0)
