"""Tools that ask while they run: what callers see of it, what they may answer, and what the tool is told."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from dirty_equals import IsPartialDict, IsStr

from tests.e2e.test_waiting_crashes import answered, ended
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import OTHER, TIMEOUT_S, RunwireServer
from tests.support.streams import names, stream

pytestmark = pytest.mark.anyio

PLUGINS = {"RUNWIRE_PLUGINS": "tests.e2e.plugin_tools,tests.e2e.plugin_asks"}


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with RunwireServer.open(tmp_path_factory.mktemp("asking"), env=PLUGINS) as running:
        yield running


@pytest.fixture
async def client(asking: RunwireServer) -> AsyncIterator[httpx.AsyncClient]:
    async with asking.client() as opened:
        yield opened


def effects(folder: Path, n: int) -> list[str]:
    """What the tools did for one number."""
    path = folder / "effects.log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if line.split()[1] == str(n)]


async def parked(client: httpx.AsyncClient, *tools: str, n: int = 1, **more: object) -> dict[str, Any]:
    """A run that calls each tool once, in one round, and waits: `n` for the first, `n + 1` for the next."""
    turn = calls(*((name, {"n": number}) for number, name in enumerate(tools, n)))
    answer = await client.post("/runs/wait", json=run_body(scripted(turn, says("done")), *set(tools), **more))
    assert answer.status_code == 200, answer.text
    run = answer.json()
    assert run["status"] == "interrupted", run
    return run


async def resumed(client: httpx.AsyncClient, run: dict[str, Any], *responses: dict[str, Any]) -> httpx.Response:
    return await client.post(f"/runs/{run['id']}/resume", json={"responses": list(responses)})


async def asked_again(client: httpx.AsyncClient, run_id: str) -> dict[str, Any]:
    answer = await client.get(f"/runs/{run_id}/wait", params={"timeout_s": 15})
    assert (answer.status_code, answer.json()["status"]) == (200, "interrupted")
    return answer.json()


async def test_a_tool_asks_and_runs_again_with_the_answer(client: httpx.AsyncClient, asking: RunwireServer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask", n=10)
        (question,) = run["interrupts"]
        assert question == {
            "id": IsStr(),
            "reason": "input",
            "tool_call_id": IsStr(),
            "tool": "ask",
            "tool_input": {"n": 10},
            "message": "And 10?",
            "payload": {"n": 10},
            "response_schema": {
                "type": "object",
                "properties": {
                    "decision": {"enum": ["respond", "reject"]},
                    "output": {},
                    "message": {"type": "string"},
                },
            },
            "expires_at": IsStr(),
        }
        await answered(client, run, output={"yes": 1})
        after, told, (step,) = await ended(client, run["id"])
    assert step["observation"] == {"answer": {"yes": 1}, "attempt": 1}
    assert effects(asking.folder, 10) == ["start 10", "start 10", "do 10 {'yes': 1}"]
    assert [attempt["outcome"] for attempt in step["attempts"]] == ["interrupted", "success"]
    assert [item["verdict"] for item in step["chain"] if item["stage"] == "execution"] == [
        "interrupted", "answered", "success",
    ]  # fmt: skip
    assert names(told).count("interrupt") == 1
    assert after["usage"]["tool_calls"] == 1


@pytest.mark.parametrize("answer", [None, False, 0, "", [], {}])
async def test_null_and_falsy_answers_are_answers(client: httpx.AsyncClient, answer: object) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask", n=20)
        await answered(client, run, decision="respond", output=answer)
        _, _, (step,) = await ended(client, run["id"])
    assert step["observation"] == {"answer": answer, "attempt": 1}


async def test_several_questions_of_one_call_are_answered_in_order(
    client: httpx.AsyncClient, asking: RunwireServer
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask_twice", n=30)
        first = run["interrupts"][0]
        await answered(client, run, output="A")
        run = await asked_again(client, run["id"])
        (second,) = run["interrupts"]
        assert (first["message"], second["message"]) == ("The first?", "The second?")
        assert first["id"] != second["id"]
        late = await resumed(client, run, {"interrupt_id": first["id"], "output": "again"})
        assert (late.status_code, late.json()["code"]) == (409, "interrupt_resolved")
        await answered(client, run, output="B")
        _, _, (step,) = await ended(client, run["id"])
    assert step["observation"] == ["A", "B", 1]
    assert effects(asking.folder, 30) == ["start 30"] * 3 + ["do 30 'A' 'B'"]


async def test_two_calls_ask_at_once_and_the_answered_sibling_does_not_run_again(
    client: httpx.AsyncClient, asking: RunwireServer
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask", "ask_twice", n=40)
        by_tool = {item["tool"]: item["id"] for item in run["interrupts"]}
        assert len(by_tool) == 2
        partly = await resumed(client, run, {"interrupt_id": by_tool["ask"], "output": 1})
        assert partly.status_code == 202
        assert (partly.json()["status"], [item["tool"] for item in partly.json()["interrupts"]]) == (
            "interrupted", ["ask_twice"],
        )  # fmt: skip
        assert effects(asking.folder, 40) == ["start 40"]
        await resumed(client, run, {"interrupt_id": by_tool["ask_twice"], "output": "A"})
        run = await asked_again(client, run["id"])
        assert effects(asking.folder, 40) == ["start 40", "start 40", "do 40 1"]
        await answered(client, run, output="B")
        _, _, steps = await ended(client, run["id"])
    assert [step["observation"] for step in steps] == [{"answer": 1, "attempt": 1}, ["A", "B", 1]]
    assert effects(asking.folder, 40) == ["start 40", "start 40", "do 40 1"]


async def test_an_approval_and_a_question_in_one_round_and_in_one_call(client: httpx.AsyncClient) -> None:
    """A person who edits the input is asked with it, and the tool runs with it."""
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask", "ask_twice", n=50, agent={"interrupt_on": {"ask": True}})
        reasons = {item["reason"]: item["id"] for item in run["interrupts"]}
        assert set(reasons) == {"tool_approval", "input"}, run
        taken = await resumed(
            client,
            run,
            {"interrupt_id": reasons["tool_approval"], "decision": "edit", "tool_input": {"n": 52}},
            {"interrupt_id": reasons["input"], "output": "A"},
        )
        assert taken.status_code == 202, taken.text
        run = await asked_again(client, run["id"])
        questions = {item["tool"]: item for item in run["interrupts"]}
        assert questions["ask"]["payload"] == {"n": 52}
        await resumed(
            client,
            run,
            {"interrupt_id": questions["ask"]["id"], "output": True},
            {"interrupt_id": questions["ask_twice"]["id"], "output": "B"},
        )
        _, _, steps = await ended(client, run["id"])
    assert [step["observation"] for step in steps] == [{"answer": True, "attempt": 1}, ["A", "B", 1]]


@pytest.mark.parametrize(
    ("answer", "pointer"),
    [
        ({"output": {"amount": 0}}, "/responses/0/output/amount"),
        ({"output": {"amount": "5"}}, "/responses/0/output/amount"),
        ({"output": None}, "/responses/0/output"),
        ({"decision": "respond", "message": "five"}, "/responses/0/output"),
        ({}, "/responses/0/output"),
        ({"decision": "approve"}, "/responses/0/decision"),
        ({"decision": "edit", "tool_input": {"n": 1}}, "/responses/0/decision"),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused_and_nothing_is_kept(
    client: httpx.AsyncClient, answer: dict[str, Any], pointer: str
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask_amount")
        refused = await resumed(client, run, {"interrupt_id": run["interrupts"][0]["id"], **answer})
        assert (refused.status_code, [item["pointer"] for item in refused.json()["errors"]]) == (422, [pointer])
        assert (await client.get(f"/runs/{run['id']}")).json() == run
        await answered(client, run, output={"amount": 5})
        _, _, (step,) = await ended(client, run["id"])
    assert step["observation"] == {"amount": 5}


async def test_one_bad_answer_among_good_ones_keeps_none(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask", "ask_amount")
        by_tool = {item["tool"]: item["id"] for item in run["interrupts"]}
        refused = await resumed(
            client,
            run,
            {"interrupt_id": by_tool["ask"], "output": 1},
            {"interrupt_id": by_tool["ask_amount"], "output": 1},
        )
        assert refused.status_code == 422
        assert (await client.get(f"/runs/{run['id']}")).json()["interrupts"] == run["interrupts"]


@pytest.mark.parametrize("name", ["ask_and_catch", "ask_deaf", "ask_in_a_group"])
async def test_a_tool_that_catches_the_interrupt_waits_all_the_same(client: httpx.AsyncClient, name: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, name, n=60)
        await answered(client, run, output="told")
        _, _, (step,) = await ended(client, run["id"])
    assert step["observation"] in ("told", ["told"])


async def test_a_rejected_question_denies_the_call_and_the_model_reads_why(
    client: httpx.AsyncClient, asking: RunwireServer
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask", n=70)
        await answered(client, run, decision="reject", message="not today")
        _, _, (step,) = await ended(client, run["id"])
    assert (step["status"], step["error"]["code"]) == ("denied", "rejected")
    assert step["observation"] == "ask did not go on: its question was rejected: not today"
    assert effects(asking.folder, 70) == ["start 70"]


async def test_an_expired_question_denies_its_call_beside_an_answered_one(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask", "ask_briefly", n=80)
        by_tool = {item["tool"]: item["id"] for item in run["interrupts"]}
        await resumed(client, run, {"interrupt_id": by_tool["ask"], "output": 1})
        async with stream(client, "GET", f"/runs/{run['id']}/stream?hold=true") as opened:
            await opened.rest()
        _, _, steps = await ended(client, run["id"])
        late = await resumed(client, run, {"interrupt_id": by_tool["ask_briefly"], "output": 1})
    assert [step["status"] for step in steps] == ["success", "denied"]
    assert steps[1]["error"] == IsPartialDict(code="interrupt_expired")
    assert (late.status_code, late.json()["code"]) == (409, "interrupt_expired")


async def test_waiting_counts_against_neither_the_tools_time_nor_the_runs(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask_soon", "ask_briefly", agent={"max_execution_time": 0.8, "max_iterations": 2})
        async with stream(client, "GET", f"/runs/{run['id']}/stream?after=0&hold=true") as opened:
            by_tool = {item["tool"]: item["id"] for item in run["interrupts"]}
            while True:  # the question of one second: past both times
                now = (await client.get(f"/runs/{run['id']}")).json()
                if len(now["interrupts"]) == 1:
                    break
            await resumed(client, run, {"interrupt_id": by_tool["ask_soon"], "output": "in time"})
            await opened.rest()
        after, _, steps = await ended(client, run["id"])
    assert [step["status"] for step in steps] == ["success", "denied"]
    assert (after["stop_reason"], after["iterations"]) == ("finish", 2)


async def test_a_question_that_cannot_be_kept_is_the_tools_own_fault(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        body = run_body(scripted(calls(("ask_badly", {"n": 1})), says("done")), "ask_badly")
        run = (await client.post("/runs/wait", json=body)).json()
        _, _, (step,) = await ended(client, run["id"])
    assert (step["status"], step["error"]["code"]) == ("error", "tool_failed")


async def test_outside_a_run_nobody_is_asked(client: httpx.AsyncClient) -> None:
    answer = await client.post("/tools/ask/invoke", json={"arguments": {"n": 90}})
    assert answer.json()["error"]["code"] == "interrupt_unavailable"


async def test_a_cancelled_run_ends_its_questions(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask", n=100)
        await client.post(f"/runs/{run['id']}/cancel", params={"wait": "true"})
        (step,) = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
        late = await resumed(client, run, {"interrupt_id": run["interrupts"][0]["id"], "output": 1})
    assert (step["status"], step["error"]["state"]) == ("cancelled", "failed")
    assert (late.status_code, late.json()["code"]) == (409, "run_not_interrupted")


async def test_unknown_runs_and_interrupts_are_404(client: httpx.AsyncClient, asking: RunwireServer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask", n=110)
        response = {"interrupt_id": run["interrupts"][0]["id"], "output": 1}
        nowhere = await resumed(client, {"id": run["thread_id"]}, response)
        unknown = await resumed(client, run, {"interrupt_id": run["thread_id"], "output": 1})
        async with asking.client(OTHER) as other:
            foreign = await resumed(other, run, response)
    assert [(item.status_code, item.json()["code"]) for item in (nowhere, unknown, foreign)] == [
        (404, "run_not_found"), (404, "interrupt_not_found"), (404, "run_not_found"),
    ]  # fmt: skip


async def test_of_a_hundred_answers_at_once_one_wins(client: httpx.AsyncClient, asking: RunwireServer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await parked(client, "ask", n=120)
        asked = run["interrupts"][0]["id"]
        taken = await asyncio.gather(
            *(resumed(client, run, {"interrupt_id": asked, "output": number}) for number in range(100))
        )
        winner = [number for number, answer in enumerate(taken) if answer.status_code == 202]
        _, _, (step,) = await ended(client, run["id"])
    assert len(winner) == 1
    assert {answer.status_code for answer in taken} == {202, 409}
    assert step["observation"] == {"answer": winner[0], "attempt": 1}
    assert effects(asking.folder, 120) == ["start 120", "start 120", f"do 120 {winner[0]}"]
