"""The executor: plan, act, observe as one async generator of records, re-enterable in the middle of a round.

It does no I/O of its own. What it yields is journaled in that order, and durable before a tool is sent anything (see
`records`), so a tool never does what was not journaled first, and a run can be taken up again from its journal at any point.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial

from app.agent.acting import act, close_round
from app.agent.deadline import Deadline, OutOfTime, within
from app.agent.ends import after_round, at_jump, final, stop
from app.agent.hearing import Hearing
from app.agent.middleware import NO_HOOKS, Hooks
from app.agent.ports import Planner, ToolRunner, Turn
from app.agent.records import Failed, Parked, Record, StepDone, StopReason
from app.agent.settings import AgentSettings
from app.agent.stages import Jump, Stage
from app.agent.state import LoopState
from app.agent.stop import limit_reached
from app.agent.taking import given, take
from app.core.errors import ModelError
from app.core.ids import IdFactory


async def execute(
    state: LoopState,
    settings: AgentSettings,
    planner: Planner,
    tools: ToolRunner,
    *,
    new_id: IdFactory,
    hooks: Hooks = NO_HOOKS,
) -> AsyncGenerator[tuple[Record, ...]]:
    """Run the loop from where `state` stands to its end, a `Finished` or `Failed` record; `state` is updated in place.

    Where only answers from outside can go on, the last record is `Parked`. `hooks`: around the model and the tools they
    are already, in `planner` and `tools`; those between are called here.

    Raises `ModelError`, `PluginFailed` (the run ends with its code), `Stopped` (another part ended it), and `CancelledError` at any
    await; `close_round` then gives every open call its one result.
    """
    deadline = _deadline(state, settings)
    jump: Jump | None = None
    reason: StopReason = "max_execution_time"
    if hooks.before_agent:
        stage = Stage("before_agent", hooks, state)
        with suppress(OutOfTime):
            async with aclosing(stage.before(deadline)) as telling:
                async for records in telling:
                    yield records
        jump = stage.jump
    while True:
        if state.open_calls:
            async with aclosing(act(state, settings, tools, deadline)) as acting:
                async for records in acting:
                    yield records
            if _is_parked(state):
                yield (*_untold(state), Parked())
                return
            if hooks.after_agent and (steps := _untold(state)):
                yield steps  # before the hooks, which may take long: what the tools did is not to be lost meanwhile
            closing = close_round(state, planner, tools, "time_limit", settings, new_id)
            end = after_round(state, settings)
            if end is None:
                yield closing
            else:
                state.untold = list(closing)
                ended = await final(state, planner, hooks, end, deadline)
                if not isinstance(ended, Jump):
                    yield (*state.take_untold(), ended)
                    return
                jump = ended
        if jump is None:
            limit = limit_reached(state, settings, out_of_time=deadline.passed)
            if limit is not None:
                reason = limit
                break
            if hooks.before_model:
                stage = Stage("before_model", hooks, state)
                try:
                    async with aclosing(stage.before(deadline)) as telling:
                        async for records in telling:
                            yield records
                except OutOfTime:
                    continue
                jump = stage.jump
        if jump is not None:
            if jump.goto == "tools":
                yield (*state.take_untold(), given(state, settings, jump, hooks, new_id))
                jump = None
                continue
            if jump.goto == "end":
                ended = await final(state, planner, hooks, at_jump(state, jump), deadline, goes_on=False)
                if not isinstance(ended, Jump):
                    yield (*state.take_untold(), ended)
                return
            if state.untold:
                yield state.take_untold()
            from_the_start = jump.stage != "before_model"
            jump = None
            if from_the_start:
                continue
        heard = Hearing(state.iteration + 1, new_id)
        turn = Turn(state.messages, state.before, state.rounds, heard.iteration, new_id)
        async with aclosing(within(planner.plan(turn), deadline)) as chunks:
            try:
                async for chunk in chunks:
                    told = heard.hear(chunk)
                    if told is not None:
                        yield (told,)
                if heard.decision is None:
                    raise ModelError("The planner ended without a decision.", code="model_empty_response")
            except OutOfTime:
                pass
        if heard.decision is None:
            break
        taken = await take(state, settings, heard.decision, heard.message_id, new_id, deadline, hooks)
        end = taken.end
        state.untold.append(taken.answered)
        if hooks.after_model and not isinstance(end, Failed):
            stage = Stage("after_model", hooks, state, partial(close_round, state, planner, tools, "cancelled"))
            try:
                await stage.after(deadline)
            except OutOfTime:
                state.untold = list(close_round(state, planner, tools, "time_limit"))
                break
            jump = stage.jump
            if jump is not None and jump.goto == "end":
                end = at_jump(state, jump)
            elif jump is not None and jump.goto == "model":
                end = None
            jump = None
        if end is None:
            yield state.take_untold()
        elif isinstance(end, Failed):
            # A failure may leave calls that will not be made: each still gets its one result.
            yield (*close_round(state, planner, tools, "cancelled"), end)
            return
        else:
            ended = await final(state, planner, hooks, end, deadline)
            if not isinstance(ended, Jump):
                yield (*state.take_untold(), ended)
                return
            jump = ended
    async with aclosing(stop(state, settings, planner, hooks, reason, new_id)) as stopping:
        async for records in stopping:
            yield records


def _deadline(state: LoopState, settings: AgentSettings) -> Deadline:
    """The loop time at which the run's active time is used up."""
    if settings.max_execution_time is None:
        return Deadline(None)
    return Deadline(asyncio.get_running_loop().time() + settings.max_execution_time - state.active_s)


def _is_parked(state: LoopState) -> bool:
    """Every call of the round has its result or waits for an answer. One with neither was stopped by the time limit."""
    waiting = [item for item in state.open_calls if item.outcome is None]
    return bool(waiting) and all(item.waits for item in waiting)


def _untold(state: LoopState) -> tuple[StepDone, ...]:
    told: list[StepDone] = []
    for item in state.open_calls:
        if item.outcome is not None and not item.told:
            item.told = True
            told.append(StepDone(item.call, item.outcome))
    return tuple(told)


__all__ = ["close_round", "execute"]
