"""kill -9 around a tool's question: on both sides of the park, before and after the answer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.runs.waiting import Answer
from app.storage.open import Stores
from tests.e2e.test_interrupts import PLUGINS, asked_again, effects, parked
from tests.e2e.test_waiting_crashes import answered, ended, lives, restart
from tests.support.server import TIMEOUT_S, RunwireServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    with RunwireServer.open(tmp_path, env=PLUGINS) as running:
        yield running


async def until_done(folder: Path, n: int, count: int) -> list[str]:
    """What the tools did with their answers, once it is so much; their ledger tells nobody."""
    while True:
        done = [line for line in effects(folder, n) if line.startswith("do ")]
        if len(done) >= count:
            return done
        await asyncio.sleep(0.01)


async def test_questions_and_answers_outlive_the_server(own: RunwireServer) -> None:
    """Killed before any answer, between the first and the second, and after the last."""
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            run = await parked(client, "ask_twice", "ask", n=1)
        await restart(own)
        async with own.client() as client:
            assert (await client.get(f"/runs/{run['id']}")).json() == run
            by_tool = {item["tool"]: at for at, item in enumerate(run["interrupts"])}
            await answered(client, run, by_tool["ask_twice"], output="A")
            await answered(client, run, by_tool["ask"], output=None)
            run = await asked_again(client, run["id"])
        await restart(own)
        asked = run["interrupts"][0]["id"]

        async def answer(stores: Stores) -> None:
            """It was answered, and the server died before it could go on."""
            decided = {"decision": "respond", "output": "B"}
            await stores.waits.answer("acme", run["id"], [Answer(asked, decided)], "me")

        await restart(own, answer)
        async with own.client() as client:
            _, told, steps = await ended(client, run["id"])
    assert [step["observation"] for step in steps] == [["A", "B", 1], {"answer": None, "attempt": 1}]
    assert effects(own.folder, 1) == ["start 1"] * 3 + ["do 1 'A' 'B'"]
    assert effects(own.folder, 2) == ["start 2", "start 2", "do 2 None"]
    assert {attempt for _, attempt in lives(told)} <= {1, 2}


async def test_a_write_that_was_killed_after_its_answer_is_unknown_and_not_repeated(own: RunwireServer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            run = await parked(client, "ask_then_hang", n=1)
            await answered(client, run, output=1)
            await until_done(own.folder, 1, 1)
        await restart(own)
        async with own.client() as client:
            _, _, (step,) = await ended(client, run["id"])
    assert (step["status"], step["error"]["code"]) == ("unknown", "outcome_unknown")
    assert [attempt["outcome"] for attempt in step["attempts"]] == ["interrupted", "lost"]
    assert effects(own.folder, 1) == ["do 1 1"]


async def test_an_idempotent_call_that_was_killed_after_its_answers_runs_again_with_them(own: RunwireServer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            run = await parked(client, "ask_then_hang_once", n=1)
            await answered(client, run, output="A")
            run = await asked_again(client, run["id"])
            await answered(client, run, output=False)
            await until_done(own.folder, 1, 1)
        await restart(own)
        async with own.client() as client:
            _, _, (step,) = await ended(client, run["id"])
    assert step["observation"] == ["A", False]
    first, second = effects(own.folder, 1)
    assert first.removeprefix("do 1 ['A', False] 1 ") == second.removeprefix("do 1 ['A', False] 2 ")
    outcomes = [attempt["outcome"] for attempt in step["attempts"]]
    assert outcomes == ["interrupted", "interrupted", "lost", "success"]


async def test_a_run_cancelled_while_it_asks_says_that_the_call_did_nothing(own: RunwireServer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with own.client() as client:
            run = await parked(client, "ask_then_hang", n=1)
        await restart(own)
        async with own.client() as client:
            await client.post(f"/runs/{run['id']}/cancel", params={"wait": "true"})
            steps: list[dict[str, Any]] = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
    assert [(step["status"], step["error"]["state"]) for step in steps] == [("cancelled", "failed")]
