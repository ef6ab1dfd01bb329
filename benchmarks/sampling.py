"""A sampling profile of a server: `python -m benchmarks.sampling OUT.txt serve …` runs it and writes where its CPU went.

Samples are taken per millisecond of CPU the process used (SIGPROF), on the main thread, which runs the event loop; time
of other threads shows up at the line that waited for the interpreter. C functions count for the line that called them.
"""

import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

INTERVAL_S = 0.001
TOP = 45


class Sampler:
    def __init__(self) -> None:
        self.total = 0
        self._lines: Counter[str] = Counter()
        self._functions: Counter[str] = Counter()

    def sample(self, _: int, frame: FrameType | None) -> None:
        self.total += 1
        if frame is not None:
            self._lines[f"{_place(frame)}:{frame.f_lineno} {frame.f_code.co_qualname}"] += 1
        seen: set[str] = set()
        while frame is not None:
            seen.add(f"{_place(frame)}:{frame.f_code.co_firstlineno} {frame.f_code.co_qualname}")
            frame = frame.f_back
        self._functions.update(seen)

    def write(self, path: Path) -> None:
        lines = [f"{self.total} samples of {INTERVAL_S * 1000:g} ms CPU", "", "own time, by line"]
        lines += [f"{count / self.total:7.1%}  {name}" for name, count in self._lines.most_common(TOP)]
        lines += ["", "with what it calls, by function"]
        lines += [f"{count / self.total:7.1%}  {name}" for name, count in self._functions.most_common(TOP * 2)]
        path.write_text("\n".join(lines) + "\n")


def _place(frame: FrameType) -> str:
    name = frame.f_code.co_filename
    for root in ("site-packages/", "/lib/python3."):
        _, found, rest = name.rpartition(root)
        if found:
            return rest
    return "/".join(name.rsplit("/", 3)[1:])


def main() -> None:
    from app.cli.main import main as serve

    path = Path(sys.argv.pop(1))
    sampler = Sampler()
    signal.signal(signal.SIGPROF, sampler.sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    try:
        serve()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        sampler.write(path)


if __name__ == "__main__":
    main()
