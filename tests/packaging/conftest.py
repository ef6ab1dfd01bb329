"""What is built once for all tests here: the wheel, an environment with it, and a project that has its own `app`."""

from pathlib import Path

import pytest

from tests.packaging.environments import Environment, build_wheel, copy_of_the_repository

PLUGIN = """
from app.core.errors import Missing
from app.main import ORDERS
from runwire import ToolError, tool


@tool(effect="read")
async def lookup_order(order_id: str) -> dict[str, object]:
    '''Find an order by its id.'''
    try:
        return {"item": ORDERS[order_id]}
    except KeyError:
        raise ToolError(str(Missing(order_id)), code="no_order") from None
"""

CLIENT = """
import asyncio

from app.main import ORDERS
from runwire import Client


async def main() -> None:
    async with Client() as client:
        async for run in client.runs.iterate():
            print(run.status, run.text, sorted(ORDERS))


asyncio.run(main())
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment.make(tmp_path_factory.mktemp("user") / "venv", wheel)


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `git clone` names it: `runwire`."""
    return copy_of_the_repository(tmp_path_factory.mktemp("clones") / "runwire")


@pytest.fixture(scope="session")
def editable(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment.make(tmp_path_factory.mktemp("developer") / "venv", "-e", clone)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project as FastAPI's documentation has it, with a plugin and a program that uses the client."""
    files = {
        "app/__init__.py": "",
        "app/main.py": "ORDERS = {'A-17': 'lamp'}\n",
        "app/core/__init__.py": "",
        "app/core/errors.py": "class Missing(Exception): ...\n",
        "mine.py": PLUGIN,
        "use_client.py": CLIENT,
    }
    for name, text in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "project"
