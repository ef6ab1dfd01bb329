"""`runwire serve`, `migrate` and `openapi`: what they refuse, in a plain line for each fault, and with which exit code."""

import socket
from pathlib import Path

import pytest

from tests.cli.command import ROOT, runwire

pytestmark = pytest.mark.anyio

KEY = "test-key-0123456789:acme"


def plainly(err: str, *, lines: int = 1) -> str:
    """stderr, which must be a line for people for each fault."""
    assert all(line.startswith("runwire: ") for line in err.splitlines())
    assert err.count("\n") == lines
    assert "Traceback" not in err
    return err


async def test_serve_refuses_other_than_loopback_without_keys(tmp_path: Path) -> None:
    result = await runwire("serve", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path)
    assert result.code == 2
    assert "RUNWIRE_API_KEYS" in plainly(result.err)


async def test_serve_refuses_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = await runwire("serve", "--port", str(taken.getsockname()[1]), cwd=tmp_path)
    assert result.code == 2
    assert "--port" in plainly(result.err)


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({}, ["RUNWIRE_API_KEYS", "RUNWIRE_SECRET_KEY"]),
        ({"RUNWIRE_API_KEYS": KEY}, ["RUNWIRE_SECRET_KEY"]),
        ({"RUNWIRE_API_KEYS": KEY, "RUNWIRE_SECRET_KEY": "x" * 16, "RUNWIRE_DEMO": "true"}, ["demo"]),
    ],
)
async def test_serve_refuses_unsafe_settings_in_production(
    env: dict[str, str], named: list[str], tmp_path: Path
) -> None:
    result = await runwire("serve", "--port", "0", cwd=tmp_path, env={"RUNWIRE_ENV": "production", **env})
    assert result.code == 2
    said = plainly(result.err, lines=len(named))
    assert all(name in line for name, line in zip(named, said.splitlines(), strict=True))


@pytest.mark.parametrize(
    "env",
    [
        {"RUNWIRE_PORT": "99999"},
        {"RUNWIRE_API_KEYS": "short:acme"},
        {"RUNWIRE_SECRET_KEY": "short"},
        {"RUNWIRE_PLUGINS": "there.is.no.such.module"},
        {"RUNWIRE_DATABASE_URL": "mysql://somewhere"},
        {"RUNWIRE_EGRESS_ALLOW": "10.0.0.0/99"},
    ],
)
async def test_serve_refuses_settings_that_cannot_be_used(env: dict[str, str], tmp_path: Path) -> None:
    result = await runwire("serve", cwd=tmp_path, env={"RUNWIRE_PORT": "0", **env})
    assert result.code == 2
    plainly(result.err)


async def test_migrate_makes_the_schema_and_finds_it_again(tmp_path: Path) -> None:
    first = await runwire("migrate", cwd=tmp_path)
    second = await runwire("migrate", cwd=tmp_path)
    assert (first.code, second.code) == (0, 0)
    version = first.out.split()[1]
    assert first.out == f"schema {version} (it was empty)\n"
    assert second.out == f"schema {version} (it was {version})\n"


@pytest.mark.parametrize(
    "url",
    ["postgresql://user:hidden-pw@127.0.0.1:1/x", "mysql://user:hidden-pw@host/x", "sqlite:////dev/null/x.db"],
)
async def test_migrate_says_that_a_database_cannot_be_used_without_its_address(url: str, tmp_path: Path) -> None:
    result = await runwire("migrate", cwd=tmp_path, env={"RUNWIRE_DATABASE_URL": url})
    assert result.code == 3
    assert "hidden-pw" not in plainly(result.err) + result.out


async def test_the_committed_openapi_document_is_what_the_server_serves() -> None:
    result = await runwire("openapi", "--check", cwd=ROOT)
    assert (result.code, result.err) == (0, "")


async def test_an_outdated_openapi_document_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_text("{}\n")
    result = await runwire("openapi", "--check", "--path", "openapi.json", cwd=tmp_path)
    assert result.code == 1
    assert "run: runwire openapi" in result.err
