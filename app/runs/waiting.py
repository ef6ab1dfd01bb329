"""Waiting: what a parked run needs from storage, and the answers that let it go on."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from app.core.events import EventType
from app.core.values import immutable
from app.runs.records import Batch, CallRecord, RunRecord


@immutable
class Answer:
    """An answer to one interrupt. `decided`: `{"decision": …}` with what belongs to it, as it is stored with the call."""

    interrupt_id: str
    decided: Mapping[str, object]


@immutable
class Woken:
    """What there is to do for a parked run. Neither is set for one that is driven or over."""

    ready: bool = False
    until_ms: int | None = None
    """It still waits: when to look again."""


@immutable
class HeldTurn:
    """A deferred call without a result, and the turns that it keeps meanwhile."""

    tool_call_id: str
    run_id: str
    tenant: str
    shared: tuple[tuple[str, str], ...]
    """As `app.tools.turns.Turn.shared`."""
    until_ms: int


class WaitStore(Protocol):
    async def answer(self, tenant: str, run_id: str, answers: Sequence[Answer], by: str) -> tuple[RunRecord, bool]:
        """Keep all answers or none; the run after that, and whether it can go on (it is then pending).

        Raises `NotFound` (`run_not_found`, `interrupt_not_found`), `Conflict` (`interrupt_resolved`, `interrupt_expired`;
        `run_not_interrupted`: the run ended before anybody answered).
        """
        ...

    async def call(self, tool_call_id: str) -> CallRecord | None:
        """Any tenant's: for who holds the call's own token."""
        ...

    async def deliver(self, tool_call_id: str, result: Mapping[str, object]) -> str:
        """Keep what a tool answered by its callback; the run's id. The same result again is taken.

        Raises `NotFound` (`tool_call_not_found`), `Conflict` (`result_exists`), `Gone` (`call_over`).
        """
        ...

    async def tell(self, run_id: str, event: EventType, data: Mapping[str, object]) -> Batch | None:
        """Add an event to a parked run's journal; `None` when the run is driven or over."""
        ...

    async def wake(self, run_id: str) -> "Woken":
        """Look whether a parked run has something to do now: answers, or the end of a wait. Expired questions are closed."""
        ...

    async def parked(self) -> Sequence[tuple[str, int]]:
        """(run, the time its next wait is over) of every parked run."""
        ...

    async def held_turns(self) -> Sequence[HeldTurn]:
        """Of all deferred calls of unfinished runs, in the order in which they were made: what a starting server gives back to them."""
        ...
