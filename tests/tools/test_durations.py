"""How long a call took: from its first dispatch on, whichever process made that."""

import pytest

from app.agent.ports import CutReason, PlannedCall, Resumed, Waiting
from app.core.actions import AgentAction
from app.core.clock import now_ms
from app.core.ids import new_id
from app.runs.lost_parts import LOST_TOOLS
from tests.tools.support import Bench, ran, spec

pytestmark = pytest.mark.anyio

AGO_MS = 8000


def sent_before(at: int) -> PlannedCall:
    """A call that a process which is gone sent at that time, and again a second later."""
    log = tuple(
        {
            "attempt": number,
            "at": at + 1000 * (number - 1),
            "duration_ms": None,
            "http_status": None,
            "outcome": "running",
        }
        for number in (1, 2)
    )
    return PlannedCall(1, 1, new_id(), AgentAction("lookup", {}), dispatched=log)


async def test_a_call_that_was_lost_took_all_the_time_since_it_was_first_sent() -> None:
    tools = await Bench.make().bound(spec())
    at = now_ms() - AGO_MS
    call = sent_before(at)
    lost = await ran(tools.run(call, sent_before=2))
    assert (lost.status, lost.started_at) == ("unknown", at)
    assert lost.duration_ms >= AGO_MS
    meta = lost.envelope["meta"]
    assert isinstance(meta, dict)
    assert meta["duration_ms"] == lost.duration_ms


@pytest.mark.parametrize("reason", ["lost", "cancelled", "time_limit"])
async def test_so_did_one_that_is_cut(reason: CutReason) -> None:
    tools = await Bench.make().bound(spec())
    at = now_ms() - AGO_MS
    for cut in (tools.cut(sent_before(at), reason), LOST_TOOLS.cut(sent_before(at), "lost")):
        assert cut.started_at == at
        assert cut.duration_ms >= AGO_MS
        assert len(cut.attempts) == 2
    never = tools.cut(PlannedCall(1, 1, new_id(), AgentAction("lookup", {})), "cancelled")
    assert (never.started_at, never.duration_ms < AGO_MS) == (None, True)


async def test_so_did_one_that_is_sent_again_and_one_that_answered_late() -> None:
    tools = await Bench.make().bound(spec(url="http://127.0.0.1:9/", effect="read", retry={"max_attempts": 1}))
    at = now_ms() - AGO_MS
    again = await ran(tools.run(sent_before(at), sent_before=2))
    assert (again.status, again.started_at, again.duration_ms >= AGO_MS) == ("error", at, True)
    attempt = {"attempt": 1, "at": at, "duration_ms": 5.0, "http_status": 202, "outcome": "deferred"}
    waiting = Waiting("deferred", 2**52, {"started_at": at - 1000, "attempts": [attempt], "chain": []})
    plain = PlannedCall(1, 1, new_id(), AgentAction("lookup", {}))
    late = await ran(tools.run(plain, resumed=Resumed(waiting, {"body": {"output": 1}})))
    assert (late.status, late.started_at, late.duration_ms >= AGO_MS) == ("success", at, True)


async def test_the_time_that_a_person_took_is_not_the_calls() -> None:
    tools = await Bench.make().bound(spec(url="http://127.0.0.1:9/", retry={"max_attempts": 1}, requires_approval=True))
    call = PlannedCall(1, 1, new_id(), AgentAction("lookup", {}))
    asked = await tools.run(call)
    assert isinstance(asked, Waiting)
    long_ago = Waiting(asked.reason, asked.until_ms, {**asked.facts, "started_at": now_ms() - AGO_MS}, asked.shown)
    before = now_ms()
    ended = await ran(tools.run(call, resumed=Resumed(long_ago, {"decision": "approve", "by": "me"})))
    assert ended.started_at is not None
    assert (ended.started_at >= before, ended.duration_ms < AGO_MS) == (True, True)
