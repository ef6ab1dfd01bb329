"""`runwire runs`: lists, single runs, steps, streams, cancelling and deleting, as text and as JSON."""

import asyncio
import json
import re
from pathlib import Path
from typing import cast

import pytest

from tests.cli.command import Result, runwire
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

UNKNOWN = "00000000-0000-7000-8000-000000000000"


async def cli(server: RunwireServer, folder: Path, *args: str, **env: str) -> Result:
    return await runwire(*args, cwd=folder, env={"RUNWIRE_URL": server.url, **env})


async def finished(server: RunwireServer, agent: str = "demo", asked: object = "What is 2+3?") -> dict[str, object]:
    async with server.client(None) as client:
        answer = await client.post("/runs/wait", json={"agent": agent, "input": asked, "metadata": {"of": agent}})
        return cast("dict[str, object]", answer.json())


async def slow(server: RunwireServer) -> str:
    """The id of a run that does not end by itself."""
    async with server.client(None) as client:
        return (await client.post("/runs", json={"agent": "slow", "input": "x"})).json()["id"]


async def cancel(server: RunwireServer, run_id: str) -> None:
    async with server.client(None) as client:
        await client.post(f"/runs/{run_id}/cancel?wait=true")


async def test_a_list_in_a_pipe_has_whole_ids_and_whole_inputs(demo_server: RunwireServer, tmp_path: Path) -> None:
    run = await finished(demo_server, asked="a long question " * 10)
    result = await cli(demo_server, tmp_path, "runs", "ls", COLUMNS="40")
    assert (result.code, result.err) == (0, "")
    head, *rows = result.out.splitlines()
    assert re.split(r"  +", head) == ["ID", "STATUS", "AGENT", "CREATED (UTC)", "TOOK", "INPUT"]
    row = next(row for row in rows if row.startswith(str(run["id"])))
    assert row.endswith("  " + ("a long question " * 10).strip())
    assert all(line == line.rstrip() for line in result.out.splitlines())


async def test_a_list_as_json_is_one_run_a_line_as_the_server_tells_it(
    demo_server: RunwireServer, tmp_path: Path
) -> None:
    run = await finished(demo_server)
    result = await cli(demo_server, tmp_path, "runs", "ls", "--json", "--agent", "demo", "--limit", "1")
    assert result.code == 0
    assert [json.loads(line) for line in result.out.splitlines()] == [run]


async def test_a_list_is_filtered(demo_server: RunwireServer, tmp_path: Path) -> None:
    run = await finished(demo_server, "broken")
    for given in (
        ("--status", "error"), ("--agent", "broken"), ("--metadata", "of=broken"), ("--thread", str(run["thread_id"])),
    ):  # fmt: skip
        result = await cli(demo_server, tmp_path, "runs", "ls", "--json", *given)
        assert str(run["id"]) in [event["id"] for event in result.events]
        assert {event["agent"] for event in result.events} == {"broken"}


async def test_all_of_a_list_goes_beyond_a_page(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path, keys="", env={"RUNWIRE_PLUGINS": ""}) as server:
        body = {
            "agent": {"model": {"provider": "scripted", "script": [{"content": "x"}]}},
            "input": "x",
        }
        async with server.client(None) as client:
            await asyncio.gather(*(client.post("/runs/wait", json=body) for _ in range(103)))
        every = await cli(server, tmp_path, "runs", "ls", "--all", "--json")
        some = await cli(server, tmp_path, "runs", "ls", "--limit", "101", "--json")
    assert len({event["id"] for event in every.events}) == 103
    assert [event["id"] for event in some.events] == [event["id"] for event in every.events][:101]


async def test_a_filter_that_the_server_does_not_have_is_refused(demo_server: RunwireServer, tmp_path: Path) -> None:
    result = await cli(demo_server, tmp_path, "runs", "ls", "--status", "sleeping")
    assert result.code == 3
    assert "  /query/status: " in result.err
    assert "  request: " in result.err


async def test_a_run_is_shown_with_its_steps(demo_server: RunwireServer, tmp_path: Path) -> None:
    run = await finished(demo_server)
    result = await cli(demo_server, tmp_path, "runs", "show", str(run["id"]), "--steps")
    assert (result.code, result.err) == (0, "")
    fields = dict(re.split(r"  +", line, maxsplit=1) for line in result.out.split("\n\n")[0].splitlines())
    assert fields["id"] == run["id"]
    assert (fields["status"], fields["stop reason"], fields["agent"]) == ("success", "finish", "demo")
    assert fields["output"] == "[demo model] The calculator says 5."
    assert re.search(r'^1 +success +calculator +[\d.]+ ms +\{"expression": "2\+3"\} +5$', result.out, re.MULTILINE)


async def test_a_run_as_json_is_one_document(demo_server: RunwireServer, tmp_path: Path) -> None:
    run = await finished(demo_server)
    plain = await cli(demo_server, tmp_path, "runs", "show", str(run["id"]), "--json")
    assert json.loads(plain.out) == run
    with_steps = await cli(demo_server, tmp_path, "runs", "show", str(run["id"]), "--json", "--steps")
    shown = json.loads(with_steps.out)
    assert [step["status"] for step in shown.pop("steps")] == ["success"]
    assert shown == run


async def test_a_failed_run_shows_why(demo_server: RunwireServer, tmp_path: Path) -> None:
    run = await finished(demo_server, "broken")
    result = await cli(demo_server, tmp_path, "runs", "show", str(run["id"]))
    assert result.code == 0
    assert "(model_auth)" in result.out


async def test_steps_are_listed_and_filtered(demo_server: RunwireServer, tmp_path: Path) -> None:
    run = await finished(demo_server, asked="What is 2+3, and how long is 'hello'?")
    every = await cli(demo_server, tmp_path, "runs", "steps", str(run["id"]), "--json")
    assert [step["step"] for step in every.events] == [1, 2]
    one = await cli(demo_server, tmp_path, "runs", "steps", str(run["id"]), "--json", "--tool", "text_length")
    assert [step["step"] for step in one.events] == [2]
    none = await cli(demo_server, tmp_path, "runs", "steps", str(run["id"]), "--status", "error")
    assert (none.code, none.out) == (0, "")


async def test_a_step_is_shown_with_its_chain_its_attempts_and_its_envelope(
    demo_server: RunwireServer, tmp_path: Path
) -> None:
    run = await finished(demo_server)
    result = await cli(demo_server, tmp_path, "runs", "steps", str(run["id"]), "1")
    assert (result.code, result.err) == (0, "")
    stages = re.findall(r"^(intent|validation|authorization|execution|state_update) +(\w+)", result.out, re.MULTILINE)
    assert stages == [
        ("intent", "ok"), ("validation", "ok"), ("authorization", "ok"), ("execution", "success"),
        ("state_update", "recorded"),
    ]  # fmt: skip
    assert re.search(r"^ATTEMPT +OUTCOME", result.out, re.MULTILINE)
    assert '"ok": true' in result.out
    as_json = await cli(demo_server, tmp_path, "runs", "steps", str(run["id"]), "1", "--json")
    assert json.loads(as_json.out)["envelope"]["data"] == 5


async def test_a_stream_shows_a_finished_run_again(demo_server: RunwireServer, tmp_path: Path) -> None:
    run = await finished(demo_server)
    whole = await cli(demo_server, tmp_path, "runs", "stream", str(run["id"]), "--json")
    assert whole.code == 0
    assert [event["id"] for event in whole.events] == list(range(1, len(whole.events) + 1))
    rest = await cli(demo_server, tmp_path, "runs", "stream", str(run["id"]), "--json", "--after", "3")
    assert rest.events == whole.events[3:]


async def test_a_stream_ends_with_the_exit_code_of_its_run(demo_server: RunwireServer, tmp_path: Path) -> None:
    failed, cancelled = await finished(demo_server, "broken"), await slow(demo_server)
    await cancel(demo_server, cancelled)
    assert (await cli(demo_server, tmp_path, "runs", "stream", str(failed["id"]))).code == 1
    assert (await cli(demo_server, tmp_path, "runs", "stream", cancelled)).code == 4
    # nothing is left to be told, and still the code is the run's
    nothing = await cli(demo_server, tmp_path, "runs", "stream", "--tail", str(failed["id"]))
    assert nothing.code == 1
    assert nothing.out.startswith("[error, error; run ")
    assert (await cli(demo_server, tmp_path, "runs", "stream", "--tail", "--json", str(failed["id"]))).out == ""


async def test_a_run_is_cancelled_once(demo_server: RunwireServer, tmp_path: Path) -> None:
    run_id = await slow(demo_server)
    first = await cli(demo_server, tmp_path, "runs", "cancel", run_id, "--wait")
    assert (first.code, first.out) == (0, f"cancelled {run_id}\n")
    done = await finished(demo_server)
    late = await cli(demo_server, tmp_path, "runs", "cancel", str(done["id"]))
    assert (late.code, late.err) == (1, "runwire: The run had ended already: success.\n")


async def test_runs_are_deleted_and_what_cannot_be_is_told(demo_server: RunwireServer, tmp_path: Path) -> None:
    run, active = await finished(demo_server), await slow(demo_server)
    result = await cli(demo_server, tmp_path, "runs", "rm", active, UNKNOWN, str(run["id"]))
    assert result.code == 1
    assert result.out == f"deleted {run['id']}\n"
    assert "(run_active)" in result.err
    assert "runwire runs cancel" in result.err
    assert "(run_not_found)" in result.err
    await cancel(demo_server, active)
    again = await cli(demo_server, tmp_path, "runs", "rm", str(run["id"]))
    assert again.code == 5


@pytest.mark.parametrize(
    "args", [("show", UNKNOWN), ("steps", UNKNOWN), ("steps", UNKNOWN, "1"), ("stream", UNKNOWN), ("cancel", UNKNOWN)]
)  # fmt: skip
async def test_an_unknown_run_ends_with_code_5(
    args: tuple[str, ...], demo_server: RunwireServer, tmp_path: Path
) -> None:
    result = await cli(demo_server, tmp_path, "runs", *args)
    assert (result.code, result.out) == (5, "")
    assert result.err.startswith("runwire: ")
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "args",
    [
        ("runs", "show", ".."), ("runs", "show", "a/b"), ("runs", "show", ""), ("runs", "rm", "."), ("runs", "ls", "--limit", "0"),
        ("runs", "ls", "--metadata", "x"), ("runs", "stream", "x", "--after", "-1"), ("runs", "steps", "x", "y"),
        ("tools", "add"), ("tools", "invoke", "x", "[1]"), ("tools", "invoke", "x", "--arg", "x"), ("agents", "apply", "nowhere.json"),
        ("run",), ("run", "x", "--input-json", "{}"), ("run", "--input-json", "nonsense"), ("nonsense",),
    ],
)  # fmt: skip
async def test_wrong_usage_ends_with_code_2(args: tuple[str, ...], demo_server: RunwireServer, tmp_path: Path) -> None:
    result = await cli(demo_server, tmp_path, *args)
    assert (result.code, result.out) == (2, "")
    assert result.err
    assert "Traceback" not in result.err


async def test_markup_in_a_text_is_shown_as_it_is(demo_server: RunwireServer, tmp_path: Path) -> None:
    asked = "[red]not red[/red] [link=file:///x]x[/link] :smile: \x1b]0;title\x07\x1b[2Jend"
    run = await finished(demo_server, "demo", asked)
    shown = "[red]not red[/red] [link=file:///x]x[/link] :smile: end"
    for args in (("ls",), ("show", str(run["id"]))):
        result = await cli(demo_server, tmp_path, "runs", *args)
        assert shown in result.out
        assert "\x1b" not in result.out
    as_json = await cli(demo_server, tmp_path, "runs", "show", "--json", str(run["id"]))
    assert json.loads(as_json.out)["input"] == asked


async def test_json_stays_json_where_the_terminal_has_no_utf8(demo_server: RunwireServer, tmp_path: Path) -> None:
    run = await finished(demo_server, "escaping")
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    shown = await cli(demo_server, tmp_path, "runs", "show", "--json", str(run["id"]), **ascii_only)
    assert json.loads(shown.out) == run
    assert shown.out.isascii()
    events = await cli(demo_server, tmp_path, "runs", "stream", "--json", str(run["id"]), **ascii_only)
    told = "".join(
        str(cast("dict[str, dict[str, object]]", event["data"])["delta"]["text"])
        for event in events.events
        if event["event"] == "output"
    )
    assert "é" in told


async def test_a_run_posted_and_left_is_found_by_its_id(demo_server: RunwireServer, tmp_path: Path) -> None:
    first = await cli(demo_server, tmp_path, "run", "--detach", "What is 2+3?")
    assert (first.code, first.err) == (0, "")
    followed = await cli(demo_server, tmp_path, "runs", "stream", first.out.strip())
    assert followed.code == 0
    thread = json.loads((await cli(demo_server, tmp_path, "runs", "show", "--json", first.out.strip())).out)[
        "thread_id"
    ]
    more = await cli(demo_server, tmp_path, "run", "--detach", "--json", "--thread", thread, "And 3+4?")
    assert json.loads(more.out)["thread_id"] == thread


async def test_an_input_may_be_json(demo_server: RunwireServer, tmp_path: Path) -> None:
    messages = json.dumps({"messages": [{"role": "user", "content": "What is 2+3?"}]})
    result = await cli(demo_server, tmp_path, "run", "--input-json", messages)
    assert result.code == 0
    assert "The calculator says 5." in result.out
    listed = await cli(demo_server, tmp_path, "runs", "ls", "--limit", "1")
    assert listed.out.splitlines()[1].endswith("What is 2+3?")
