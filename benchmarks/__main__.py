"""`python -m benchmarks [names…]`: runs benchmarks one after another, each printing its table."""

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

from benchmarks.options import Options
from benchmarks.report import Report

NAMES = (
    "loop",
    "text_agents",
    "short_runs",
    "chunks",
    "parallel_tools",
    "tool_boundary",
    "waiting",
    "state",
    "middleware",
    "footprint",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Benchmarks of Runwire, on loopback.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which ones; all by default: {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=5, help="alternated rounds; medians are reported (default: 5)")
    parser.add_argument("--profile", type=Path, help="sample the server, write its profile into this folder")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    given = parser.parse_args()
    names = cast("list[str]", given.names) or list(NAMES)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    options = Options(cast("int", given.rounds), cast("Path | None", given.profile))
    if options.profile is not None:
        options.profile.mkdir(parents=True, exist_ok=True)
    missed = 0
    for name in names:
        run = cast("Callable[[Options], Report]", importlib.import_module(f"benchmarks.{name}").run)
        report = run(options)
        report.show()
        missed += not report.met
    return 1 if missed and given.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
