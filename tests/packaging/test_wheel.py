"""The wheel: it takes one name, holds all of the server, and nothing in it looks for a package `app`."""

import ast
import json
import re
from pathlib import Path
from zipfile import ZipFile

import app
from tests.architecture.test_repository import tracked
from tests.packaging.environments import ROOT, Environment, output
from tests.support.syntax import parsed

EVERYTHING = """
import importlib, json, pkgutil, runwire, sys

for item in pkgutil.walk_packages(runwire.__path__, "runwire."):
    if not item.name.endswith("migrations.env"):  # only Alembic runs it
        importlib.import_module(item.name)
from runwire import *
print(json.dumps([runwire.__file__, sorted(name for name in sys.modules if name.partition(".")[0] == "app")]))
"""


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_takes_only_the_name_runwire(wheel: Path) -> None:
    info = f"runwire-{app.__version__}.dist-info"
    files = contents(wheel)
    assert {name.partition("/")[0] for name in files} == {"runwire", info}
    assert files[f"{info}/top_level.txt"].split() == [b"runwire"]
    assert files[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert (ROOT / "README.md").read_text(encoding="utf-8") in files[f"{info}/METADATA"].decode()
    assert "runwire/py.typed" in files


def test_all_of_the_server_is_in_the_wheel(wheel: Path) -> None:
    places = {path.relative_to(ROOT) for path in tracked() if path.is_relative_to(ROOT / "app")}
    wanted = {f"runwire/_server/{path.relative_to('app')}" for path in places} - {"runwire/_server/__main__.py"}
    assert len(wanted) > 200
    assert wanted | {"runwire/__init__.py", "runwire/__main__.py"} <= contents(wheel).keys()


def test_nothing_in_the_wheel_names_a_module_of_app(wheel: Path) -> None:
    found: list[str] = []
    for name, data in contents(wheel).items():
        for node in ast.walk(parsed(data)) if name.endswith(".py") else ():
            named: list[str] = []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                named = [node.module or ""]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = re.findall(r"^app(?:\.\w+)+$", node.value)  # what importlib or a subprocess would be given
            found += [f"{name}: {module}" for module in named if module.partition(".")[0] == "app"]
    assert found == []


def test_every_module_of_the_wheel_can_be_imported(installed: Environment, tmp_path: Path) -> None:
    file, loaded = json.loads(output(installed.bin("python"), "-c", EVERYTHING, cwd=tmp_path))
    assert Path(file).is_relative_to(installed.folder)
    assert loaded == []


def test_the_wheel_brings_an_older_database_up_to_date(installed: Environment, tmp_path: Path) -> None:
    older = (
        "from alembic import command\n"
        "from runwire._server.storage.migrate import alembic_config\n"
        "command.upgrade(alembic_config('sqlite:///runwire.db'), '0001')\n"
    )
    output(installed.bin("python"), "-c", older, cwd=tmp_path)
    env = {"RUNWIRE_DATABASE_URL": "sqlite:///runwire.db"}
    told = output(installed.bin("runwire"), "migrate", cwd=tmp_path, env=env)
    assert re.fullmatch(r"schema 0\d+ \(it was 0001\)\n", told)


def test_the_command_line_of_the_wheel_loads_nothing_for_plugins_or_clients(
    installed: Environment, tmp_path: Path
) -> None:
    program = "import json, sys, runwire; runwire._load('cli.main'); print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(output(installed.bin("python"), "-c", program, cwd=tmp_path)))
    heavy = ("httpx", "fastapi", "pydantic", "sqlalchemy", "runwire._server.client", "runwire._server.tools")
    assert "runwire._server.cli.main" in loaded
    assert loaded.isdisjoint(heavy)
