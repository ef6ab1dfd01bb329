"""The public module stays cheap: a plugin loads no HTTP client, a client loads nothing of the server."""

import json
import subprocess
import sys
from pathlib import Path

import runwire
from app import client

ROOT = Path(__file__).resolve().parents[2]


def loaded_by(statement: str) -> set[str]:
    """The names in `sys.modules` after a fresh interpreter ran a statement."""
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_a_plugin_loads_no_http_client() -> None:
    loaded = loaded_by("from runwire import tool, ToolContext, ToolError")
    assert loaded.isdisjoint(("httpx", "httpx_sse", "app.client", "fastapi", "sqlalchemy", "jsonschema_rs", "pydantic"))


def test_a_client_loads_nothing_of_the_server() -> None:
    loaded = loaded_by("from runwire import Client; Client('http://127.0.0.1:1')")
    assert "httpx" in loaded
    assert loaded.isdisjoint(("fastapi", "starlette", "uvicorn", "sqlalchemy", "jsonschema_rs", "pydantic", "psycopg"))
    assert loaded.isdisjoint(("app.api", "app.storage", "app.runs", "app.settings", "app.cli", "app.main"))


def test_the_public_module_has_all_of_the_client() -> None:
    for name in client.__all__:
        assert getattr(runwire, name) is getattr(client, name)
        assert name in runwire.__all__
    assert not hasattr(runwire, "Server")


def test_every_public_name_is_found_and_none_is_public_by_accident() -> None:
    found: dict[str, object] = {}
    exec("from runwire import *", found)
    del found["__builtins__"]
    assert sorted(found) == sorted(runwire.__all__) == sorted(runwire._HOME_OF)
    assert set(runwire.__all__) <= set(dir(runwire))


def test_the_public_module_alone_loads_nothing_of_the_server() -> None:
    assert not {name for name in loaded_by("import runwire") if name.partition(".")[0] == "app"}
