"""When a run has to stop, and what it then answers."""

from collections.abc import Sequence

from app.agent.ports import Round
from app.agent.records import Finished, StopReason
from app.agent.settings import AgentSettings
from app.agent.state import LoopState
from app.core.actions import AgentAction, AgentFinish
from app.core.messages import Message

ITERATION_OR_TIME_TEXT = "Agent stopped due to iteration limit or time limit."
"""AgentExecutor's words: single-action agents at either limit; here also every agent at its time limit."""

MAX_ITERATIONS_TEXT = "Agent stopped due to max iterations."
"""AgentExecutor's words for multi-action agents."""

USAGE_TEXT = "Agent stopped due to usage limit."


REPEATS_TEXT = "Agent stopped due to repeated actions."


def limit_reached(state: LoopState, settings: AgentSettings, *, out_of_time: bool) -> StopReason | None:
    """Which limit forbids another planner round; iterations before time, as AgentExecutor checks them."""
    if state.out_of_repeats:
        return "max_repeats"
    if settings.max_iterations is not None and state.iteration >= settings.max_iterations:
        return "max_iterations"
    if out_of_time:
        return "max_execution_time"
    tokens, calls = settings.limits.max_total_tokens, settings.limits.max_tool_calls
    if tokens is not None and state.usage.total_tokens >= tokens:
        return "usage_limit"
    if calls is not None and state.usage.tool_calls > calls:
        return "usage_limit"
    if settings.limits.max_cost_usd is not None and _spent(state, settings.limits.max_cost_usd):
        return "usage_limit"
    return None


def _spent(state: LoopState, cap: float) -> bool:
    """Whether a cap in US dollars is reached. Calls of unknown cost reach any: under a cap, no prices is no permission."""
    cost = state.usage.cost_usd
    return state.usage.model_calls > 0 if cost is None and cap > 0 else (cost or 0.0) >= cap


def is_repeat(rounds: Sequence[Round], settings: AgentSettings, proposed: Sequence[AgentAction]) -> bool:
    """Whether a round after `rounds` would repeat the one before once more than `limits.max_repeats` allows.

    A repeat is the same tools with the same inputs in the same order; ids and what was said around them do not count.
    """
    allowed = settings.limits.max_repeats
    if allowed is None or not proposed or len(rounds) <= allowed:
        return False
    actions = [(action.tool, action.tool_input) for action in proposed]
    return all(
        actions == [(call.action.tool, call.action.tool_input) for call, _ in item.results]
        for item in rounds[len(rounds) - allowed - 1 :]
    )


def concludes(settings: AgentSettings, reason: StopReason) -> bool:
    """Whether the model gets one last call. Not at a usage limit: the call would go beyond it."""
    return settings.early_stopping_method == "generate" and reason != "usage_limit"


def stopped(reason: StopReason, *, multi_action: bool) -> Finished:
    """`early_stopping_method: force`: a fixed text, no further model call."""
    if reason == "max_iterations" and multi_action:
        text = MAX_ITERATIONS_TEXT
    elif reason == "usage_limit":
        text = USAGE_TEXT
    elif reason == "max_repeats":
        text = REPEATS_TEXT
    else:
        text = ITERATION_OR_TIME_TEXT
    return Finished(AgentFinish({"output": text}), reason, Message("assistant", text))
