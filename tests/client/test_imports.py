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
