"""Ctrl-C, counted: a command that follows a run says itself what the first, the second and the third one mean."""

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Presses:
    """Ctrl-C, counted."""

    first: asyncio.Event = field(default_factory=asyncio.Event)
    second: asyncio.Event = field(default_factory=asyncio.Event)
    third: asyncio.Event = field(default_factory=asyncio.Event)

    def press(self) -> None:
        for event in (self.first, self.second, self.third):
            if not event.is_set():
                event.set()
                return


@contextmanager
def counted_presses() -> Generator[Presses]:
    presses = Presses()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, presses.press)
    try:
        yield presses
    finally:
        loop.remove_signal_handler(signal.SIGINT)
