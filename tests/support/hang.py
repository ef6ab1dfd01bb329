"""A guard against work that does not come to its end, for code that cannot be awaited under `asyncio.timeout`."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def no_hang(cpu_s: float = 20.0) -> Generator[None]:
    """Raise `TimeoutError` when the body takes this much CPU: a guard of the suite, not a measurement."""

    def expired(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {cpu_s:g} s of CPU")

    before = signal.signal(signal.SIGPROF, expired)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
