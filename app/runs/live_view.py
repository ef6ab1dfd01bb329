"""The view that a driven run gives its tools: the state its loop is at, and its stream."""

from collections.abc import Callable, Mapping, Sequence

from app.agent.state import LoopState
from app.agent.state_schema import Values
from app.core.events import EventType
from app.core.messages import Message


class LiveView:
    """A `RunView` (see `app.tools.run_view`). `state` is set once the run's is known, before any tool runs."""

    __slots__ = ("_tell", "state")

    def __init__(self, tell: Callable[[EventType, Mapping[str, object]], bool]) -> None:
        self._tell = tell
        self.state: LoopState | None = None

    def messages(self) -> Sequence[Message]:
        return () if self.state is None else self.state.messages

    def values(self) -> Values:
        return {} if self.state is None else self.state.values

    def tell(self, event: EventType, data: Mapping[str, object]) -> bool:
        return self._tell(event, data)
