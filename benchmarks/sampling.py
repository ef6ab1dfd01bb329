"""A sampling profile of a server: `python -m benchmarks.sampling OUT.txt serve …` runs it and writes where its CPU went.

Samples are taken by the CPU the process used (SIGPROF: a tick of the kernel each, 1 to 4 ms), on the main thread, and only
while its event loop runs; time of other threads shows up where that loop then was. C functions count for their caller.
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
        self._entries: Counter[str] = Counter()

    def sample(self, _: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        line = f"{_place(frame)}:{frame.f_lineno} {frame.f_code.co_qualname}"
        functions: dict[str, None] = {}
        while frame is not None and frame.f_code.co_qualname != "Runner.run":
            functions[f"{_place(frame)}:{frame.f_code.co_firstlineno} {frame.f_code.co_qualname}"] = None
            frame = frame.f_back
        if frame is None:
            return
        self.total += 1
        self._lines[line] += 1
        self._functions.update(list(functions))
        self._entries[next(reversed(functions), "the event loop itself")] += 1

    def write(self, path: Path) -> None:
        lines = [f"{self.total} samples", "", "own time, by line"]
        lines += [f"{count / self.total:7.1%}  {name}" for name, count in self._lines.most_common(TOP)]
        lines += ["", "by what the event loop called"]
        lines += [f"{count / self.total:7.1%}  {name}" for name, count in self._entries.most_common(TOP // 2)]
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
