"""Runs that wait, as a program answers them; switches, secrets and the audit of tool calls. All on real servers."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.client import (
    Client,
    Conflict,
    ConnectionFailed,
    Interrupt,
    InvalidRequest,
    NotFound,
    Response,
    Run,
    StreamLost,
)
from tests.client.conftest import Connect
from tests.client.network import canned, event, proxy_to
from tests.client.network import stream as stream_of
from tests.support.bodies import calls, says, scripted, tool_spec
from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

TIMEOUT_S = 60.0
AMOUNT = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServer]:
    with ToolServer.start(tmp_path_factory.mktemp("tools")) as server:
        yield server


def asking(tools: ToolServer, *amounts: int) -> dict[str, object]:
    """An agent whose calls of one round wait for a person."""
    refund = tool_spec("refund", tools.url("/echo"), parameters=AMOUNT, requires_approval=True)
    return {
        "model": scripted(calls(*(("refund", {"amount": amount}) for amount in amounts)), says("done")),
        "tools": [refund],
    }


async def waiting(client: Client, tools: ToolServer, *amounts: int) -> Run:
    run = await client.runs.wait(asking(tools, *amounts), "go")
    assert (run.status, run.finished, len(run.interrupts)) == ("interrupted", False, len(amounts))
    return run


async def observations(client: Client, run: Run) -> list[object]:
    return [step.observation for step in (await client.runs.steps(run.id)).data]


async def test_a_question_is_typed_and_says_what_it_takes(
    server: RunwireServer, tools: ToolServer, connect: Connect
) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        (asked,) = (await waiting(client, tools, 5)).interrupts
    assert (asked.reason, asked.tool, asked.tool_input) == ("tool_approval", "refund", {"amount": 5})
    assert asked.message == "May refund be called with this input?"
    assert set(asked.decisions) == {"approve", "edit", "reject", "respond"}
    assert asked.expires_at is not None
    assert asked.expires_at > datetime.now(UTC)
    assert asked.data["tool_call_id"] == asked.tool_call_id


async def test_every_decision_is_carried_out(server: RunwireServer, tools: ToolServer, connect: Connect) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        run = await waiting(client, tools, 1, 2, 3, 4)
        first, second, third, fourth = run.interrupts
        partly = await client.runs.resume(run.id, [fourth.respond(None), third.reject("too much")])
        assert (partly.status, partly.interrupts) == ("interrupted", [first, second])
        on_its_way = await client.runs.resume(run.id, [first.approve(), second.edit({"amount": 20})])
        assert on_its_way.status in ("pending", "running", "success")
        ended = await client.runs.wait_for(run.id, timeout_s=30)
        assert (ended.status, ended.text, ended.interrupts) == ("success", "done", [])
        assert await observations(client, run) == [
            {"amount": 1}, {"amount": 20}, "User rejected the tool call for `refund` with reason: too much", None,
        ]  # fmt: skip


async def test_the_second_of_two_answers_is_a_conflict_and_a_wrong_one_keeps_nothing(
    server: RunwireServer, tools: ToolServer, connect: Connect
) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        run = await waiting(client, tools, 1, 2)
        first, second = run.interrupts
        with pytest.raises(InvalidRequest) as refused:
            await client.runs.resume(run.id, [first.approve(), second.edit({"amount": "much"})])
        assert refused.value.errors[0].pointer == "/responses/1/tool_input/amount"
        assert (await client.runs.get(run.id)).interrupts == [first, second]
        await client.runs.resume(run.id, [Response.approve(first.id)])
        with pytest.raises(Conflict, match="interrupt_resolved"):
            await client.runs.resume(run.id, [first.reject()])
        with pytest.raises(NotFound, match="interrupt_not_found"):
            await client.runs.resume(run.id, [Response.respond("nobody", {"by": "hand"})])
        await client.runs.cancel(run.id, wait=True)
        with pytest.raises(Conflict, match="run_not_interrupted"):
            await client.runs.resume(run.id, [second.approve()])


async def test_a_stream_ends_where_the_run_waits_and_is_followed_on_from_there(
    server: RunwireServer, tools: ToolServer, connect: Connect
) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        stream = client.runs.stream(asking(tools, 1, 2), "go")
        first = [event async for event in stream]
        assert stream.run is not None
        assert (first[-1].type, stream.run.status, stream.ended) == ("run", "interrupted", False)
        assert [item.tool_input for item in stream.run.interrupts] == [{"amount": 1}, {"amount": 2}]
        assert [event async for event in client.runs.follow(stream.run.id, after=stream.last_id)] == []

        await client.runs.resume(stream.run.id, [item.approve() for item in stream.run.interrupts])
        more = client.runs.follow(stream.run.id, after=stream.last_id)
        rest = [event async for event in more]
        assert more.run is not None
        assert (rest[-1].type, more.run.text, more.run.interrupts) == ("end", "done", [])
        assert [event.id for event in (*first, *rest)] == list(range(1, len(first) + len(rest) + 1))


@pytest.mark.parametrize("known", [False, True], ids=["posted", "followed"])
async def test_a_stream_that_is_held_goes_on_with_the_run(
    known: bool, server: RunwireServer, tools: ToolServer, connect: Connect
) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        agent = asking(tools, 1)
        if known:
            stream = client.runs.follow((await client.runs.wait(agent, "go")).id, hold=True)
        else:
            stream = client.runs.stream(agent, "go", hold=True)
        numbers: list[int] = []
        statuses: list[object] = []
        async for event in stream:
            numbers.append(event.id)
            if event.type == "run":
                statuses.append(event.data["status"])
            if event.type == "run" and event.data["status"] == "interrupted":
                assert stream.run is not None
                await client.runs.resume(stream.run.id, [item.approve() for item in stream.run.interrupts])
        assert numbers == list(range(1, len(numbers) + 1))
        assert statuses == ["running", "interrupted", "running"]
        assert stream.ended
        assert stream.run is not None
        assert (stream.run.status, stream.run.interrupts) == ("success", [])


async def test_a_server_that_does_not_hold_a_stream_is_not_asked_for_ever(connect: Connect) -> None:
    told = [event(1, "run", run_id="run-1", status="running"), event(2, "run", run_id="run-1", status="interrupted")]
    async with asyncio.timeout(TIMEOUT_S), canned(stream_of(*told)) as odd, connect(odd.url, max_attempts=3) as client:
        with pytest.raises(StreamLost):
            _ = [item async for item in client.runs.follow("run-1", hold=True)]
        assert len(odd.requests) == 3
        assert all("hold=true" in line for line in odd.lines())


async def test_an_answer_that_may_have_been_taken_is_not_sent_again(
    server: RunwireServer, tools: ToolServer, connect: Connect
) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client, proxy_to(server.url) as proxy:
        run = await waiting(client, tools, 1)
        proxy.cut_after = 1
        async with connect(proxy.url) as cut:
            with pytest.raises(ConnectionFailed):
                await cut.runs.resume(run.id, [run.interrupts[0].approve()])
        assert len(proxy.requests) == 1
        assert (await client.runs.wait_for(run.id)).status == "success"


async def test_the_caller_runs_a_tool_of_its_own(server: RunwireServer, connect: Connect) -> None:
    local = {"name": "read_file", "description": "Reads a local file.", "effect": "read"}
    agent = {"model": scripted(calls(("read_file", {"path": "a.txt"})), says("done")), "tools": [local]}
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        run = await client.runs.wait(agent, "go")
        (asked,) = run.interrupts
        assert (asked.reason, set(asked.decisions)) == ("client_tool", {"respond", "reject"})
        await client.runs.resume(run.id, [asked.respond({"text": f"of {asked.tool_input['path']}"})])
        assert (await client.runs.wait_for(run.id)).status == "success"
        assert await observations(client, run) == [{"text": "of a.txt"}]


async def test_a_tool_is_switched_off_and_on_and_its_secret_is_rotated(
    server: RunwireServer, tools: ToolServer, connect: Connect
) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as client:
        made = await client.tools.create(tool_spec("switched", tools.url("/echo")))
        assert (await client.tools.disable("switched", "it refunds too much"))["disabled"] is True
        denied = await client.tools.invoke("switched", {})
        assert denied["error"]["code"] == "tool_disabled"
        state = await client.tools.enable("switched")
        assert (state["disabled"], state["history"][0]["reason"]) == (False, "it refunds too much")
        assert (await client.tools.invoke("switched", {}))["ok"]

        rotated = await client.tools.rotate_secret("switched", idempotency_key="once")
        assert rotated["signing_secret"].startswith("whsec_")
        assert rotated["signing_secret"] != made["signing_secret"]
        assert await client.tools.rotate_secret("switched", idempotency_key="once") == rotated
        with pytest.raises(NotFound, match="tool_not_found"):
            await client.tools.disable("no_such_tool")


async def test_tool_calls_are_audited_reconciled_and_stopped(
    tmp_path: Path, tools: ToolServer, connect: Connect
) -> None:
    lost = tool_spec("lost", tools.url("/close-after"), status_url=tools.url("/became?status=400"))
    agent: Mapping[str, object] = {
        "model": scripted(calls(("lost", {}), ("echo", {"text": "a"})), says("done")), "tools": [lost, "echo"],
    }  # fmt: skip
    began = datetime.now(UTC)
    with RunwireServer.open(tmp_path) as own:
        async with asyncio.timeout(TIMEOUT_S), connect(own.url) as client:
            run = await client.runs.wait(agent, "go")
            page = await client.tool_calls.list(run_id=run.id, limit=1)
            assert page.next_cursor is not None
            older = await client.tool_calls.list(run_id=run.id, after=page.next_cursor)
            found = [call async for call in client.tool_calls.iterate(thread_id=run.thread_id, since=began)]
            assert found == [*page.data, *older.data]
            assert [call["tool"] for call in found] == ["echo", "lost"]
            assert [call async for call in client.tool_calls.iterate(run_id=run.id, until=began)] == []
            (unknown,) = (await client.tool_calls.list(tool="lost", outcome="unknown")).data
            whole = await client.tool_calls.get(unknown["tool_call_id"])
            assert (whole["run_id"], whole["status"]) == (run.id, "unknown")
            told = await client.tool_calls.reconcile(unknown["tool_call_id"])
            assert (told["tool_call_id"], told["reconciled"]) == (unknown["tool_call_id"], None)
            with pytest.raises(ValueError, match="time zone"):
                await client.tool_calls.list(since=datetime(2026, 1, 1))

            assert (await client.tool_calls.disable("all of them"))["disabled"] is True
            assert (await client.tools.invoke("echo", {"text": "a"}))["status"] == "denied"
            assert (await client.tool_calls.enable())["disabled"] is False
            assert (await client.tools.invoke("echo", {"text": "a"}))["ok"]


def test_an_answer_carries_only_what_belongs_to_its_decision() -> None:
    asked = Interrupt.of({"id": "i", "reason": "a_later_one", "tool_input": "x", "message": 5})
    assert (asked.message, asked.expires_at, asked.decisions) == (None, None, ())
    assert [answer.to_json() for answer in (asked.approve(), asked.edit("y"), asked.reject(), asked.respond(None))] == [
        {"interrupt_id": "i", "decision": "approve"},
        {"interrupt_id": "i", "decision": "edit", "tool_input": "y"},
        {"interrupt_id": "i", "decision": "reject"},
        {"interrupt_id": "i", "decision": "respond", "output": None},
    ]
