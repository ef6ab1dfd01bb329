"""Ends: what makes a run's end, and what the hooks after the agent make of it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace

from app.agent.deadline import Deadline, OutOfTime, until
from app.agent.hearing import Hearing
from app.agent.middleware import Hooks
from app.agent.ports import Decision, Planner, Turn
from app.agent.records import Failed, Finished, Record, RoundClosed, StopReason
from app.agent.settings import AgentSettings
from app.agent.stages import Jump, Stage
from app.agent.state import LoopState
from app.agent.stop import concludes, stopped
from app.agent.taking import answered
from app.core.actions import AgentFinish, observation_text
from app.core.errors import ModelError
from app.core.ids import IdFactory

CONCLUDE_S = 60.0
"""Longest wait for the one last answer of a stopped run: as much as between two chunks of any model."""


def after_round(state: LoopState, settings: AgentSettings) -> Finished | Failed | None:
    """What a closed round ends: a fatal tool error, the structured answer, a tool's jump, `return_direct` of its only step (as AgentExecutor)."""
    results = state.rounds[-1].results
    for _, outcome in results:
        if outcome.fatal is not None:
            return Failed("tool_error", outcome.fatal)
    answered = None if settings.answer is None else settings.answer.ended(results)
    if answered is not None:
        return Finished(answered, "finish")
    jump = next((outcome for _, outcome in results if outcome.goto == "end"), None)
    if jump is not None:
        return Finished(AgentFinish({"output": jump.observation}), "finish")
    if len(results) == 1 and results[0][1].return_direct and results[0][1].goto is None:
        return Finished(AgentFinish({"output": results[0][1].observation}), "return_direct")
    return None


async def final(
    state: LoopState,
    planner: Planner,
    hooks: Hooks,
    end: Finished | Failed,
    deadline: Deadline,
    *,
    goes_on: bool = True,
) -> Finished | Failed | Jump:
    """The end as the hooks after the agent leave it, or where they jump to. What they change is untold.

    An end by a limit stands, and so does one without a model call before it (`goes_on` false): jumps could go on for ever. Hooks that are late have said nothing of the answer, so it does not stand either.
    """
    if isinstance(end, Failed) or not hooks.after_agent:
        return end
    if end.message is not None:
        state.untold.append(RoundClosed((end.message,)))
        end = replace(end, message=None)
    stage = Stage("after_agent", hooks, state)
    late = Deadline(asyncio.get_running_loop().time() + CONCLUDE_S)
    try:
        await stage.after(late if deadline.passed else deadline)
    except OutOfTime:
        end = stopped("max_execution_time", multi_action=planner.multi_action)
        if end.message is not None:
            state.messages.append(end.message)
        return end
    jump = stage.jump
    if jump is None or (jump.goto != "end" and not (goes_on and end.stop_reason in ("finish", "return_direct"))):
        return end
    if jump.goto != "end":
        return jump
    return end if jump.output is None else Finished(AgentFinish({"output": jump.output}), end.stop_reason)


def at_jump(state: LoopState, jump: Jump) -> Finished:
    """The end that a hook makes: its output, or what the assistant said last in this run."""
    if jump.output is not None:
        return Finished(AgentFinish({"output": jump.output}), "finish")
    said = (item.content for item in reversed(state.messages[state.before :]) if item.role == "assistant")
    return Finished(AgentFinish({"output": observation_text(next(said, None) or "")}), "finish")


async def stop(
    state: LoopState, settings: AgentSettings, planner: Planner, hooks: Hooks, reason: StopReason, new_id: IdFactory
) -> AsyncGenerator[tuple[Record, ...]]:
    """The end that a limit makes: a fixed text, or one last answer of the model.

    The last answer counts as a model call, not as an iteration. Where the model fails or takes too long, or its answer is
    not what it must be, the fixed text stands: the work that was done is not lost for it. Hooks that look at the end may
    change it; they cannot have the run go on.
    """
    over = Deadline(asyncio.get_running_loop().time())
    finished: Finished | None = None
    if concludes(settings, reason):
        heard = Hearing(state.iteration + 1, new_id)
        turn = Turn(state.messages, state.before, state.rounds, heard.iteration, new_id)
        deadline = Deadline(asyncio.get_running_loop().time() + CONCLUDE_S)
        async with aclosing(until(planner.conclude(turn), deadline)) as chunks:
            try:
                async for chunk in chunks:
                    told = heard.hear(chunk)
                    if told is not None:
                        yield (told,)
            except (OutOfTime, ModelError):
                pass
        if heard.decision is not None:
            finished = await _concluded(state, settings, hooks, heard.decision, heard.message_id, reason, deadline)
    if finished is None:
        finished = stopped(reason, multi_action=planner.multi_action)
        if finished.message is not None:
            state.messages.append(finished.message)
    ended = await final(state, planner, hooks, finished, over)
    assert not isinstance(ended, Jump)  # of an end by a limit there is none
    yield (*state.take_untold(), ended)


async def _concluded(
    state: LoopState,
    settings: AgentSettings,
    hooks: Hooks,
    decision: Decision,
    message_id: str,
    reason: StopReason,
    deadline: Deadline,
) -> Finished | None:
    """The end that a last answer makes; `None` where it is not what it must be. Its record is untold."""
    iteration = state.iteration + 1
    if not isinstance(decision.outcome, AgentFinish):
        if settings.answer is not None:
            state.usage.add_model_call(decision.tokens)
            state.untold.append(answered(iteration, message_id, replace(decision, message=None)))
        return None
    state.usage.add_model_call(decision.tokens)
    hooks.count(state.usage)
    if decision.message is not None:
        state.messages.append(decision.message)
    state.untold.append(answered(iteration, message_id, decision))
    stage = Stage("after_model", hooks, state)
    with suppress(OutOfTime):
        await stage.after(deadline)
        if stage.jump is not None and stage.jump.goto == "end":
            return replace(at_jump(state, stage.jump), stop_reason=reason)
        return Finished(decision.outcome, reason)
    return None
