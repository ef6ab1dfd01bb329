"""Acting: the tool calls of one round, in parallel, each with exactly one result."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from app.agent.deadline import Deadline, OutOfTime
from app.agent.ports import CutReason, Planner, Round, ToolRunner, Waiting
from app.agent.records import CallWaits, Record, RoundClosed, StepDone
from app.agent.settings import AgentSettings
from app.agent.state import LoopState, OpenCall


async def act(
    state: LoopState, settings: AgentSettings, tools: ToolRunner, deadline: Deadline
) -> AsyncGenerator[tuple[Record, ...]]:
    """Run the open calls of the round; yields `StepDone`s as they finish. The caller then tells the rest: `close_round`.

    At the deadline what is unfinished is stopped; what finished is kept. No task is left running, on any way out.
    """
    todo = [item for item in state.open_calls if item.outcome is None and not item.waits]
    if len(todo) == 1:
        await _run_one(todo[0], tools, deadline)
        if todo[0].waiting is not None and todo[0].waits:
            yield (CallWaits(todo[0].call, todo[0].waiting),)
    elif todo:
        async with aclosing(_run_many(todo, tools, settings.max_parallel_tools, deadline)) as batches:
            async for records in batches:
                yield records


def close_round(state: LoopState, planner: Planner, tools: ToolRunner, reason: CutReason) -> tuple[Record, ...]:
    """End the open round: results not told yet are told, calls without a result are cut for `reason`.

    Returns nothing when no round is open, so it is safe on every path out of a run.
    """
    if not state.open_calls:
        return ()
    records: list[Record] = []
    for item in state.open_calls:
        if item.outcome is None:
            item.outcome = tools.cut(item.call, "lost" if item.sent else reason)
        if not item.told:
            item.told = True
            records.append(StepDone(item.call, item.outcome))
    results = tuple((item.call, item.outcome) for item in state.open_calls if item.outcome is not None)
    messages = tuple(planner.observe(call, outcome) for call, outcome in results)
    state.messages.extend(messages)
    state.rounds.append(Round(state.open_message, results, messages))
    state.open_calls = []
    state.open_message = None
    records.append(RoundClosed(messages))
    return tuple(records)


async def _run(item: OpenCall, tools: ToolRunner) -> None:
    result = await tools.run(item.call, sent_before=item.sent, resumed=item.resumed)
    if isinstance(result, Waiting):
        item.waiting, item.resumed = result, None
        if result.reason == "deferred":
            item.sent = max(item.sent, 1)  # if it is cut now, nobody can say that it did nothing
    else:
        item.outcome = result


async def _run_one(item: OpenCall, tools: ToolRunner, deadline: Deadline) -> None:
    if deadline.never:
        await _run(item, tools)
        return
    with suppress(OutOfTime):
        async with deadline.limit():
            await _run(item, tools)


async def _run_many(
    todo: list[OpenCall], tools: ToolRunner, at_once: int, deadline: Deadline
) -> AsyncGenerator[tuple[Record, ...]]:
    """All calls as tasks behind one gate; whatever is finished at a wake-up is told together, the last ones by the caller.

    Only `Stopped` and bugs come out of a call: they end the round for all, and the caller closes it.
    """
    gate = asyncio.Semaphore(at_once)
    done: list[OpenCall] = []
    failed: list[Exception] = []
    wake = asyncio.Event()

    async def perform(item: OpenCall) -> None:
        try:
            async with gate:
                await _run(item, tools)
            done.append(item)
        except Exception as error:  # noqa: BLE001  (handed to the round below, which raises it)
            failed.append(error)
        finally:
            wake.set()

    tasks = [asyncio.create_task(perform(item)) for item in todo]
    left = len(todo)
    try:
        while left:
            try:
                async with deadline.limit():
                    await wake.wait()
            except OutOfTime:
                return
            wake.clear()
            if failed:
                raise failed[0]
            told, done[:] = tuple(done), ()
            left -= len(told)
            waits = [CallWaits(item.call, item.waiting) for item in told if item.waits and item.waiting is not None]
            steps = [StepDone(item.call, item.outcome) for item in told if item.outcome is not None]
            if left and steps:
                for item in told:
                    item.told = item.outcome is not None
                yield (*steps, *waits)
            elif waits:
                yield tuple(waits)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
