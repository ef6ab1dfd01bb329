"""The view of its run that a call has: the state as of the round's start, and a way to tell its readers something."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from app.agent.state_schema import MESSAGES, Values, own_copy, shown
from app.core.events import EventType
from app.core.messages import Message


class RunView(Protocol):
    """What a run shows to its calls, and takes from them."""

    def messages(self) -> Sequence[Message]: ...

    def values(self) -> Values: ...

    def tell(self, event: EventType, data: Mapping[str, object]) -> bool:
        """Add an event to the run's stream; on the event loop only."""
        ...


class _Outside:
    """Outside a run there is no state, and nobody listens."""

    def messages(self) -> Sequence[Message]:
        return ()

    def values(self) -> Values:
        return {}

    def tell(self, event: EventType, data: Mapping[str, object]) -> bool:
        return False


OUTSIDE: RunView = _Outside()


class StateView(Mapping[str, object]):
    """A state to be read: `messages`, and the fields that the agent declares. What is taken from it is a copy.

    It shows the round's start for as long as it is held, whatever the run does meanwhile.
    """

    __slots__ = ("_messages", "_values")

    def __init__(self, view: RunView) -> None:
        messages, count = view.messages(), len(view.messages())
        self._messages: Callable[[], list[object]] = lambda: [message.shown() for message in messages[:count]]
        self._values = view.values()

    def __getitem__(self, name: str) -> object:
        if name == MESSAGES:
            return own_copy(self._messages())
        return own_copy(shown(self._values)[name])

    def __iter__(self) -> Iterator[str]:
        return iter((MESSAGES, *shown(self._values)))

    def __len__(self) -> int:
        return 1 + len(shown(self._values))
