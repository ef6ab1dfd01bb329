"""`runwire run` against a real server: what it shows, how it ends, how it takes up a stream that was cut."""

import asyncio
import json
import signal
import socket
from pathlib import Path
from typing import cast

import pytest

from tests.cli.command import TIMEOUT_S, Result, finish, runwire, start
from tests.cli.proxy import cutting_proxy
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

QUESTION = "What is 2+3, and how long is 'hello'?"


async def run(server: RunwireServer, folder: Path, *args: str, **env: str) -> Result:
    return await runwire("run", *args, cwd=folder, env={"RUNWIRE_URL": server.url, **env})


def whole(result: Result) -> None:
    """The events are complete: numbered without a gap, one `end`, last."""
    assert [event["id"] for event in result.events] == list(range(1, len(result.events) + 1))
    assert [event["event"] for event in result.events].count("end") == 1
    assert result.events[-1]["event"] == "end"


async def test_a_run_shows_its_actions_its_steps_and_its_answer(demo_server: RunwireServer, tmp_path: Path) -> None:
    result = await run(demo_server, tmp_path, QUESTION)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert '-> calculator {"expression": "2+3"}' in lines
    assert any(line.startswith("<- calculator 5  (") and line.endswith(" ms)") for line in lines)
    assert lines[-2] == "[demo model] The calculator says 5. The length is 5."
    assert lines[-1].startswith("[success, finish: 2 model calls, 2 tool calls, ")


async def test_a_structured_answer_is_shown_as_json(demo_server: RunwireServer, tmp_path: Path) -> None:
    result = await run(demo_server, tmp_path, "--agent", "structured", "hi")
    assert result.code == 0
    assert result.out.splitlines()[-2] == '{"sum":5}'
    run_id = result.out.split("run ")[-1].strip().rstrip("]")
    shown = await runwire("runs", "show", run_id, cwd=tmp_path, env={"RUNWIRE_URL": demo_server.url})
    assert any(line.split() == ["structured", '{"sum":', "5}"] for line in shown.out.splitlines()), shown.out


async def test_the_answer_is_shown_once(demo_server: RunwireServer, tmp_path: Path) -> None:
    result = await run(demo_server, tmp_path, QUESTION)
    assert result.out.count("The calculator says 5.") == 1


async def test_json_prints_each_event_as_a_line(demo_server: RunwireServer, tmp_path: Path) -> None:
    result = await run(demo_server, tmp_path, "--json", QUESTION)
    assert result.code == 0
    whole(result)
    assert {"run", "output", "usage", "action", "step", "finish", "end"} == {event["event"] for event in result.events}
    assert all(event.keys() == {"id", "event", "data"} for event in result.events)


async def test_an_inline_agent_is_made_of_model_and_tools(demo_server: RunwireServer, tmp_path: Path) -> None:
    args = ("--model", "demo:demo", "--tool", "calculator", "--instructions", "Be brief.", "--json", QUESTION)
    result = await run(demo_server, tmp_path, *args)
    actions = [event["data"] for event in result.events if event["event"] == "action"]
    assert [cast("dict[str, object]", action)["tool"] for action in actions] == ["calculator"]
    assert cast("dict[str, object]", result.events[0]["data"])["agent"] is None


async def test_a_run_that_fails_ends_with_code_1(demo_server: RunwireServer, tmp_path: Path) -> None:
    result = await run(demo_server, tmp_path, "--agent", "broken", "x")
    assert result.code == 1
    assert "I begin" in result.out
    assert "(model_auth)" in result.out
    assert "[error, error: " in result.out


@pytest.mark.parametrize(
    "args",
    [
        ("--agent", "demo", "--model", "demo:demo"),
        ("--tool", "x"),
        ("--instructions", "x"),
        ("--url", "127.0.0.1:8080"),
    ],
)
async def test_a_wrong_command_line_ends_with_code_2(args: tuple[str, ...], tmp_path: Path) -> None:
    result = await runwire("run", *args, "x", cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("runwire: ")


async def test_an_unreachable_server_ends_with_code_3(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = await runwire("run", "x", "--url", url, cwd=tmp_path)
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith(f"runwire: No answer from {url}: it cannot be reached")
    assert "runwire serve --demo" in result.err


async def test_a_refusal_prints_the_problem_and_its_place(demo_server: RunwireServer, tmp_path: Path) -> None:
    result = await run(demo_server, tmp_path, "--agent", "nobody", "x")
    assert (result.code, result.out) == (5, "")
    *told, request = result.err.splitlines()
    assert told == [
        "runwire: There is no agent `nobody`; register it with POST /agents. (unknown_agent)",
        "  /agent: unknown agent",
        "  See: runwire agents ls",
    ]
    assert request.startswith("  request: ")


async def test_metadata_is_kept_with_the_run(demo_server: RunwireServer, tmp_path: Path) -> None:
    posted = await run(
        demo_server, tmp_path, "--metadata", "ticket=T=1", "--metadata", "by=cli", "x", "--detach", "--json"
    )
    assert json.loads(posted.out)["metadata"] == {"ticket": "T=1", "by": "cli"}
    assert (await run(demo_server, tmp_path, "--metadata", "ticket", "x")).code == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\ndata: x\n\n", "not as a Runwire"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p/>", "with text/html, and not as a Runwire"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 12\r\n\r\n\x1b[31mnothing", "answered 404 Not Found, and not as a Runwire"),
        (b"HTTP/1.1 301 Moved\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", "answered 301"),
    ],
    ids=["foreign stream", "web page", "text", "redirect"],
)  # fmt: skip
async def test_another_kind_of_server_ends_with_code_3(answer: bytes, said: str, tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as other:
        url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
        result = await runwire("run", "x", "--url", url, cwd=tmp_path)
    assert (result.code, result.out) == (3, "")
    assert said in result.err
    assert "\x1b" not in result.err
    assert "Traceback" not in result.err


async def test_the_key_comes_from_the_environment(tmp_path: Path) -> None:
    key = "cli-key-0123456789"
    with RunwireServer.open(tmp_path, keys=f"{key}:default", env={"RUNWIRE_PLUGINS": ""}, args=("--demo",)) as server:
        args = ("--model", "demo:demo", "hello")
        with_key = await run(server, tmp_path, *args, RUNWIRE_API_KEY=key)
        without = await run(server, tmp_path, *args)
    assert with_key.code == 0
    assert without.code == 3
    assert "(unauthenticated)" in without.err
    assert key not in with_key.out + with_key.err


async def test_a_cut_stream_is_taken_up_again_without_loss_or_repeat(
    demo_server: RunwireServer, tmp_path: Path
) -> None:
    async with cutting_proxy(demo_server.url, [None, 6000, 9000]) as proxy:
        result = await runwire("run", "--url", proxy.url, "--agent", "talking", "--json", "x", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    whole(result)
    seen, first, *others = proxy.requests
    assert seen.startswith(b"GET /info ")
    assert first.startswith(b"POST /runs/stream ")
    assert len(others) == 2
    assert all(other.startswith(b"GET /runs/") and b"Last-Event-ID: " in other for other in others)


async def test_a_post_whose_answer_is_lost_makes_one_run(demo_server: RunwireServer, tmp_path: Path) -> None:
    async with demo_server.client(None) as client:
        before = len((await client.get("/runs?agent=talking&limit=100")).json()["data"])
        async with cutting_proxy(demo_server.url, [None, 1]) as proxy:
            result = await runwire("run", "--url", proxy.url, "--agent", "talking", "--json", "x", cwd=tmp_path)
        after = len((await client.get("/runs?agent=talking&limit=100")).json()["data"])
    assert result.code == 0
    whole(result)
    assert [request.split(b" HTTP")[0] for request in proxy.requests] == [
        b"GET /info",
        b"POST /runs/stream",
        b"POST /runs/stream",
    ]
    assert after == before + 1


async def started(server: RunwireServer, folder: Path, agent: str) -> tuple[asyncio.subprocess.Process, str]:
    """`runwire run --json` of an agent that is under way, and the run's id."""
    process = await start("run", "--agent", agent, "--json", "x", cwd=folder, env={"RUNWIRE_URL": server.url})
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        line = await process.stdout.readline()
    return process, json.loads(line)["data"]["run_id"]


async def test_a_cancelled_run_ends_with_code_4(demo_server: RunwireServer, tmp_path: Path) -> None:
    process, run_id = await started(demo_server, tmp_path, "slow")
    async with demo_server.client(None) as client:
        await client.post(f"/runs/{run_id}/cancel")
    assert (await finish(process)).code == 4


async def test_ctrl_c_leaves_the_run_and_says_how_to_follow_it(demo_server: RunwireServer, tmp_path: Path) -> None:
    process, run_id = await started(demo_server, tmp_path, "slow")
    process.send_signal(signal.SIGINT)
    result = await finish(process)
    assert result.code == 130
    assert f"follow it: runwire runs stream {run_id} --after 1\n" in result.err
    assert f"stop it:   runwire runs cancel {run_id}\n" in result.err
    assert "Traceback" not in result.err
    async with demo_server.client(None) as client:
        assert (await client.get(f"/runs/{run_id}")).json()["status"] == "running"
        await client.post(f"/runs/{run_id}/cancel?wait=true")


async def test_a_closed_pipe_ends_quietly(demo_server: RunwireServer, tmp_path: Path) -> None:
    process, _ = await started(demo_server, tmp_path, "talking")
    transport = cast("asyncio.SubprocessTransport", process._transport)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    out = transport.get_pipe_transport(1)
    assert out is not None
    out.close()
    assert process.stderr is not None
    async with asyncio.timeout(TIMEOUT_S):
        assert await process.stderr.read() == b""
        assert await process.wait() == 141


async def test_there_are_no_colours_and_no_foreign_escapes_when_piped(
    demo_server: RunwireServer, tmp_path: Path
) -> None:
    result = await run(demo_server, tmp_path, "--agent", "escaping", "x", FORCE_COLOR="1", TERM="xterm-256color")
    assert result.code == 0
    assert "\x1b" not in result.out
    assert "ared é end" in result.out


async def test_a_terminal_without_utf8_shows_what_it_can(demo_server: RunwireServer, tmp_path: Path) -> None:
    result = await run(demo_server, tmp_path, "--agent", "escaping", "x", PYTHONIOENCODING="ascii")
    assert result.code == 0
    assert "? end" in result.out
