"""Several observers as one."""

from app.agent.ports import ModelCall, ToolRunner
from app.runs.observer import NOBODY, Observer, RunObserver
from app.runs.records import RunRecord, Transition
from app.tools.runner import BoundTools


def observers(*members: Observer) -> Observer:
    """One observer for all; with a single member that member itself, with none `NOBODY`: then nothing is paid for.

    The first member wraps the run's own model call and tools, the next one what that gives.
    """
    if len(members) == 1:
        return members[0]
    return Observers(members) if members else NOBODY


def own_tools(runner: object) -> BoundTools | None:
    """The run's own tools beneath what observers wrapped around them (their `inner`); `None` where there are none."""
    while not isinstance(runner, BoundTools):
        runner = getattr(runner, "inner", None)
        if runner is None:
            return None
    return runner


class Observers:
    def __init__(self, members: tuple[Observer, ...]) -> None:
        self._members = members

    def driving(self, run: RunRecord) -> RunObserver:
        return _RunObservers([member.driving(run) for member in self._members])


class _RunObservers:
    __slots__ = ("_members",)

    def __init__(self, members: list[RunObserver]) -> None:
        self._members = members

    def model(self, call: ModelCall) -> ModelCall:
        for member in self._members:
            call = member.model(call)
        return call

    def tools(self, runner: ToolRunner) -> ToolRunner:
        for member in self._members:
            runner = member.tools(runner)
        return runner

    def ended(self, transition: Transition) -> None:
        for member in self._members:
            member.ended(transition)

    def left(self) -> None:
        for member in self._members:
            member.left()
