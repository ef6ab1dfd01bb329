"""Servers that are away, slow, strange, of another version, or do not know the key: what is said, and which exit code."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import TIMEOUT_S, finish, runwire, start
from tests.cli.servers import canned
from tests.support.server import ACME, READER, RunwireServer

pytestmark = pytest.mark.anyio

RUN_ID = "01a22e60-b268-7150-88a9-da3696082c82"
EVERY = [
    ("run", "x"), ("run", "--detach", "x"), ("runs", "ls"), ("runs", "show", RUN_ID), ("runs", "steps", RUN_ID),
    ("runs", "stream", RUN_ID), ("runs", "cancel", RUN_ID), ("runs", "cancel", "--wait", RUN_ID), ("runs", "rm", RUN_ID),
    ("tools", "ls"), ("tools", "show", "x"), ("tools", "invoke", "x"), ("tools", "rm", "x"), ("agents", "ls"),
    ("agents", "show", "x"), ("agents", "rm", "x"), ("models", "ls"), ("info",),
]  # fmt: skip


@pytest.mark.parametrize("args", EVERY, ids=" ".join)
async def test_no_command_waits_for_a_server_that_is_not_there(args: tuple[str, ...], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = await runwire(*args, "--url", url, cwd=tmp_path)
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith(f"runwire: No answer from {url}: it cannot be reached")
    assert "times" not in result.err  # it was tried once
    assert "Traceback" not in result.err


async def test_ctrl_c_ends_the_wait_for_a_server_that_says_nothing(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as silent:
        url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        for args in (("runs", "ls"), ("run", "x"), ("runs", "stream", RUN_ID)):
            asked.clear()
            process = await start(*args, "--url", url, cwd=tmp_path)
            async with asyncio.timeout(TIMEOUT_S):
                await asked.wait()
            process.send_signal(signal.SIGINT)
            result = await finish(process)
            assert result.code == 130
            assert "Traceback" not in result.err


async def test_unknown_fields_of_a_later_version_are_shown_and_do_no_harm(tmp_path: Path) -> None:
    run = {"id": RUN_ID, "status": "resting", "mood": {"of": "later"}, "created_at": "soon"}
    page = {"data": [run], "has_more": False, "next_cursor": None, "total": 1}
    answers = {"GET /runs": (200, json.dumps(page).encode()), f"GET /runs/{RUN_ID}": (200, json.dumps(run).encode())}
    async with canned(answers) as server:
        listed = await runwire("runs", "ls", "--url", server.url, cwd=tmp_path)
        shown = await runwire("runs", "show", RUN_ID, "--url", server.url, cwd=tmp_path)
        as_json = await runwire("runs", "show", RUN_ID, "--json", "--url", server.url, cwd=tmp_path)
    assert (listed.code, shown.code, as_json.code) == (0, 0, 0)
    assert listed.out.splitlines()[1].split()[:2] == [RUN_ID, "resting"]
    assert json.loads(as_json.out) == run


async def test_a_missing_endpoint_is_told_with_the_servers_version(tmp_path: Path) -> None:
    problem = {
        "type": "urn:runwire:problem:route_not_found", "title": "Not Found", "status": 404, "detail": "There is nothing at /models.",
        "instance": "/models", "code": "route_not_found", "request_id": "r-1",
    }  # fmt: skip
    answers = {
        "GET /models": (404, json.dumps(problem).encode()),
        "GET /info": (200, b'{"name": "runwire", "version": "0.0.7\\u001b[31m"}'),
    }
    async with canned(answers) as server:
        result = await runwire("models", "ls", "--url", server.url, cwd=tmp_path)
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith("runwire: This server does not have /models; its version is 0.0.7, ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"data": 3}', b'{"data": [3]}', b'{"data": [{}]}', b"not JSON", b'{"data": [{"id": 1, "status": 2}]}'],
    ids=str,
)  # fmt: skip
async def test_an_answer_of_another_kind_is_no_traceback(body: bytes, tmp_path: Path) -> None:
    async with canned({"GET /runs": (200, body), "GET /tools": (200, body), "GET /info": (200, body)}) as server:
        result = await runwire("runs", "ls", "--url", server.url, cwd=tmp_path)
        assert (result.code, result.out) == (3, "")
        assert "not as a Runwire server does" in result.err
        for args in (("tools", "ls"), ("info",), ("agents", "ls")):
            assert "Traceback" not in (await runwire(*args, "--url", server.url, cwd=tmp_path)).err


async def test_a_key_that_is_missing_wrong_or_too_weak_is_told_apart(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path) as server:

        async def tried(*args: str, key: str) -> tuple[int, str]:
            env = {"RUNWIRE_URL": server.url, "RUNWIRE_API_KEY": key}
            result = await runwire(*args, cwd=tmp_path, env=env)
            assert not key or key not in result.out + result.err
            return result.code, result.err

        assert (await tried("runs", "ls", key=ACME))[0] == 0
        code, said = await tried("runs", "ls", key="")
        assert (code, "Put a key of this server into RUNWIRE_API_KEY." in said) == (3, True)
        code, said = await tried("runs", "ls", key="wrong-key-0123456789")
        assert (code, "is not one of this server's" in said) == (3, True)
        code, said = await tried("tools", "rm", "x", key=READER)
        assert (code, "(missing_scope)" in said, "Use a key that has this scope" in said) == (3, True, True)
        code, said = await tried("runs", "ls", key="schlüssel-0123456789")
        assert (code, "RUNWIRE_API_KEY" in said) == (2, True)


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://user:hidden-pw@127.0.0.1", "http://a b", "127.0.0.1:8080"]
)
async def test_an_address_that_cannot_be_used_is_wrong_usage(url: str, tmp_path: Path) -> None:
    result = await runwire("runs", "ls", "--url", url, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert "hidden-pw" not in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    "args", [("runs", "ls", "--all"), ("runs", "ls", "--all", "--json"), ("agents", "ls", "--all"), ("--help",)]
)
async def test_a_reader_that_leaves_ends_a_command_quietly(
    args: tuple[str, ...], demo_server: RunwireServer, tmp_path: Path, closed_pipe: Callable[[], int]
) -> None:
    async with demo_server.client(None) as client:
        await client.post("/runs/wait", json={"agent": "demo", "input": "hello"})
    process = await start(*args, cwd=tmp_path, env={"RUNWIRE_URL": demo_server.url}, stdout=closed_pipe())
    result = await finish(process)
    assert (result.code, result.err) == (141, "")
