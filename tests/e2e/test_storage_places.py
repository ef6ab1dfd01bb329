"""Where the data is: one server a file, files that cannot be written, and Postgres."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.postgres import PostgresServer
from tests.e2e.ledger import until_effects
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.server import OTHER, TIMEOUT_S, RunwireServer
from tests.support.streams import check_whole, read_events, stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

HELLO = run_body(scripted(says("hello")))


def exit_code(server: RunwireServer) -> int:
    process = server.spawn()
    assert process.stdout is not None
    try:
        return process.wait(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    finally:
        process.stdout.close()


async def test_a_second_server_on_the_same_file_refuses_and_the_first_goes_on(server: RunwireServer) -> None:
    second = RunwireServer(server.folder, server.env)
    assert exit_code(second) == 3
    assert "Another Runwire server uses the database" in second.log()
    async with server.client() as client:
        assert (await client.post("/runs/wait", json=HELLO)).json()["status"] == "success"


@pytest.mark.parametrize(
    "place", ["/proc/nowhere/runwire.db", "/dev/null/runwire.db", "{folder}/server.log/runwire.db", "{folder}/text"]
)
async def test_a_place_that_cannot_hold_a_database_ends_with_a_clear_word(tmp_path: Path, place: str) -> None:
    (tmp_path / "text").write_text("This is no database. " * 100)
    path = place.format(folder=tmp_path)
    broken = RunwireServer(tmp_path, {"RUNWIRE_DATABASE_URL": f"sqlite:///{path}"})
    assert exit_code(broken) == 3
    assert "Traceback" not in broken.log()
    assert broken.log().startswith("runwire: ")


@pytest.mark.parametrize(
    "env",
    [
        {"RUNWIRE_API_KEYS": "short:acme"},
        {"RUNWIRE_PLUGINS": "no.such.module"},
        {"RUNWIRE_PORT": "99999"},
        {"RUNWIRE_DATABASE_URL": "mysql://localhost/x"},
        {"RUNWIRE_EGRESS_ALLOW": "not an address/99"},
        {"RUNWIRE_ENV": "production"},
    ],
    ids=lambda env: next(iter(env)),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
)
async def test_settings_that_cannot_be_used_are_named_and_end_with_2(tmp_path: Path, env: dict[str, str]) -> None:
    broken = RunwireServer(tmp_path, env, args=())
    process_env = dict(env)
    args = () if "RUNWIRE_PORT" not in process_env else ("--port", process_env["RUNWIRE_PORT"])
    broken.args = args
    assert exit_code(broken) == 2
    assert "Traceback" not in broken.log()


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    import shutil
    import tempfile

    # Not pytest's own folder: its names are too long for a socket, and the server's user may not enter it.
    folder = Path(tempfile.mkdtemp(prefix="rw-pg-"))
    running = PostgresServer(folder)
    running.start()
    yield running
    running.stop()
    shutil.rmtree(folder)


async def test_the_same_holds_on_postgres(tmp_path: Path, postgres: PostgresServer, tools: ToolServer) -> None:
    write = tool_spec("pg_once", tools.url("/never"), timeout_s=15)
    env = {"RUNWIRE_DATABASE_URL": postgres.new_database(), "RUNWIRE_SECRET_KEY": "a secret key for the tests"}
    with RunwireServer.open(tmp_path, env=env) as server:
        async with asyncio.timeout(2 * TIMEOUT_S), server.client() as client:
            turns = (calls(("echo", {"text": "x"})), says("done"))
            async with stream(client, "POST", "/runs/stream", json=run_body(scripted(*turns), "echo")) as reading:
                told = await reading.rest()
            check_whole(told)
            path = f"/runs/{told[0].data['run_id']}/stream"
            for cut in range(len(told)):
                rest = await client.get(path, headers={"Last-Event-ID": str(cut)})
                assert read_events(rest.content) == told[cut:]
            headers = {"Idempotency-Key": "pg-1"}
            made = await asyncio.gather(*(client.post("/runs", json=HELLO, headers=headers) for _ in range(20)))
            assert len({answer.json()["id"] for answer in made}) == 1
            labelled = {**HELLO, "metadata": {"n": 3}}
            run = (await client.post("/runs/wait", json=labelled)).json()
            found = (await client.get("/runs", params={"metadata.n": "3", "status": "success"})).json()["data"]
            assert [item["id"] for item in found] == [run["id"]]
            for query in ("/runs?after=%00", "/runs?agent=%00", "/runs/%00", "/agents/%00", "/runs?metadata.a=%00"):
                assert (await client.get(query)).status_code in (200, 404, 422), query
            for name in ("steps", "events"):
                far = await client.get(f"/runs/{run['id']}/{name}?after=999999999999999999")
                assert far.status_code in (200, 404), far.text
            async with server.client(OTHER) as other:
                assert (await other.get(f"/runs/{run['id']}")).status_code == 404
            body = run_body(scripted(calls(("pg_once", {})), says("went on")), write)
            hanging = (await client.post("/runs", json=body)).json()
            await until_effects(tools, "pg_once", count=1)
            server.kill()
            await asyncio.to_thread(server.start)
        async with asyncio.timeout(TIMEOUT_S), server.client() as client:
            done = (await client.get(f"/runs/{hanging['id']}/wait")).json()
            assert (done["status"], done["attempt"]) == ("success", 2)
            check_whole(read_events((await client.get(f"/runs/{hanging['id']}/stream")).content))
            step = (await client.get(f"/runs/{hanging['id']}/steps/1")).json()
            assert step["status"] == "unknown"
            assert len([item for item in tools.effects() if item["tool"] == "pg_once"]) == 1
            assert await asyncio.to_thread(server.kill, signal.SIGTERM) == 0
        assert "Traceback" not in server.log()
