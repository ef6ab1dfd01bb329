"""Observers: who is told what a run does, for metrics and traces. They see; they change nothing."""

from typing import Protocol

from app.agent.ports import ModelCall, ToolRunner
from app.runs.records import RunRecord, Transition


class RunObserver(Protocol):
    """Watches one run under one claim. Methods are called on the event loop, return at once and never raise."""

    def model(self, call: ModelCall) -> ModelCall:
        """The model call, watched. What is given back must hand on every delta, the answer and every error unchanged."""
        ...

    def tools(self, runner: ToolRunner) -> ToolRunner:
        """The run's tools, watched. What is given back must hand on every outcome and every error unchanged."""
        ...

    def ended(self, transition: Transition) -> None:
        """The run's end is durable."""
        ...

    def left(self) -> None:
        """Driving stopped without an end: the server goes down, or another process has the run."""
        ...


class Observer(Protocol):
    def driving(self, run: RunRecord) -> RunObserver:
        """A run was claimed and is about to be driven."""
        ...


class _Nobody:
    """Watches nothing, at no cost."""

    def driving(self, run: RunRecord) -> "_Nobody":
        return self

    def model(self, call: ModelCall) -> ModelCall:
        return call

    def tools(self, runner: ToolRunner) -> ToolRunner:
        return runner

    def ended(self, transition: Transition) -> None:
        pass

    def left(self) -> None:
        pass


NOBODY: Observer = _Nobody()
