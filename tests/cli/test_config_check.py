"""`runwire config check`: what is in force and where it came from, and the same refusals as `serve`."""

import json
import os
import re
import signal
from pathlib import Path
from typing import cast

import pytest

from app.cli.config_check import Setting, examine, lines, redacted
from app.core.errors import RunwireError
from app.settings import Settings, SettingsError, load, variable_of
from app.tools.plugins import PluginError
from app.wiring import build
from tests.cli.command import Result, runwire
from tests.support.bodies import tool_spec
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

KEY = "test-key-0123456789"
SECRET = "a secret of sixteen characters"


async def check(folder: Path, *args: str, **env: str) -> Result:
    return await runwire("config", "check", *args, cwd=folder, env=env)


def settings_of(result: Result) -> dict[str, tuple[object, str]]:
    """Name → (value, source)."""
    items = cast("list[dict[str, str]]", json.loads(result.out)["settings"])
    return {item["name"]: (item["value"], item["source"]) for item in items}


async def test_every_setting_is_shown_with_where_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "runwire.toml").write_text('port = 9000\nlog_level = "debug"\nmax_queued_runs = 7\n')
    (tmp_path / "key").write_text(SECRET + "\n")
    result = await check(
        tmp_path, "--json", "--port", "0",
        RUNWIRE_LOG_LEVEL="warning", RUNWIRE_SECRET_KEY_FILE=str(tmp_path / "key"), RUNWIRE_SECRET_KEY="overridden",
    )  # fmt: skip
    assert result.code == 0, result.err
    shown = settings_of(result)
    assert shown.keys() == {variable_of(name) for name in Settings.model_fields}
    assert shown["RUNWIRE_PORT"] == (0, "command line")
    assert shown["RUNWIRE_LOG_LEVEL"] == ("warning", "environment")
    assert shown["RUNWIRE_MAX_QUEUED_RUNS"] == (7, "runwire.toml")
    assert shown["RUNWIRE_SECRET_KEY"] == ("set", "RUNWIRE_SECRET_KEY_FILE")
    assert shown["RUNWIRE_RETENTION_DAYS"] == (30.0, "default")
    assert shown["RUNWIRE_API_KEYS"] == ("not set", "default")
    assert json.loads(result.out) == {**json.loads(result.out), "ok": True, "warnings": [], "errors": []}


async def test_no_secret_is_ever_shown(tmp_path: Path) -> None:
    env = {
        "RUNWIRE_API_KEYS": f"{KEY}:acme",
        "RUNWIRE_SECRET_KEY": SECRET,
        "RUNWIRE_DATABASE_URL": "postgresql://app:hunter2@db.example/runwire",
        "RUNWIRE_MODELS": '{"fast": {"provider": "openai", "model": "m", "base_url": "https://h/v1?tok=hunter2"}}',
        "OPENAI_API_KEY": "sk-hunter2-hunter2",
        "OPENAI_BASE_URL": "https://me:hunter2@models.example/v1?api_key=hunter2",
        "ANTHROPIC_API_KEY": "hunter2-hunter2",
    }
    for args in ((), ("--json",)):
        result = await check(tmp_path, *args, **env)
        for secret in (KEY, SECRET, "hunter2"):
            assert secret not in result.out + result.err
        assert "postgresql://app:[redacted]@db.example/runwire" in result.out


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////data/runwire.db", "sqlite:////data/runwire.db"),
        ("postgresql://app@db/runwire", "postgresql://app@db/runwire"),
        ("postgresql://app:p@ss/w:rd@db/runwire", "postgresql://app:[redacted]@db/runwire"),
        ("postgresql://db/runwire?user=app&password=x", "postgresql://db/runwire?user=app&password=[redacted]"),
        ("https://token@models.example/v1", "https://[redacted]@models.example/v1"),
        ("https://models.example/v1?api-key=x&v=1", "https://models.example/v1?api-key=[redacted]&v=1"),
        ("host=db password=x", "[redacted]"),
        ("postgresql:/app:x@db", "[redacted]"),
    ],
)
def test_addresses_are_shown_without_their_passwords(url: str, shown: str) -> None:
    assert redacted(url) == shown


async def test_unknown_names_are_warnings_with_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "runwire.toml").write_text("prot = 9000\n")
    result = await check(tmp_path, RUNWIRE_RETENTION_DAY="3", RUNWIRE_NOTHING_LIKE_THAT_AT_ALL="1")
    assert result.code == 0
    assert "RUNWIRE_RETENTION_DAY is no setting of this version and is not used. Did you mean RUNWIRE_RETENTION_DAYS?" in result.err  # fmt: skip
    assert "prot is no setting of this version and is not used. Did you mean port?" in result.err
    assert "RUNWIRE_NOTHING_LIKE_THAT_AT_ALL is no setting of this version and is not used.\n" in result.err
    strict = await check(tmp_path, "--strict")
    assert strict.code == 1
    assert (await check(tmp_path.parent, "--strict")).code == 0


async def test_serve_gives_the_same_warning(tmp_path: Path) -> None:
    result = await runwire("serve", cwd=tmp_path, env={"RUNWIRE_PROT": "1", "RUNWIRE_DATABASE_URL": "mysql://x"})
    assert "RUNWIRE_PROT is no setting of this version and is not used. Did you mean RUNWIRE_PORT?" in result.err


async def test_every_reason_against_production_is_told(tmp_path: Path) -> None:
    result = await check(tmp_path, "--demo", RUNWIRE_ENV="production", RUNWIRE_HOST="0.0.0.0")
    assert result.code == 2
    for named in ("on 0.0.0.0", "needs RUNWIRE_API_KEYS", "RUNWIRE_SECRET_KEY", "demo"):
        assert named in result.err
    document = json.loads(
        (await check(tmp_path, "--demo", "--json", RUNWIRE_ENV="production", RUNWIRE_HOST="0.0.0.0")).out
    )
    assert document["ok"] is False
    assert len(document["errors"]) == 4


@pytest.mark.parametrize(
    "env",
    [
        {"RUNWIRE_PORT": "99999"},
        {"RUNWIRE_RETENTION_DAYS": "0"},
        {"RUNWIRE_RETENTION_DAYS": "soon"},
        {"RUNWIRE_API_KEYS": "short:acme"},
        {"RUNWIRE_API_KEYS_FILE": "/no/such/file"},
        {"RUNWIRE_CONFIG": "/no/such/file"},
        {"RUNWIRE_SECRET_KEY": "short"},
        {"RUNWIRE_PLUGINS": "there.is.no.such.module"},
        {"RUNWIRE_DATABASE_URL": "mysql://somewhere"},
        {"RUNWIRE_DATABASE_URL": "postgresql://u:p%zz@host/name"},
        {"RUNWIRE_EGRESS_ALLOW": "10.0.0.0/99"},
        {"RUNWIRE_MODELS": "{not json"},
        {"RUNWIRE_MODELS": '{"fast": {"provider": "nobody", "model": "m"}}'},
        {"RUNWIRE_PUBLIC_URL": "runwire.example/x?y"},
    ],
)
def test_what_serve_refuses_is_refused_in_the_same_words(env: dict[str, str]) -> None:
    with pytest.raises((SettingsError, PluginError, RunwireError)) as failure:
        build(load(env))
    assert examine(env).errors == (str(failure.value),)


async def test_what_is_unusable_ends_with_the_code_of_serve(tmp_path: Path) -> None:
    env = {"RUNWIRE_EGRESS_ALLOW": "10.0.0.0/99"}
    checked, served = await check(tmp_path, **env), await runwire("serve", cwd=tmp_path, env=env)
    assert (checked.code, checked.err) == (served.code, served.err)
    assert checked.code == 2


BAD = {
    "RUNWIRE_ENV": ("prod", "it takes development or production"),
    "RUNWIRE_PORT": ("99999", "it takes a whole number from 0 to 65535"),
    "RUNWIRE_METRICS": ("maybe", "it takes true or false"),
    "RUNWIRE_LOG_LEVEL": ("loud", "it takes debug, info, warning or error"),
    "RUNWIRE_RETENTION_DAYS": ("0", "it takes a number of days above 0, or off"),
    "RUNWIRE_SHUTDOWN_GRACE_S": ("-1", "it takes a number from 0 on"),
    "RUNWIRE_MAX_CONNECTIONS": ("many", "it takes a whole number from 1 on"),
}


async def test_all_that_is_wrong_is_told_at_once_with_what_was_given_and_what_fits(tmp_path: Path) -> None:
    env = {name: value for name, (value, _) in BAD.items()} | {
        "RUNWIRE_API_KEYS": "short:acme",
        "RUNWIRE_EGRESS_ALLOW": "10.0.0.0/99",
        "RUNWIRE_CORS_ORIGINS": "x y",
        "RUNWIRE_PLUGINS": "there.is.no.such.module",
        "RUNWIRE_MODELS": "{not json",
        "RUNWIRE_SECRET_KEY": "short",
        "RUNWIRE_DATABASE_URL": "mysql://somewhere",
        "RUNWIRE_PROT": "1",
    }
    result = await check(tmp_path, **env)
    assert result.code == 2
    said = [line.removeprefix("runwire: ") for line in result.err.splitlines()]
    for name, (value, fits) in BAD.items():
        assert f"{name} cannot be '{value}' (environment): {fits}." in said
    for begin in (
        "RUNWIRE_API_KEYS cannot be used", "RUNWIRE_EGRESS_ALLOW cannot be used", "RUNWIRE_CORS_ORIGINS cannot be used",
        "RUNWIRE_MODELS cannot be used", "RUNWIRE_SECRET_KEY must have", "Plugin 'there.is.no.such.module'",
        "The database address must start", "warning: RUNWIRE_PROT is no setting",
    ):  # fmt: skip
        assert sum(line.startswith(begin) for line in said) == 1, begin
    assert len(said) == len(BAD) + 8
    assert re.search(r"^RUNWIRE_PORT +\(cannot be used\) +environment$", result.out, re.MULTILINE)
    assert re.search(r"^RUNWIRE_HOST +127.0.0.1 +default$", result.out, re.MULTILINE)
    served = await runwire("serve", cwd=tmp_path, env=env)
    assert served.code == 2
    assert [line for line in served.err.splitlines() if "warning" not in line] == [
        line for line in result.err.splitlines() if "warning" not in line
    ]


async def test_what_a_secret_was_set_to_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "runwire.toml").write_text('api_keys = 4711\nsecret_key = ["hunter2"]\nport = "hunter"\n')
    result = await check(
        tmp_path, RUNWIRE_PUBLIC_URL="ftp://me:hunter2@runwire.example", OPENAI_API_KEY_FILE="/no/file"
    )
    assert result.code == 2
    assert "hunter2" not in result.out + result.err
    assert "4711" not in result.out + result.err
    assert result.err.splitlines() == [
        "runwire: OPENAI_API_KEY_FILE cannot be read: No such file or directory.",
        "runwire: RUNWIRE_API_KEYS cannot be what it is set to (runwire.toml): it takes a text.",
        "runwire: RUNWIRE_PORT cannot be 'hunter' (runwire.toml): it takes a whole number from 0 to 65535.",
        "runwire: RUNWIRE_PUBLIC_URL cannot be what it is set to (environment): it takes an http or https address without a"
        " query, such as https://runwire.example.",
        "runwire: RUNWIRE_SECRET_KEY cannot be what it is set to (runwire.toml): it takes a text.",
    ]


async def test_an_option_stands_for_a_setting_that_has_a_fault(tmp_path: Path) -> None:
    assert (await check(tmp_path, "--port", "0", RUNWIRE_PORT="99999")).code == 0
    assert (await check(tmp_path, "--port", "99999")).code == 2


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/dev/null", "RUNWIRE_CONFIG names /dev/null, which is a device or a pipe, and no file of settings."),
        ("/usr", "RUNWIRE_CONFIG names /usr, which is a folder, and no file of settings."),
        ("/no/such/file", "RUNWIRE_CONFIG names /no/such/file, and there is no such file."),
        ("/dev/null/x", "RUNWIRE_CONFIG names /dev/null/x, and there is no such file."),
        ("bad.toml", "bad.toml cannot be read: "),
    ],
)
async def test_what_is_wrong_with_the_file_of_settings_is_told(tmp_path: Path, path: str, why: str) -> None:
    (tmp_path / "bad.toml").write_text("port = \n")
    checked = await check(tmp_path, RUNWIRE_CONFIG=path)
    served = await runwire("serve", cwd=tmp_path, env={"RUNWIRE_CONFIG": path})
    assert checked.err.startswith(f"runwire: {why}")
    assert (checked.code, checked.err) == (served.code, served.err)
    assert checked.code == 2


@pytest.mark.parametrize("value", ["off", "none", ""])
def test_runs_may_be_kept_for_ever(value: str) -> None:
    found = examine({"RUNWIRE_RETENTION_DAYS": value})
    assert Setting("RUNWIRE_RETENTION_DAYS", None, "environment") in found.settings
    assert any(re.match("RUNWIRE_RETENTION_DAYS +off +environment$", line) for line in lines(found))


async def test_nothing_is_made_or_connected_to(tmp_path: Path) -> None:
    env = {"RUNWIRE_API_KEYS": f"{KEY}:acme", "RUNWIRE_SECRET_KEY": SECRET}
    assert (await check(tmp_path, **env)).code == 0
    assert (await check(tmp_path, RUNWIRE_DATABASE_URL="postgresql://nobody@127.0.0.1:1/x", **env)).code == 0
    assert os.listdir(tmp_path) == []


async def test_a_plugin_that_hides_a_registered_tool_is_a_warning(tmp_path: Path) -> None:
    plugins = {"RUNWIRE_PLUGINS": "tests.e2e.plugin_tools"}
    with RunwireServer.open(tmp_path, keys="", env={"RUNWIRE_PLUGINS": ""}) as server:
        async with server.client(None) as client:
            for name in ("echo", "own_tool"):
                made = await client.post("/tools", json=tool_spec(name, "https://tools.example.com/x"))
                assert made.status_code == 201, made.text
        running = await check(tmp_path, "--strict", **plugins)
        server.kill(signal.SIGTERM)
    before = files_of(tmp_path / ".runwire")
    stopped = await check(tmp_path, "--strict", **plugins)
    for result in (running, stopped):
        assert result.code == 1
        assert "warning: The plugin tool echo serves in the place of a registered tool of that name." in result.err
        assert "own_tool" not in result.err
    assert files_of(tmp_path / ".runwire") == before
    assert (await check(tmp_path, "--strict")).code == 0


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_postgres_without_a_secret_key_is_a_warning(tmp_path: Path) -> None:
    result = await check(tmp_path, RUNWIRE_DATABASE_URL="postgresql://db/runwire")
    assert result.code == 0
    assert "RUNWIRE_SECRET_KEY" in result.err
