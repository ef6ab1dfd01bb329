"""Acting: the tool calls of one round, in parallel, each with exactly one result."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace

from app.agent.changes import checked, close
from app.agent.deadline import Deadline, OutOfTime
from app.agent.ports import CutReason, Planner, Round, ToolOutcome, ToolRunner, Waiting
from app.agent.records import CallWaits, Record, RoundClosed, StateChanged, StepDone
from app.agent.settings import AgentSettings
from app.agent.state import LoopState, OpenCall
from app.core.ids import IdFactory, new_id

DEFAULTS = AgentSettings()


async def act(
    state: LoopState, settings: AgentSettings, tools: ToolRunner, deadline: Deadline
) -> AsyncGenerator[tuple[Record, ...]]:
    """Run the open calls of the round; yields `StepDone`s as they finish. The caller then tells the rest: `close_round`.

    At the deadline what is unfinished is stopped; what finished is kept. No task is left running, on any way out.
    """
    todo = [item for item in state.open_calls if item.outcome is None and not item.waits]
    if len(todo) == 1:
        await _run_one(todo[0], state, settings, tools, deadline)
        if todo[0].waiting is not None and todo[0].waits:
            yield (CallWaits(todo[0].call, todo[0].waiting),)
    elif todo:
        async with aclosing(_run_many(todo, state, settings, tools, deadline)) as batches:
            async for records in batches:
                yield records


def close_round(
    state: LoopState,
    planner: Planner,
    tools: ToolRunner,
    reason: CutReason,
    settings: AgentSettings = DEFAULTS,
    new_id: IdFactory = new_id,
) -> tuple[Record, ...]:
    """End the open round: results not told yet are told, calls without a result are cut for `reason`.

    What the tools write to the state is applied, in call order. What hooks held back comes first. Returns nothing else
    when no round is open, so it is safe on every path out of a run.
    """
    held = state.take_untold() if state.untold else ()
    if not state.open_calls:
        return held
    for item in state.open_calls:
        if item.outcome is None:
            item.outcome = tools.cut(item.call, "lost" if item.sent else reason)
    results = [(item.call, item.outcome) for item in state.open_calls if item.outcome is not None]
    changes: list[StateChanged] = []
    if any(outcome.update is not None for _, outcome in results):
        results, changes = close(state, settings, results, new_id)
    records: list[Record] = []
    for item, (call, outcome) in zip(state.open_calls, results, strict=True):
        if not item.told:
            item.told = True
            records.append(StepDone(call, outcome))
    messages = tuple(planner.observe(call, outcome) for call, outcome in results)
    state.messages.extend(messages)
    results = [(call, _without_whole(outcome)) for call, outcome in results]
    state.rounds.append(Round(state.open_message, tuple(results), messages))
    state.open_calls = []
    state.open_message = None
    for change in changes:
        state.messages.extend(change.messages)
    return (*held, *records, RoundClosed(messages), *changes)


def _without_whole(outcome: ToolOutcome) -> ToolOutcome:
    """A result as the run goes on with it: what is kept beside it is the record's, and not held for as long as the run is."""
    return outcome if outcome.whole is None else replace(outcome, whole=None)


async def _run(item: OpenCall, state: LoopState, settings: AgentSettings, tools: ToolRunner) -> None:
    result = await tools.run(item.call, sent_before=item.sent, resumed=item.resumed)
    if isinstance(result, Waiting):
        item.waiting, item.resumed = result, None
        if result.reason == "deferred":
            item.sent = max(item.sent, 1)  # if it is cut now, nobody can say that it did nothing
        elif result.reason == "input":
            item.sent = 0  # it stopped at a question: what was sent of it is known
    else:
        item.outcome = result if result.update is None else checked(result, item.call, state, settings, new_id)


async def _run_one(
    item: OpenCall, state: LoopState, settings: AgentSettings, tools: ToolRunner, deadline: Deadline
) -> None:
    if deadline.never:
        await _run(item, state, settings, tools)
        return
    with suppress(OutOfTime):
        async with deadline.limit():
            await _run(item, state, settings, tools)


async def _run_many(
    todo: list[OpenCall], state: LoopState, settings: AgentSettings, tools: ToolRunner, deadline: Deadline
) -> AsyncGenerator[tuple[Record, ...]]:
    """All calls as tasks behind one gate; whatever is finished at a wake-up is told together, the last ones by the caller.

    Only `Stopped` and bugs come out of a call: they end the round for all, and the caller closes it.
    """
    gate = asyncio.Semaphore(settings.max_parallel_tools)
    done: list[OpenCall] = []
    failed: list[Exception] = []
    wake = asyncio.Event()

    async def perform(item: OpenCall) -> None:
        try:
            async with gate:
                await _run(item, state, settings, tools)
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
                    item.outcome = item.outcome and _without_whole(item.outcome)
                yield (*steps, *waits)
            elif waits:
                yield tuple(waits)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
