"""What a run keeps of long results: up to a limit, also across a restart, and its model is told."""

import pytest

from app.agent.acting import close_round
from app.agent.ports import Round, ToolOutcome, WholeResult
from app.agent.records import StepDone
from app.agent.state import LoopState, OpenCall
from app.core.errors import Unavailable
from app.runs.lost_parts import LOST_PLANNER, LOST_TOOLS
from app.tools.keeping import KEPT_OF_A_RUN, Keeping
from app.tools.plugin_api import tool
from app.tools.plugins import PluginSet
from app.tools.service import ToolService
from tests.tools.support import Bench, call, ran

pytestmark = pytest.mark.anyio

LONG = 2 * 1024 * 1024


@tool(effect="pure")
async def long_text() -> str:
    """More than is shown."""
    return "x" * LONG


def bench(stored: int) -> Bench:
    async def kept_bytes(run_id: str) -> int:
        assert run_id == "run-1"
        return stored

    made = Bench.make()
    made.service = ToolService(
        made.registry, made.secrets, PluginSet([long_text]), made.service._egress, made.http, kept_bytes=kept_bytes
    )
    return made


async def test_the_result_that_reaches_the_limit_is_kept_and_none_after_it() -> None:
    bound = await bench(KEPT_OF_A_RUN - LONG - 1).bound("long_text")
    outcomes = [await ran(bound.run(call("long_text", {}))) for _ in range(4)]
    assert [outcome.whole is not None for outcome in outcomes] == [True, True, False, False]
    assert [outcome.status for outcome in outcomes] == ["success"] * 4
    assert "GET /runs/run-1/steps/1/result]" in str(outcomes[1].observation)
    for outcome in outcomes[2:]:
        assert "no more of it is kept" in str(outcome.observation)
        assert "GET /runs" not in str(outcome.observation)


async def test_a_database_that_is_away_counts_as_nothing_for_now() -> None:
    answers: list[int | Unavailable] = [Unavailable("away"), KEPT_OF_A_RUN]

    async def kept_bytes(_: str) -> int:
        answer = answers.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    keeping = Keeping("run-1", kept_bytes)
    await keeping.load()
    assert not keeping.full
    await keeping.load()
    await keeping.load()
    assert keeping.full


def test_a_run_does_not_hold_what_was_recorded() -> None:
    whole = WholeResult(b"x" * LONG, "0" * 64, "text/plain", complete=True)
    made = OpenCall(call("long_text", {}), outcome=ToolOutcome("success", "x…", whole=whole))
    state = LoopState([], 0, open_calls=[made])
    records = close_round(state, LOST_PLANNER, LOST_TOOLS, "cancelled")
    assert [record.outcome.whole for record in records if isinstance(record, StepDone)] == [whole]
    (closed,) = state.rounds
    assert isinstance(closed, Round)
    assert [outcome.whole for _, outcome in closed.results] == [None]
