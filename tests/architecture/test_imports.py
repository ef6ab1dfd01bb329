"""Who imports whom: layers point inward, the core is light, and so is the command line before it has work to do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAX_LINES = 400
"""A module beyond this owns more than one noun."""

HEAVY = ("fastapi", "starlette", "uvicorn", "httpx", "sqlalchemy", "alembic", "psycopg", "pydantic", "rich.console")
LIBRARIES = (
    "fastapi",
    "starlette",
    "uvicorn",
    "httpx",
    "aiohttp",
    "requests",
    "sqlalchemy",
    "sqlite3",
    "psycopg",
    "pydantic",
)


def loaded_by(*modules: str) -> set[str]:
    """The names in `sys.modules` after a fresh interpreter imported these and all their submodules."""
    program = (
        "import importlib, json, pkgutil, sys\n"
        f"for name in {modules!r}:\n"
        "    package = importlib.import_module(name)\n"
        "    for item in pkgutil.walk_packages(getattr(package, '__path__', ()), name + '.'):\n"
        "        importlib.import_module(item.name)\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_import_contracts_hold() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_core_and_the_agent_loop_load_no_web_database_or_http_library() -> None:
    assert loaded_by("app.core", "app.agent").isdisjoint(LIBRARIES)


def test_the_command_line_loads_nothing_heavy_before_it_has_work_to_do() -> None:
    program = "import json, sys, app.cli.main; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)).isdisjoint(HEAVY)


@pytest.mark.parametrize("path", sorted((ROOT / "app").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_says_what_it_owns_and_stays_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if text.strip():
        assert text.startswith('"""')
    assert text.count("\n") <= MAX_LINES
