"""A server without keys: loopback names only, tenant `default`."""

from collections.abc import Iterator

import pytest

from tests.api.problems import check_problem
from tests.support.bodies import run_body, says, scripted
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

HELLO = run_body(scripted(says("hello")))


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with RunwireServer.open(tmp_path_factory.mktemp("keyless"), keys="") as running:
        yield running


async def test_it_answers_on_loopback_names_without_a_key(keyless: RunwireServer) -> None:
    async with keyless.client(None) as client:
        for host in ("localhost", "127.0.0.1:1234", "[::1]:80", "LOCALHOST:9"):
            assert (await client.post("/runs/wait", json=HELLO, headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", "["]
)
async def test_it_answers_on_no_other_name(keyless: RunwireServer, host: str) -> None:
    async with keyless.client(None) as client:
        for path in ("/runs", "/livez"):
            check_problem(await client.get(path, headers={"Host": host}), 403, "host_refused")


async def test_a_key_in_the_address_is_refused_here_too(keyless: RunwireServer) -> None:
    async with keyless.client(None) as client:
        check_problem(await client.get("/runs", params={"api_key": "x"}), 401, "unauthenticated")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
async def test_it_does_not_start_beyond_loopback(keyless: RunwireServer, host: str) -> None:
    other = RunwireServer(keyless.folder, {"RUNWIRE_HOST": host})
    process = other.spawn()
    assert process.wait(timeout=20) == 2
    assert process.stdout is not None
    process.stdout.close()
    assert "RUNWIRE_API_KEYS" in other.log()
