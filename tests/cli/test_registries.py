"""`runwire tools`, `agents`, `models` and `info`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.cli.command import Result, runwire
from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

PARAMETERS = {
    "type": "object",
    "required": ["a", "b"],
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
}
AGENT = {
    "name": "worker",
    "model": {"provider": "scripted", "script": [{"content": "done"}]},
    "tools": ["calculator"],
    "instructions": "Work.",
}


@pytest.fixture(scope="module")
def tool_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServer]:
    with ToolServer.start(tmp_path_factory.mktemp("tools")) as server:
        yield server


async def cli(server: RunwireServer, folder: Path, *args: str) -> Result:
    return await runwire(*args, cwd=folder, env={"RUNWIRE_URL": server.url})


def write(path: Path, value: object) -> str:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path.name


async def test_a_tool_is_registered_shown_called_replaced_and_deleted(
    demo_server: RunwireServer, tool_server: ToolServer, tmp_path: Path
) -> None:
    spec = {
        "name": "add", "description": "Add.", "effect": "pure", "parameters": PARAMETERS,
        "http": {"url": tool_server.url("/add")},
    }  # fmt: skip
    file = write(tmp_path / "add.json", spec)
    made = await cli(demo_server, tmp_path, "tools", "add", file, "--json")
    assert made.code == 0
    secret = json.loads(made.out)["signing_secret"]
    assert secret.startswith("whsec_")

    shown = await cli(demo_server, tmp_path, "tools", "show", "add")
    assert shown.code == 0
    assert secret not in shown.out
    listed = await cli(demo_server, tmp_path, "tools", "ls", "--json", "--source", "registered")
    assert [tool["name"] for tool in listed.events] == ["add"]

    called = await cli(demo_server, tmp_path, "tools", "invoke", "add", "--arg", "a=2", "--arg", "b=3")
    assert (called.code, called.out) == (0, "5\n")
    as_json = await cli(demo_server, tmp_path, "tools", "invoke", "add", '{"a": 2}', "--arg", "b=4", "--json")
    assert json.loads(as_json.out)["data"] == 6

    twice = await cli(demo_server, tmp_path, "tools", "add", file)
    assert twice.code == 3
    assert "(tool_exists)" in twice.err
    assert "--replace" in twice.err
    replaced = await cli(demo_server, tmp_path, "tools", "add", file, "--replace", "--description", "Sum.", "--json")
    assert (json.loads(replaced.out)["version"], json.loads(replaced.out)["description"]) == (2, "Sum.")

    gone = await cli(demo_server, tmp_path, "tools", "rm", "add")
    assert (gone.code, gone.out) == (0, "deleted add\n")
    assert (await cli(demo_server, tmp_path, "tools", "show", "add")).code == 5


async def test_a_tool_is_registered_from_options_alone(
    demo_server: RunwireServer, tool_server: ToolServer, tmp_path: Path
) -> None:
    schema = write(tmp_path / "schema.json", PARAMETERS)
    given = ("--name", "sum", "--call", tool_server.url("/add"), "--description", "Add.", "--effect", "read")
    made = await cli(demo_server, tmp_path, "tools", "add", *given, "--parameters", schema)
    assert made.code == 0
    assert "signing secret     whsec_" in made.out or "whsec_" in made.out
    tool = json.loads((await cli(demo_server, tmp_path, "tools", "show", "sum", "--json")).out)
    assert (tool["effect"], tool["parameters"]) == ("read", PARAMETERS)
    await cli(demo_server, tmp_path, "tools", "rm", "sum")


async def test_a_wrong_tool_is_refused_with_its_places(demo_server: RunwireServer, tmp_path: Path) -> None:
    file = write(tmp_path / "wrong.json", {"name": "wrong", "http": {"url": "ftp://x"}, "effect": "none", "odd": 1})
    result = await cli(demo_server, tmp_path, "tools", "add", file)
    assert (result.code, result.out) == (3, "")
    assert "  /effect: " in result.err
    assert "  /odd: " in result.err


async def test_a_call_that_fails_ends_with_code_1(demo_server: RunwireServer, tmp_path: Path) -> None:
    result = await cli(demo_server, tmp_path, "tools", "invoke", "calculator", "--arg", 'expression="1/0"')
    assert result.code == 1
    assert result.out.startswith("status ")
    as_json = await cli(demo_server, tmp_path, "tools", "invoke", "calculator", "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out)["error"]["code"] == "invalid_arguments"


async def test_a_plugin_cannot_be_deleted(demo_server: RunwireServer, tmp_path: Path) -> None:
    result = await cli(demo_server, tmp_path, "tools", "rm", "calculator", "nothing")
    assert result.code == 1
    assert "(plugin_tool)" in result.err
    assert "(tool_not_found)" in result.err


async def test_applying_agents_creates_then_leaves_them_then_replaces_what_differs(
    demo_server: RunwireServer, tmp_path: Path
) -> None:
    other = {**AGENT, "name": "helper"}
    file = write(tmp_path / "agents.json", [AGENT, other])
    first = await cli(demo_server, tmp_path, "agents", "apply", file)
    assert (first.code, first.out) == (0, "created worker (version 1)\ncreated helper (version 1)\n")
    again = await cli(demo_server, tmp_path, "agents", "apply", file)
    assert again.out == "unchanged worker (version 1)\nunchanged helper (version 1)\n"
    write(tmp_path / "agents.json", [{**AGENT, "max_iterations": 3}, other])
    changed = await cli(demo_server, tmp_path, "agents", "apply", file, "--json")
    told = [(event["result"], cast("dict[str, object]", event["agent"])["version"]) for event in changed.events]
    assert told == [("replaced", 2), ("unchanged", 1)]
    shown = await cli(demo_server, tmp_path, "agents", "show", "worker", "--json")
    assert json.loads(shown.out)["max_iterations"] == 3
    gone = await cli(demo_server, tmp_path, "agents", "rm", "worker", "helper", "nobody")
    assert gone.code == 5
    assert gone.out == "deleted worker\ndeleted helper\n"


@pytest.mark.parametrize(
    "change",
    [
        {"model": "demo:demo"}, {"tools": []}, {"tools": ["text_length"]}, {"instructions": None}, {"description": "x"},
        {"limits": {"max_tool_calls": 1}}, {"handle_tool_errors": False},
        {"middleware": [{"name": "guardrail", "config": {"max_length": 9}}]},
        {"model": {"provider": "scripted", "script": [{"content": "done"}], "repeat": True}},
    ],
    ids=str,
)  # fmt: skip
async def test_no_change_of_an_agent_is_overlooked(
    change: dict[str, object], demo_server: RunwireServer, tmp_path: Path
) -> None:
    file = write(tmp_path / "agent.json", AGENT)
    await cli(demo_server, tmp_path, "agents", "apply", file)
    write(tmp_path / "agent.json", {**AGENT, **change})
    changed = await cli(demo_server, tmp_path, "agents", "apply", file)
    assert changed.out.startswith("replaced worker ")
    same = await cli(demo_server, tmp_path, "agents", "apply", file)
    assert same.out.startswith("unchanged worker ")


async def test_an_agent_may_be_toml(demo_server: RunwireServer, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('name = "plain"\nmodel = "demo:demo"\ntools = ["calculator"]\n', encoding="utf-8")
    (tmp_path / "b.toml").write_text('[[agents]]\nname = "plain"\nmodel = "demo:demo"\ntools = []\n', encoding="utf-8")
    assert (await cli(demo_server, tmp_path, "agents", "apply", "a.toml")).out == "created plain (version 1)\n"
    assert (await cli(demo_server, tmp_path, "agents", "apply", "b.toml")).out == "replaced plain (version 2)\n"
    await cli(demo_server, tmp_path, "agents", "rm", "plain")


async def test_a_wrong_agent_is_refused_with_its_places(demo_server: RunwireServer, tmp_path: Path) -> None:
    file = write(tmp_path / "agent.json", {"name": "odd", "model": "demo:demo", "nonsense": 1})
    result = await cli(demo_server, tmp_path, "agents", "apply", file)
    assert result.code == 3
    assert "The agent odd was refused:" in result.err
    assert "  /nonsense: " in result.err


async def test_agents_models_and_the_server_are_told(demo_server: RunwireServer, tmp_path: Path) -> None:
    agents = await cli(demo_server, tmp_path, "agents", "ls")
    assert agents.code == 0
    assert any(line.startswith("demo ") and "calculator" in line for line in agents.out.splitlines())
    info = await cli(demo_server, tmp_path, "info", "--json")
    assert json.loads(info.out)["name"] == "runwire"
    shown = await cli(demo_server, tmp_path, "info")
    assert f"version          {json.loads(info.out)['version']}\n" in shown.out
    assert demo_server.url in shown.out


async def test_a_server_without_named_models_says_so_beside_the_output(
    demo_server: RunwireServer, tmp_path: Path
) -> None:
    listed = await cli(demo_server, tmp_path, "models", "ls")
    assert (listed.code, listed.out) == (0, "")
    assert listed.err.startswith("runwire: No model has a name here.")
    as_json = await cli(demo_server, tmp_path, "models", "ls", "--json")
    assert (as_json.code, as_json.out, as_json.err) == (0, "", "")


async def test_models_are_listed_without_their_keys(tmp_path: Path) -> None:
    models = json.dumps(
        {"fast": {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1", "api_key_env": "FAST_KEY"}}
    )
    env = {"RUNWIRE_PLUGINS": "", "RUNWIRE_MODELS": models, "FAST_KEY": "sk-hidden-hidden-hidden"}
    with RunwireServer.open(tmp_path, keys="", env=env) as server:
        listed = await cli(server, tmp_path, "models", "ls")
        as_json = await cli(server, tmp_path, "models", "ls", "--json")
    assert (listed.code, listed.err) == (0, "")
    assert any(line.startswith("fast ") for line in listed.out.splitlines())
    assert [model["name"] for model in as_json.events] == ["fast"]
    assert "sk-hidden" not in listed.out + as_json.out
