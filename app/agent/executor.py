"""The executor: plan, act, observe as one async generator of records, re-enterable in the middle of a round.

It does no I/O of its own. What it yields is journaled in that order, and durable before a tool is sent anything (see
`records`), so a tool never does what was not journaled first, and a run can be taken up again from its journal at any point.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from app.agent.acting import act, close_round
from app.agent.deadline import Deadline, OutOfTime
from app.agent.parse_policy import INCOMPLETE, Handled, Unhandled, handle
from app.agent.ports import Decision, Delta, ParseError, PlannedCall, Planner, ProposedAction, ToolRunner, Turn
from app.agent.records import Answered, Failed, Finished, Output, Parked, Record, StepDone, StopReason
from app.agent.settings import AgentSettings, Limits
from app.agent.state import LoopState, OpenCall
from app.agent.stop import concludes, is_repeat, limit_reached, stopped
from app.core.actions import AgentAction, AgentActionMessageLog, AgentFinish
from app.core.errors import ModelError
from app.core.ids import IdFactory
from app.core.messages import Message
from app.core.values import immutable

CONCLUDE_S = 60.0
"""Longest wait for the one last answer of a stopped run: as much as between two chunks of any model."""

EXCEPTION_TOOL = "_Exception"
"""The tool name of a step that stands for an answer which could not be read (AgentExecutor's ExceptionTool)."""


async def execute(
    state: LoopState, settings: AgentSettings, planner: Planner, tools: ToolRunner, *, new_id: IdFactory
) -> AsyncGenerator[tuple[Record, ...]]:
    """Run the loop from where `state` stands to its end, a `Finished` or `Failed` record; `state` is updated in place.

    Where only answers from outside can go on, the last record is `Parked`.

    Raises `ModelError` (the run ends with its code), `Stopped` (another part ended it), and `CancelledError` at any
    await; `close_round` then gives every open call its one result.
    """
    deadline = _deadline(state, settings)
    while True:
        if state.open_calls:
            async with aclosing(act(state, settings, tools, deadline)) as acting:
                async for records in acting:
                    yield records
            if _is_parked(state):
                yield (*_untold(state), Parked())
                return
            closing = close_round(state, planner, tools, "time_limit", settings, new_id)
            end = _after_round(state, settings)
            yield (*closing, end) if end is not None else closing
            if end is not None:
                return
        reason = limit_reached(state, settings, out_of_time=deadline.passed)
        if reason is not None:
            async with aclosing(_stop(state, settings, planner, reason, new_id)) as stopping:
                async for records in stopping:
                    yield records
            return
        message_id = new_id()
        iteration = state.iteration + 1
        decision: Decision | None = None
        turn = Turn(state.messages, state.before, state.rounds, iteration, new_id)
        async with aclosing(_within(planner.plan(turn), deadline)) as chunks:
            try:
                async for chunk in chunks:
                    if isinstance(chunk, Decision):
                        decision = chunk
                    else:
                        yield (Output(iteration, message_id, chunk),)
                if decision is None:
                    raise ModelError("The planner ended without a decision.", code="model_empty_response")
            except OutOfTime:
                pass
        if decision is None:
            async with aclosing(_stop(state, settings, planner, "max_execution_time", new_id)) as stopping:
                async for records in stopping:
                    yield records
            return
        taken = await _take(state, settings, decision, message_id, new_id, deadline)
        if taken.end is not None:
            # A failure may leave calls that will not be made: each still gets its one result.
            yield (taken.answered, *close_round(state, planner, tools, "cancelled"), taken.end)
            return
        yield (taken.answered,)


def _deadline(state: LoopState, settings: AgentSettings) -> Deadline:
    """The loop time at which the run's active time is used up."""
    if settings.max_execution_time is None:
        return Deadline(None)
    return Deadline(asyncio.get_running_loop().time() + settings.max_execution_time - state.active_s)


def _within(chunks: AsyncGenerator[Delta | Decision], deadline: Deadline) -> AsyncGenerator[Delta | Decision]:
    """`chunks`, each awaited no longer than the deadline, which is then `OutOfTime`."""
    return chunks if deadline.never else _until(chunks, deadline)


async def _until(chunks: AsyncGenerator[Delta | Decision], deadline: Deadline) -> AsyncGenerator[Delta | Decision]:
    async with aclosing(chunks):
        while True:
            async with deadline.limit():
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk


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


@immutable
class _Taken:
    """A decision as it entered the state, with the run's end if it is one."""

    answered: Answered
    end: Finished | Failed | None


async def _take(
    state: LoopState,
    settings: AgentSettings,
    decision: Decision,
    message_id: str,
    new_id: IdFactory,
    deadline: Deadline,
) -> _Taken:
    """Count the decision, number its calls, open the round."""
    outcome = decision.outcome
    proposed: tuple[ProposedAction, ...] = ()
    end: Finished | Failed | None = None
    unread = False
    if isinstance(outcome, AgentFinish):
        end = Finished(outcome, "finish")
        if "output" not in outcome.return_values:
            end = Failed("missing_output_keys", "The agent finished without the key `output`.")
    elif isinstance(outcome, tuple) and outcome:
        proposed = outcome
    else:
        error = outcome if isinstance(outcome, ParseError) else ParseError("The agent's plan is empty.")
        handled = await _handled(settings, error, deadline)
        if isinstance(handled, Unhandled):
            end = Failed("output_parsing_error", handled.message)
            proposed = _not_made(decision.message)
        else:
            unread = True
            action = AgentAction(EXCEPTION_TOOL, handled.observation, handled.log)
            proposed = (ProposedAction(action, refusal=handled.observation),)
    if end is None and is_repeat(state.rounds, settings, [item.action for item in proposed]):
        state.out_of_repeats = True
    state.iteration += 1
    state.usage.add_model_call(decision.tokens)
    if decision.message is not None:
        state.messages.append(decision.message)
    calls = _number(state, settings, Limits() if unread else settings.limits, proposed, new_id)
    if not unread:  # an answer that could not be read calls no tool
        own = settings.answer_tool
        state.usage.tool_calls += len(calls) if own is None else sum(call.action.tool != own for call in calls)
    state.open_message = decision.message if calls else None
    state.open_calls = [OpenCall(call) for call in calls]
    return _Taken(_answered(state.iteration, message_id, decision, calls), end)


async def _handled(settings: AgentSettings, error: ParseError, deadline: Deadline) -> Handled | Unhandled:
    """What the policy says; a plugin's that takes longer than the run may has said nothing."""
    try:
        async with deadline.limit():
            return await handle(settings.handle_parsing_errors, error)
    except OutOfTime:
        return Handled(INCOMPLETE, error.message)


def _answered(iteration: int, message_id: str, decision: Decision, calls: tuple[PlannedCall, ...] = ()) -> Answered:
    return Answered(iteration, message_id, decision.message, calls, decision.tokens, decision.model)


def _not_made(message: Message | None) -> tuple[ProposedAction, ...]:
    """The calls of an answer that ends the run because it could not be read."""
    if message is None:
        return ()
    refusal = "Not run: the answer it came with could not be read."
    return tuple(
        ProposedAction(AgentActionMessageLog(call.name, call.args, message_log=(message,)), call.id, refusal)
        for call in message.tool_calls
    )


def _number(
    state: LoopState, settings: AgentSettings, limits: Limits, actions: tuple[ProposedAction, ...], new_id: IdFactory
) -> tuple[PlannedCall, ...]:
    """Steps in call order with our own ids; the calls beyond a cap are marked, so that nothing is sent for them.

    The call that gives the structured answer is no tool's: caps on tool calls neither count nor stop it.
    """
    calls: list[PlannedCall] = []
    per_round, total = limits.max_tool_calls_per_round, limits.max_tool_calls
    used = state.usage.tool_calls
    own = settings.answer_tool
    position = -1
    for proposed in actions:
        state.step += 1
        is_own = own is not None and proposed.action.tool == own
        position += not is_own
        tool_call_id = new_id()
        refusal = proposed.refusal
        if state.out_of_repeats:
            refusal = refusal or "Not run: the same call was made before, as often as this agent may repeat one."
        elif is_own:
            pass
        elif per_round is not None and position >= per_round:
            refusal = f"Not run: only {per_round} tool calls are allowed in one round. Call it again in a later round."
        elif total is not None and used + position >= total:
            refusal = f"Not run: this run's limit of {total} tool calls is used up."
        calls.append(
            PlannedCall(
                state.step,
                state.iteration,
                tool_call_id,
                proposed.action,
                proposed.provider_call_id or tool_call_id,
                refusal,
            )
        )
    return tuple(calls)


def _after_round(state: LoopState, settings: AgentSettings) -> Finished | Failed | None:
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


async def _stop(
    state: LoopState, settings: AgentSettings, planner: Planner, reason: StopReason, new_id: IdFactory
) -> AsyncGenerator[tuple[Record, ...]]:
    """The end that a limit makes: a fixed text, or one last answer of the model.

    The last answer counts as a model call, not as an iteration. Where the model fails or takes too long, or its answer is
    not what it must be, the fixed text stands: the work that was done is not lost for it.
    """
    if concludes(settings, reason):
        message_id = new_id()
        iteration = state.iteration + 1
        turn = Turn(state.messages, state.before, state.rounds, iteration, new_id)
        decision: Decision | None = None
        deadline = Deadline(asyncio.get_running_loop().time() + CONCLUDE_S)
        async with aclosing(_until(planner.conclude(turn), deadline)) as chunks:
            try:
                async for chunk in chunks:
                    if isinstance(chunk, Decision):
                        decision = chunk
                    else:
                        yield (Output(iteration, message_id, chunk),)
            except (OutOfTime, ModelError):
                pass
        if decision is not None and isinstance(decision.outcome, AgentFinish):
            state.usage.add_model_call(decision.tokens)
            if decision.message is not None:
                state.messages.append(decision.message)
            yield (_answered(iteration, message_id, decision), Finished(decision.outcome, reason))
            return
        if decision is not None and settings.answer is not None:
            state.usage.add_model_call(decision.tokens)
            yield (_answered(iteration, message_id, replace(decision, message=None)),)
    finished = stopped(reason, multi_action=planner.multi_action)
    if finished.message is not None:
        state.messages.append(finished.message)
    yield (finished,)


__all__ = ["EXCEPTION_TOOL", "close_round", "execute"]
