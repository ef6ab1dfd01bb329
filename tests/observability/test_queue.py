"""The queue as metrics see it: age by a clock of ours, refusals by their code."""

from pathlib import Path

import pytest

from app.core.errors import TooManyRuns, Unavailable
from app.core.ids import new_id
from app.dispatch.local import LocalDispatcher
from app.runs.hub import Hub
from app.runs.loop_parts import LoopAssembler
from app.storage.open import build_stores
from app.storage.sqlite import SqliteDatabase

pytestmark = pytest.mark.anyio


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class NoParts:
    """Neither models nor tools: nothing of what is queued here is ever driven."""

    async def build(self, *_: object) -> object:
        raise AssertionError("nothing may be driven")

    bind = build


def full(tmp_path: Path, clock: Clock, *, queued: int) -> LocalDispatcher:
    """An engine without room to drive anything."""
    stores = build_stores(SqliteDatabase(tmp_path / "never-opened.db"), None)
    nothing = NoParts()
    assembler = LoopAssembler(nothing, nothing, new_id)  # pyright: ignore[reportArgumentType]
    return LocalDispatcher(
        store=stores.runs,
        waits=stores.waits,
        hub=Hub(),
        assembler=assembler,
        new_id=new_id,
        max_running=0,
        max_queued=queued,
        clock=clock,
    )


async def test_the_queue_is_as_old_as_its_first_run(tmp_path: Path) -> None:
    clock = Clock()
    engine = full(tmp_path, clock, queued=10)
    assert engine.oldest_queued_s == 0
    engine.submit("a")
    clock.now = 105
    engine.submit("b")
    clock.now = 112.5
    assert (engine.queued, engine.oldest_queued_s) == (2, 12.5)
    engine.submit("a")  # again: it keeps its place, and is driven once
    assert (engine.queued, engine.oldest_queued_s) == (2, 12.5)


async def test_a_refusal_counts_under_its_code(tmp_path: Path) -> None:
    engine = full(tmp_path, Clock(), queued=0)
    for _ in range(2):
        with pytest.raises(TooManyRuns), engine.admit():
            raise AssertionError("admitted")
    await engine.stop(0)
    with pytest.raises(Unavailable), engine.admit():
        raise AssertionError("admitted")
    assert dict(engine.rejections) == {"too_many_runs": 2, "shutting_down": 1}
