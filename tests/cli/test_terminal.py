"""What a person at a terminal sees: the live view of a run, Ctrl-C once and twice, narrow and plain terminals."""

import re
from pathlib import Path

import pytest

from tests.cli.command import runwire
from tests.cli.terminal import CTRL_C, Terminal, terminal
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

SAID_OF_CTRL_C = "press Ctrl-C again to cancel the run"


def run_id_of(shown: Terminal) -> str:
    found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", shown.text)
    assert found is not None
    return found[0]


async def status_of(server: RunwireServer, run_id: str) -> str:
    async with server.client(None) as client:
        return (await client.get(f"/runs/{run_id}")).json()["status"]


async def cancel(server: RunwireServer, run_id: str) -> None:
    async with server.client(None) as client:
        await client.post(f"/runs/{run_id}/cancel?wait=true")


async def test_a_run_shows_its_calls_with_marks_and_durations(demo_server: RunwireServer, tmp_path: Path) -> None:
    env = {"RUNWIRE_URL": demo_server.url}
    async with terminal("run", "What is 2+3?", cwd=tmp_path, env=env) as shown:
        assert await shown.code() == 0
    assert '→ calculator {"expression": "2+3"}\n' in shown.text
    assert re.search(r"✓ calculator 5  \([\d.]+ ms\)\n", shown.text)
    assert "[demo model] The calculator says 5.\n[success, finish: " in shown.text
    assert b"\x1b[32m" in shown.raw


async def test_a_run_under_way_has_a_line_that_moves_and_goes_away(demo_server: RunwireServer, tmp_path: Path) -> None:
    env = {"RUNWIRE_URL": demo_server.url}
    async with terminal("run", "--agent", "slow", "x", cwd=tmp_path, env=env) as shown:
        await shown.until("2 s")
        assert b"\x1b[?25l" in shown.raw  # the cursor is hidden
        await cancel(demo_server, run_id_of(shown))
        assert await shown.code() == 4
    assert shown.raw.rindex(b"\x1b[?25h") > shown.raw.rindex(b"\x1b[?25l")
    assert shown.text.rstrip().splitlines()[-1].startswith("[cancelled, cancelled: ")


async def test_ctrl_c_once_leaves_the_run_and_says_how_to_come_back(demo_server: RunwireServer, tmp_path: Path) -> None:
    env = {"RUNWIRE_URL": demo_server.url}
    async with terminal("run", "--agent", "slow", "x", cwd=tmp_path, env=env) as shown:
        await shown.until("run 0")
        shown.press(CTRL_C)
        await shown.until(SAID_OF_CTRL_C)
        assert await shown.code() == 130
    run_id = run_id_of(shown)
    assert f"follow it: runwire runs stream {run_id} --after 1\n" in shown.text
    assert f"stop it:   runwire runs cancel {run_id}\n" in shown.text
    assert b"\x1b[?25h" in shown.raw
    assert await status_of(demo_server, run_id) == "running"
    await cancel(demo_server, run_id)


async def test_ctrl_c_twice_cancels_the_run(demo_server: RunwireServer, tmp_path: Path) -> None:
    env = {"RUNWIRE_URL": demo_server.url}
    async with terminal("run", "--agent", "slow", "x", cwd=tmp_path, env=env) as shown:
        await shown.until("run 0")
        shown.press(CTRL_C)
        await shown.until(SAID_OF_CTRL_C)
        shown.press(CTRL_C)
        assert await shown.code() == 4
    assert "The run is cancelled." in shown.text
    assert "Traceback" not in shown.text
    assert await status_of(demo_server, run_id_of(shown)) == "cancelled"


async def test_a_run_that_another_command_follows_is_left_and_cancelled_the_same_way(
    demo_server: RunwireServer, tmp_path: Path
) -> None:
    env = {"RUNWIRE_URL": demo_server.url}
    posted = await runwire("run", "--agent", "slow", "--detach", "x", cwd=tmp_path, env=env)
    run_id = posted.out.strip()
    async with terminal("runs", "stream", run_id, cwd=tmp_path, env=env) as shown:
        await shown.until(f"run {run_id}")
        shown.press(CTRL_C)
        await shown.until(SAID_OF_CTRL_C)
        shown.press(CTRL_C)
        assert await shown.code() == 4
    assert await status_of(demo_server, run_id) == "cancelled"


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
async def test_a_terminal_that_can_do_little_still_shows_a_run(
    env: dict[str, str], demo_server: RunwireServer, tmp_path: Path
) -> None:
    given = {"RUNWIRE_URL": demo_server.url, **env}
    async with terminal("run", "--agent", "escaping", "x", cwd=tmp_path, env=given) as shown:
        assert await shown.code() == 0
    assert "Traceback" not in shown.text
    assert " end" in shown.text
    if "TERM" in env:
        assert b"\x1b" not in shown.raw
    else:
        assert shown.raw.isascii()


async def test_no_color_is_honoured(demo_server: RunwireServer, tmp_path: Path) -> None:
    env = {"RUNWIRE_URL": demo_server.url, "NO_COLOR": "1"}
    async with terminal("run", "What is 2+3?", cwd=tmp_path, env=env) as shown:
        assert await shown.code() == 0
    colours = re.findall(rb"\x1b\[([\d;]*)m", shown.raw)
    assert [code for code in colours if re.search(rb"(^|;)(3\d|4\d|9\d|38|48)(;|$)", code)] == []


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
async def test_a_list_keeps_ids_whole_and_lines_short_on_a_terminal_of_any_width(
    columns: int, demo_server: RunwireServer, tmp_path: Path
) -> None:
    env = {"RUNWIRE_URL": demo_server.url}
    posted = await runwire("run", "--detach", "What is 2+3?" + " and more" * 40, cwd=tmp_path, env=env)
    async with terminal("runs", "ls", cwd=tmp_path, env=env, columns=columns) as shown:
        assert await shown.code() == 0
    assert posted.out.strip() in shown.text
    assert all(len(line) <= max(columns, 36) for line in shown.text.splitlines())
    if columns < 46:
        assert f"{posted.out.strip()}\n  " in shown.text
    else:
        assert re.search(r"^ID +STATUS", shown.text, re.MULTILINE)
        assert ("INPUT" in shown.text) == (columns >= 80)
