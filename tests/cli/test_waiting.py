"""Runs that wait for a person, from the command line: shown, answered, asked about at a terminal."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from tests.cli.command import Result, runwire
from tests.cli.terminal import CTRL_C, terminal
from tests.support.bodies import calls, says, scripted, tool_spec
from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

AMOUNT = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
PROMPT = "[y]es, [n]o, [e]dit the input, [r]espond with an output, [l]ater: "


@pytest.fixture(scope="module")
def server(demo_server: RunwireServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    """With agents that ask about one call, about two, and for a tool of the caller."""
    with (
        ToolServer.start(tmp_path_factory.mktemp("tools")) as tools,
        httpx.Client(base_url=demo_server.url, trust_env=False, timeout=20) as client,
    ):
        refund = tool_spec("refund", tools.url("/echo"), parameters=AMOUNT, requires_approval=True)
        local = {"name": "read_file", "description": "Reads a local file.", "effect": "read"}
        asked = {
            "asks-once": [("refund", {"amount": 5})],
            "asks-twice": [("refund", {"amount": 1}), ("refund", {"amount": 2})],
            "asks-caller": [("read_file", {"path": "a.txt"})],
        }
        for name, wanted in asked.items():
            model = scripted(calls(*wanted), says("done"))
            tool = local if name == "asks-caller" else refund
            client.post("/agents", json={"name": name, "model": model, "tools": [tool]}).raise_for_status()
        yield demo_server


async def cli(server: RunwireServer, folder: Path, *args: str) -> Result:
    return await runwire(*args, cwd=folder, env={"RUNWIRE_URL": server.url})


async def parked(server: RunwireServer, agent: str) -> dict[str, Any]:
    async with server.client(None) as client:
        run = (await client.post("/runs/wait", json={"agent": agent, "input": "go"})).json()
    assert run["status"] == "interrupted"
    return cast("dict[str, Any]", run)


async def ended(server: RunwireServer, run_id: str) -> tuple[str, list[object]]:
    """The run's status at its end, and what its steps observed."""
    async with server.client(None) as client:
        run = (await client.get(f"/runs/{run_id}/wait")).json()
        steps = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
    return run["status"], [step["observation"] for step in steps]


async def test_following_a_run_that_parks_ends_with_the_commands_that_answer(
    server: RunwireServer, tmp_path: Path
) -> None:
    result = await cli(server, tmp_path, "run", "--agent", "asks-once", "go")
    assert result.code == 6
    assert "(the run waits for a person)\n  tool_approval refund May refund be called with this input?\n" in result.out
    command = re.search(r"runwire (runs resume \S+ --approve \S+)\n", result.err)
    assert command is not None
    for option in ("--reject", "--edit", "--respond"):
        assert f" {option} " in result.err
    taken = await cli(server, tmp_path, *command[1].split())
    assert (taken.code, taken.out.startswith("answered 1; the run is ")) == (0, True)
    run_id = command[1].split()[2]
    assert f"runwire runs stream {run_id}" in taken.err
    assert await ended(server, run_id) == ("success", [{"amount": 5}])


async def test_a_run_that_waits_is_shown_with_its_questions(server: RunwireServer, tmp_path: Path) -> None:
    run = await parked(server, "asks-twice")
    shown = await cli(server, tmp_path, "runs", "show", run["id"])
    assert shown.code == 0
    for asked, amount in zip(run["interrupts"], (1, 2), strict=True):
        assert f"interrupt  {asked['id']}\n" in shown.out
        assert f'input      {{"amount": {amount}}}\n' in shown.out
        assert f"  runwire runs resume {run['id']} --approve {asked['id']}\n" in shown.out
    assert f"  runwire runs resume {run['id']} --approve all\n" in shown.out
    as_json = await cli(server, tmp_path, "runs", "show", run["id"], "--json")
    assert json.loads(as_json.out)["interrupts"] == run["interrupts"]


async def test_questions_are_answered_one_by_one_and_all_at_once(server: RunwireServer, tmp_path: Path) -> None:
    run = await parked(server, "asks-twice")
    first, second = (item["id"] for item in run["interrupts"])
    partly = await cli(server, tmp_path, "runs", "resume", run["id"], "--reject", second, "--message", "too much")
    assert (partly.code, partly.out) == (6, "answered 1; the run is interrupted\n")
    assert f"--approve {first}" in partly.err
    assert second not in partly.err
    rest = await cli(server, tmp_path, "runs", "resume", run["id"], "--approve", "all", "--json")
    assert (rest.code, json.loads(rest.out)["interrupts"]) == (0, [])
    observed = [{"amount": 1}, "User rejected the tool call for `refund` with reason: too much"]
    assert await ended(server, run["id"]) == ("success", observed)
    late = await cli(server, tmp_path, "runs", "resume", run["id"], "--approve", "all")
    assert (late.code, late.err) == (1, "runwire: There is nothing to answer: the run is success.\n")
    refused = await cli(server, tmp_path, "runs", "resume", run["id"], "--approve", first)
    assert refused.code == 3
    assert "(interrupt_resolved)" in refused.err


async def test_an_input_is_edited_an_output_given_and_a_wrong_one_keeps_nothing(
    server: RunwireServer, tmp_path: Path
) -> None:
    run = await parked(server, "asks-twice")
    first, second = (item["id"] for item in run["interrupts"])
    wrong = await cli(
        server, tmp_path, "runs", "resume", run["id"], "--edit", f'{first}={{"amount": "x"}}', "--approve", second
    )
    assert wrong.code == 3
    assert "  /responses/0/tool_input/amount: " in wrong.err
    taken = await cli(
        server, tmp_path, "runs", "resume", run["id"],
        "--edit", f'{first}={{"amount": 10}}', "--respond", f'{second}={{"by": "hand"}}',
    )  # fmt: skip
    assert taken.code == 0
    assert await ended(server, run["id"]) == ("success", [{"amount": 10}, {"by": "hand"}])


@pytest.mark.parametrize("whole", [True, False])
async def test_answers_come_from_a_file_too(server: RunwireServer, tmp_path: Path, whole: bool) -> None:
    run = await parked(server, "asks-caller")
    answers = [{"interrupt_id": run["interrupts"][0]["id"], "decision": "respond", "output": None}]
    body = {"responses": answers} if whole else answers
    (tmp_path / "answers.json").write_text(json.dumps(body), encoding="utf-8")
    taken = await cli(server, tmp_path, "runs", "resume", run["id"], "--json-file", "answers.json")
    assert taken.code == 0
    assert await ended(server, run["id"]) == ("success", [None])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "Give an answer"),
        (("--message", "x"), "add --reject"),
        (("--approve", "all", "--reject", "all"), "not both"),
        (("--approve", "a", "--reject", "a"), "a is answered twice"),
        (("--edit", "a"), "--edit takes name=value"),
        (("--respond", "a={no"), "--respond a is not JSON"),
        (("--json-file", "odd.json"), "needs `interrupt_id` and a `decision`"),
        (("--json-file", "more.json"), "colour"),
        (("--json-file", "text.json"), "a list of answers"),
    ],
)
async def test_a_wrong_answer_ends_with_code_2(
    server: RunwireServer, tmp_path: Path, args: tuple[str, ...], said: str
) -> None:
    answer = {"interrupt_id": "a", "decision": "approve", "colour": 1}
    for name, value in (("odd", [{"interrupt_id": "a", "decision": "maybe"}]), ("more", [answer]), ("text", "yes")):
        (tmp_path / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    run = await parked(server, "asks-twice")
    result = await cli(server, tmp_path, "runs", "resume", run["id"], *args)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


async def test_what_is_not_there_ends_with_code_5(server: RunwireServer, tmp_path: Path) -> None:
    run = await parked(server, "asks-once")
    unknown = await cli(server, tmp_path, "runs", "resume", run["id"], "--approve", "nothing")
    assert unknown.code == 5
    assert "runwire runs show" in unknown.err
    nowhere = await cli(server, tmp_path, "runs", "resume", "nothing", "--approve", "all")
    assert nowhere.code == 5


async def test_a_person_at_a_terminal_is_asked_and_the_run_goes_on(server: RunwireServer, tmp_path: Path) -> None:
    env = {"RUNWIRE_URL": server.url}
    async with terminal("run", "--ask", "--agent", "asks-twice", "go", cwd=tmp_path, env=env) as shown:
        await shown.until(PROMPT)
        shown.press(b"?\n")
        await shown.until(f"{PROMPT}?\n  {PROMPT}")
        shown.press(b"e\n")
        await shown.until("  JSON: ")
        shown.press(b'{"amount": 10}\n')
        await shown.until('tool_approval refund {"amount": 2}')
        shown.press(b"n\n")
        await shown.until("  why (may be empty): ")
        shown.press(b"too much\n")
        assert await shown.code() == 0
    assert 'refund {"amount":10}' in shown.text.replace(": 10", ":10")
    assert "with reason: too much" in shown.text
    assert "[success, finish: " in shown.text


@pytest.mark.parametrize("key", [b"l\n", b"\x04", CTRL_C])
async def test_a_question_can_be_left_for_later(server: RunwireServer, tmp_path: Path, key: bytes) -> None:
    env = {"RUNWIRE_URL": server.url}
    run = await parked(server, "asks-once")
    async with terminal("runs", "stream", run["id"], "--ask", cwd=tmp_path, env=env) as shown:
        await shown.until(PROMPT)
        shown.press(key)
        assert await shown.code() == 6
    assert f"runwire runs resume {run['id']} --approve {run['interrupts'][0]['id']}" in shown.text


async def test_an_answer_that_the_server_refuses_is_asked_for_again(server: RunwireServer, tmp_path: Path) -> None:
    env = {"RUNWIRE_URL": server.url}
    async with terminal("run", "--ask", "--agent", "asks-once", "go", cwd=tmp_path, env=env) as shown:
        await shown.until(PROMPT)
        shown.press(b"e\n")
        await shown.until("  JSON: ")
        shown.press(b'{"amount": "much"}\n')
        await shown.until("/responses/0/tool_input/amount")
        shown.press(b"y\n")
        assert await shown.code() == 0


async def test_nobody_is_asked_without_a_terminal(server: RunwireServer, tmp_path: Path) -> None:
    for args in (("run", "go"), ("runs", "stream", "nothing")):
        result = await cli(server, tmp_path, *args, "--ask")
        assert (result.code, result.out) == (2, "")
        assert "--ask needs a person at a terminal" in result.err
