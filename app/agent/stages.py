"""Stages: the hooks of a run at one point of its loop, and what they want of it.

What a hook changes is in the state at once, for the hooks after it, and is told with whatever follows from it: a crash
before that runs the hook again.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Literal, cast

from app.agent.changes import split
from app.agent.deadline import Deadline
from app.agent.middleware import Chain, HookResult, Hooks
from app.agent.ports import Goto
from app.agent.records import Record, StateChanged
from app.agent.state import LoopState
from app.agent.state_schema import MESSAGES, FieldUpdate, StateMisfit, Values, apply, own_copy
from app.core.actions import observation_text
from app.core.errors import MiddlewareFailed
from app.core.messages import Message, ToolCall
from app.core.values import immutable

PLACE = "__hooks"
"""The server's own field that says which hooks of a run need not run again: `[run, stage, iteration, how many]`."""

GOALS = ("end", "model", "tools")

StageName = Literal["before_agent", "before_model", "after_model", "after_agent"]


@immutable
class Jump:
    """A hook's wish that the run goes on elsewhere. The hooks after it in its stage are skipped."""

    goto: Goto
    by: str
    stage: StageName
    output: object = None
    asked: Message | None = None
    """With `tools`, before the model has answered: the answer in its place, whose calls are to be made."""


class Stage:
    """One point of the loop: runs its hooks, puts what they change into the state and into its `untold`."""

    def __init__(
        self, name: StageName, hooks: Hooks, state: LoopState, close: Callable[[], tuple[Record, ...]] | None = None
    ) -> None:
        """`close`: ends the open round, where a jump leaves its calls unmade."""
        self._name: StageName = name
        self._run_id = hooks.run_id
        self._chain: Chain = getattr(hooks, name)
        self._state = state
        self._close = close
        self.jump: Jump | None = None

    async def before(self, deadline: Deadline) -> AsyncGenerator[tuple[Record, ...]]:
        """Run those hooks of a stage before something that did not run yet; tells what each has changed, but for a jump's."""
        for place in range(self._done(), len(self._chain)):
            await self._run(place, deadline)
            if self.jump is None and self._state.untold:
                yield self._state.take_untold()
            if self.jump is not None:
                return

    async def after(self, deadline: Deadline) -> None:
        """Run all hooks of a stage after something. Nothing is told: it goes with what it came after."""
        for place in range(len(self._chain)):
            await self._run(place, deadline)
            if self.jump is not None:
                return

    async def _run(self, place: int, deadline: Deadline) -> None:
        name, hook = self._chain[place]
        if deadline.never:
            result = await hook(self._state)
        else:
            async with deadline.limit():
                result = await hook(self._state)
        if result is not None:
            self._take(name, result, place)
        elif self._name == "before_agent":  # it ran, and is not to run again
            self._change(name, (), (), place)

    def _take(self, name: str, result: HookResult, place: int) -> None:
        state, update = self._state, result.update or {}
        if result.goto is not None:
            if result.goto not in GOALS:
                raise broken(
                    name, f"it jumps to {str(cast('object', result.goto))[:64]!r}; there are: {', '.join(GOALS)}"
                )
            self.jump, update = self._jumping(name, result, result.goto, update)
        try:
            updates, messages = split(update, state) if update else ((), ())
        except StateMisfit as misfit:
            self.jump = None
            raise broken(name, f"its update of the state does not fit: {misfit}") from None
        said = any(message.role == "assistant" for message in messages)
        if self.jump is not None and self.jump.goto == "end" and result.output is not None and not said:
            messages = (*messages, Message("assistant", observation_text(result.output)))
        if state.open_calls and self._close is not None:
            if self.jump is not None and self.jump.goto != "tools":
                state.untold = list(self._close())
            elif messages:
                raise broken(name, "messages cannot stand between calls and their results; `before_model` can add them")
        self._change(name, (*updates, *result.own), messages, place)

    def _jumping(self, name: str, result: HookResult, goto: Goto, update: Values) -> tuple[Jump, Values]:
        if goto != "tools":
            return Jump(goto, name, self._name, result.output), update
        if self._name == "after_model":
            if not self._state.open_calls:
                raise broken(name, "it jumps to the tools, and the answer calls none")
            return Jump(goto, name, self._name), update
        given = update.get(MESSAGES)
        messages = list(cast("Sequence[object]", given)) if isinstance(given, list | tuple) else []
        asked = _asking(messages.pop()) if messages else None
        if asked is None:
            raise broken(name, "it jumps to the tools, so its last message must be the assistant's, with `tool_calls`")
        return Jump(goto, name, self._name, asked=asked), {**update, MESSAGES: messages}

    def _change(self, name: str, updates: tuple[FieldUpdate, ...], messages: tuple[Message, ...], place: int) -> None:
        state = self._state
        if self._name in ("before_agent", "before_model"):
            skipped = self.jump is not None and self.jump.goto == "model"
            done = [self._run_id, self._name, self._iteration, len(self._chain) if skipped else place + 1]
            updates = (*updates, FieldUpdate(PLACE, "replace", done))
        if updates or messages:
            state.values = apply(state.values, updates)
            state.messages.extend(messages)
            state.untold.append(StateChanged(updates, f"middleware:{name}", messages))

    @property
    def _iteration(self) -> int:
        """Before the agent there is but one time; the model has one time each round."""
        return 0 if self._name == "before_agent" else self._state.iteration

    def _done(self) -> int:
        """How many of the hooks have run here, as the state tells."""
        place = self._state.values.get(PLACE)
        run_id, stage, iteration, count = cast("Sequence[object]", place) if isinstance(place, list) else ("", "", 0, 0)
        if run_id != self._run_id:
            return 0
        if stage == self._name and iteration == self._iteration:
            return cast("int", count)
        return len(self._chain) if self._name == "before_agent" else 0


def broken(name: str, what: str) -> MiddlewareFailed:
    """The error that ends the run of a middleware that broke its contract."""
    return MiddlewareFailed(f"The middleware `{name}` broke its contract: {what}.")


def _asking(given: object) -> Message | None:
    """An assistant's message with calls, as a hook gives it; `None` where it is none."""
    try:
        body = own_copy(given.to_json() if isinstance(given, Message) else given)
    except ValueError:
        return None
    if not isinstance(body, dict):
        return None
    message = cast("Mapping[str, object]", body)
    calls, content = message.get("tool_calls"), message.get("content")
    if message.get("role") != "assistant" or not isinstance(calls, list) or not calls:
        return None
    if content is not None and not isinstance(content, str):
        return None
    read = [_call(item) for item in cast("list[object]", calls)]
    return (
        Message("assistant", content or None, tool_calls=tuple(call for call in read if call is not None))
        if all(read)
        else None
    )


def _call(item: object) -> ToolCall | None:
    if not isinstance(item, dict):
        return None
    call = cast("Mapping[str, object]", item)
    identity, name, args = call.get("id", ""), call.get("name"), call.get("args")
    if not isinstance(identity, str) or not isinstance(name, str) or not isinstance(args, dict):
        return None
    return ToolCall(identity, name, cast("dict[str, object]", args))
