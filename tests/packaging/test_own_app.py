"""A project that has its own package `app`: all of Runwire works there as a wheel, and an editable install says why not."""

import re
from pathlib import Path

import pytest

import app
from tests.packaging.environments import Environment, InstalledServer, output, run
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import ACME

pytestmark = pytest.mark.anyio

HERE = {"PYTHONPATH": "."}


def test_the_commands_work_beside_another_app(installed: Environment, project: Path) -> None:
    version = f"runwire {app.__version__}\n"
    assert output(installed.bin("runwire"), "--version", cwd=project, env=HERE) == version
    told = output(installed.bin("runwire"), "config", "check", cwd=project, env=HERE | {"RUNWIRE_PLUGINS": "mine"})
    assert "mine" in told
    assert "Usage: runwire" in output(installed.bin("python"), "-m", "runwire", "--help", cwd=project)


@pytest.mark.parametrize("env", [HERE, {}], ids=["on the path", "in the working directory"])
async def test_a_server_runs_a_plugin_that_imports_its_own_app(
    installed: Environment, project: Path, env: dict[str, str]
) -> None:
    settings = {"RUNWIRE_PLUGINS": "mine", "RUNWIRE_API_KEYS": f"{ACME}:acme", **env}
    server = InstalledServer(project, settings, environment=installed)
    server.start()
    try:
        model = scripted(calls(("lookup_order", {"order_id": "A-17"})), says("It is a lamp."))
        async with server.client() as client:
            answer = await client.post("/runs/wait", json=run_body(model, "lookup_order"))
            run_id = answer.json()["id"]
            (step,) = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
        assert (answer.status_code, answer.json()["status"]) == (200, "success")
        assert "lamp" in str(step)
        told = {"RUNWIRE_URL": server.url, "RUNWIRE_API_KEY": ACME, **env}
        said = output(installed.bin("python"), "use_client.py", cwd=project, env=told)
        assert said == "success It is a lamp. ['A-17']\n"
    finally:
        server.kill()
    server.check_log()


SENTENCE = (
    "Python finds another 'app' ({}) before the one of this editable install of Runwire; install Runwire as a wheel"
)


@pytest.mark.parametrize("kind", ["package", "module"])
def test_an_editable_install_says_that_another_app_is_in_its_way(
    editable: Environment, project: Path, kind: str
) -> None:
    other = project / "app"
    if kind == "module":
        (project / "app").rename(project / "shop")
        other = project / "app.py"
        other.write_text("raise SystemExit('this must not be run')\n")
    sentence = SENTENCE.format(other)
    command = run(editable.bin("runwire"), "--version", cwd=project, env={"PYTHONPATH": str(project)})
    assert (command.returncode, command.stdout) == (1, "")
    assert command.stderr.startswith(f"runwire: {sentence}")
    assert command.stderr.count("\n") == 1
    for names in ("Client", "tool"):
        (project / "use.py").write_text(f"from runwire import {names}\n")
        done = run(editable.bin("python"), "use.py", cwd=project)
        assert done.returncode == 1
        assert re.search(f"^ImportError: {re.escape(sentence)}", done.stderr, re.MULTILINE)


def test_an_editable_install_is_found_from_the_folder_above_the_clone(editable: Environment, clone: Path) -> None:
    script = clone.parent / "script.py"
    script.write_text("import runwire\nfrom runwire import Client, tool\nprint(runwire.__file__)\n")
    assert output(editable.bin("python"), "script.py", cwd=clone.parent) == f"{clone / 'runwire.py'}\n"
    assert "Usage: runwire" in output(editable.bin("python"), "-m", "runwire", "--help", cwd=clone.parent)
    assert output(editable.bin("runwire"), "--version", cwd=clone.parent) == f"runwire {app.__version__}\n"
