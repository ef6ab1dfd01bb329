"""Taking a decision: it enters the state with its calls numbered, and opens a round or ends the run."""

from dataclasses import replace

from app.agent.deadline import Deadline, OutOfTime
from app.agent.middleware import NO_HOOKS, Hooks
from app.agent.parse_policy import INCOMPLETE, Handled, Unhandled, handle
from app.agent.ports import Decision, ParseError, PlannedCall, ProposedAction
from app.agent.records import Answered, Failed, Finished
from app.agent.settings import AgentSettings, Limits
from app.agent.stages import Jump, broken
from app.agent.state import LoopState, OpenCall
from app.agent.stop import is_repeat
from app.core.actions import AgentAction, AgentActionMessageLog, AgentFinish
from app.core.ids import IdFactory
from app.core.messages import Message
from app.core.values import immutable

EXCEPTION_TOOL = "_Exception"
"""The tool name of a step that stands for an answer which could not be read (AgentExecutor's ExceptionTool)."""


@immutable
class Taken:
    """A decision as it entered the state, with the run's end if it is one."""

    answered: Answered
    end: Finished | Failed | None


async def take(
    state: LoopState,
    settings: AgentSettings,
    decision: Decision,
    message_id: str,
    new_id: IdFactory,
    deadline: Deadline,
    hooks: Hooks,
) -> Taken:
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
    hooks.count(state.usage)
    if decision.message is not None:
        state.messages.append(decision.message)
    calls = _number(state, settings, Limits() if unread else settings.limits, proposed, new_id, hooks)
    if not unread:  # an answer that could not be read calls no tool
        own = settings.answer_tool
        state.usage.tool_calls += len(calls) if own is None else sum(call.action.tool != own for call in calls)
    state.open_message = decision.message if calls else None
    state.open_calls = [OpenCall(call) for call in calls]
    return Taken(answered(state.iteration, message_id, decision, calls), end)


async def _handled(settings: AgentSettings, error: ParseError, deadline: Deadline) -> Handled | Unhandled:
    """What the policy says; a plugin's that takes longer than the run may has said nothing."""
    try:
        async with deadline.limit():
            return await handle(settings.handle_parsing_errors, error)
    except OutOfTime:
        return Handled(INCOMPLETE, error.message)


def answered(iteration: int, message_id: str, decision: Decision, calls: tuple[PlannedCall, ...] = ()) -> Answered:
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
    state: LoopState,
    settings: AgentSettings,
    limits: Limits,
    actions: tuple[ProposedAction, ...],
    new_id: IdFactory,
    hooks: Hooks,
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
        elif hooks.hidden(proposed.action.tool):
            refusal = refusal or f"Not run: {proposed.action.tool} was not offered for this answer."
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


def given(state: LoopState, settings: AgentSettings, jump: Jump, hooks: Hooks, new_id: IdFactory) -> Answered:
    """The answer that a hook gives in the model's place, to have its calls made. It is a round like any other."""
    asked = jump.asked
    if asked is None or settings.type != "tool_calling":
        raise broken(jump.by, "only a tool_calling agent's hooks can have calls made in the model's place")
    calls = tuple(replace(call, id=new_id()) for call in asked.tool_calls)
    message = replace(asked, tool_calls=calls, wire={})
    proposed = tuple(
        ProposedAction(AgentActionMessageLog(call.name, call.args, message_log=(message,)), call.id) for call in calls
    )
    decision = Decision(proposed, message, model="")
    state.iteration += 1
    state.messages.append(message)
    planned = _number(state, settings, settings.limits, proposed, new_id, NO_HOOKS)
    state.usage.tool_calls += len(planned)
    state.open_message = message
    state.open_calls = [OpenCall(call) for call in planned]
    return answered(state.iteration, new_id(), decision, planned)
