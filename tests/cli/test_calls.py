"""Tools are switched off and on, their secrets rotated, and their calls looked at, from the command line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Result, runwire
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def tool_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServer]:
    with ToolServer.start(tmp_path_factory.mktemp("tools")) as server:
        yield server


async def cli(server: RunwireServer, folder: Path, *args: str) -> Result:
    return await runwire(*args, cwd=folder, env={"RUNWIRE_URL": server.url})


async def test_a_tool_is_switched_off_and_on(demo_server: RunwireServer, tmp_path: Path) -> None:
    off = await cli(demo_server, tmp_path, "tools", "disable", "calculator", "--reason", "it is wrong")
    assert (off.code, off.out) == (0, "disabled calculator\n")
    denied = await cli(demo_server, tmp_path, "tools", "invoke", "calculator", "--arg", "expression=1+1")
    assert denied.code == 1
    assert "(tool_disabled)" in denied.out
    on = await cli(demo_server, tmp_path, "tools", "enable", "calculator", "--json")
    assert on.code == 0
    assert json.loads(on.out)["history"][0]["reason"] == "it is wrong"
    called = await cli(demo_server, tmp_path, "tools", "invoke", "calculator", "--arg", "expression=1+1")
    assert (called.code, called.out) == (0, "2\n")
    assert (await cli(demo_server, tmp_path, "tools", "disable", "nothing")).code == 5


async def test_all_tools_are_switched_off_and_on(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path, keys="", env={"RUNWIRE_PLUGINS": ""}, args=("--demo",)) as server:
        off = await cli(server, tmp_path, "tools", "disable", "--all")
        assert (off.code, off.out) == (0, "disabled all tool calls\n")
        assert (await cli(server, tmp_path, "tools", "invoke", "current_time")).code == 1
        on = await cli(server, tmp_path, "tools", "enable", "--all")
        assert (on.code, on.out) == (0, "enabled all tool calls\n")
        assert (await cli(server, tmp_path, "tools", "invoke", "current_time")).code == 0


@pytest.mark.parametrize("args", [(), ("calculator", "--all"), ("..",)])
async def test_one_tool_or_all_of_them_is_named(
    demo_server: RunwireServer, tmp_path: Path, args: tuple[str, ...]
) -> None:
    for command in ("disable", "enable"):
        result = await cli(demo_server, tmp_path, "tools", command, *args)
        assert (result.code, result.out) == (2, "")


async def test_a_secret_is_rotated_and_shown_once(
    demo_server: RunwireServer, tool_server: ToolServer, tmp_path: Path
) -> None:
    async with demo_server.client(None) as client:
        made = (await client.post("/tools", json=tool_spec("rotated", tool_server.url("/echo")))).json()
    rotated = await cli(demo_server, tmp_path, "tools", "rotate-secret", "rotated", "--json")
    secret = json.loads(rotated.out)["signing_secret"]
    assert secret.startswith("whsec_")
    assert secret != made["signing_secret"]
    again = await cli(demo_server, tmp_path, "tools", "rotate-secret", "rotated")
    assert again.code == 0
    assert "whsec_" in again.out
    assert "(the secret is shown this once)" in again.out
    shown = await cli(demo_server, tmp_path, "tools", "show", "rotated")
    assert "whsec_" not in shown.out


async def test_calls_are_listed_and_shown(demo_server: RunwireServer, tmp_path: Path) -> None:
    script = scripted(calls(("calculator", {"expression": "2+3"}), ("nothing", {})), says("done"))
    async with demo_server.client(None) as client:
        run = (await client.post("/runs/wait", json=run_body(script, "calculator"))).json()
    listed = await cli(demo_server, tmp_path, "calls", "ls", "--run", run["id"])
    assert listed.code == 0
    assert [line.split()[1:3] for line in listed.out.splitlines()[1:]] == [
        ["error", "nothing"], ["success", "calculator"],
    ]  # fmt: skip
    (good,) = (
        await cli(demo_server, tmp_path, "calls", "ls", "--run", run["id"], "--outcome", "success", "--json")
    ).events
    none = await cli(demo_server, tmp_path, "calls", "ls", "--until", "2020-01-31", "--json")
    assert (none.code, none.out) == (0, "")
    since = await cli(
        demo_server, tmp_path, "calls", "ls", "--run", run["id"], "--since", "2020-01-31T12:00:00Z", "--json"
    )
    assert len(since.events) == 2

    shown = await cli(demo_server, tmp_path, "calls", "show", str(good["tool_call_id"]))
    assert shown.code == 0
    assert f"call             {good['tool_call_id']}\n" in shown.out
    assert "calculator (version " in shown.out
    assert "\nSTAGE" in shown.out
    as_json = await cli(demo_server, tmp_path, "calls", "show", str(good["tool_call_id"]), "--json")
    assert json.loads(as_json.out)["observation"] == 5
    assert (await cli(demo_server, tmp_path, "calls", "show", "nothing")).code == 5
