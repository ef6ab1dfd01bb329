"""Runs that wait: for a person's approval, for the caller's own tool, for a tool that answers later."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from dirty_equals import IsStr

from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.server import OTHER, RunwireServer
from tests.support.streams import names, read_events
from tests.support.streams import stream as open_stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

ASKS: dict[str, object] = {"requires_approval": True}


def refund(tools: ToolServer, name: str = "refund", path: str = "/echo", /, **more: object) -> dict[str, object]:
    parameters = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    return tool_spec(name, tools.url(path), parameters=parameters, **more)


async def posted(client: httpx.AsyncClient, body: Mapping[str, object]) -> dict[str, Any]:
    """The run when it waits or is over."""
    answer = await client.post("/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    return cast("dict[str, Any]", answer.json())


async def resume(client: httpx.AsyncClient, run: Mapping[str, Any], *responses: Mapping[str, object]) -> httpx.Response:
    return await client.post(f"/runs/{run['id']}/resume", json={"responses": list(responses)})


async def settled(client: httpx.AsyncClient, run: Mapping[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", (await client.get(f"/runs/{run['id']}/wait")).json())


async def steps_of(client: httpx.AsyncClient, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", (await client.get(f"/runs/{run['id']}/steps")).json()["data"])


async def asked(client: httpx.AsyncClient, tools: ToolServer, *amounts: int, **spec: object) -> dict[str, Any]:
    """A run whose calls of one round wait for a person."""
    script = scripted(calls(*(("refund", {"amount": amount}) for amount in amounts)), says("done"))
    run = await posted(client, run_body(script, refund(tools, "refund", "/echo", **{**ASKS, **spec})))
    assert run["status"] == "interrupted"
    assert [item["tool_input"]["amount"] for item in run["interrupts"]] == list(amounts)
    return run


def effects_of(tools: ToolServer, run: Mapping[str, Any], steps: list[dict[str, Any]]) -> list[object]:
    ids = {step["tool_call_id"] for step in steps}
    return [effect["arguments"] for effect in tools.effects() if effect["tool_call_id"] in ids]


@pytest.mark.parametrize(
    ("answer", "sent", "observation", "status"),
    [
        ({"decision": "approve"}, [{"amount": 5}], {"amount": 5}, "success"),
        ({"decision": "edit", "tool_input": {"amount": 2}}, [{"amount": 2}], {"amount": 2}, "success"),
        ({"decision": "respond", "output": {"by": "hand"}}, [], {"by": "hand"}, "success"),
        ({"decision": "respond", "output": None}, [], None, "success"),
        (
            {"decision": "reject", "message": "too much"},
            [],
            "User rejected the tool call for `refund` with reason: too much",
            "denied",
        ),
        ({"decision": "reject"}, [], IsStr(regex="User rejected the tool call for `refund` with id .*"), "denied"),
    ],
)
async def test_a_person_decides_what_becomes_of_a_call(
    client: httpx.AsyncClient,
    tools: ToolServer,
    answer: dict[str, object],
    sent: list[object],
    observation: object,
    status: str,
) -> None:
    run = await asked(client, tools, 5)
    assert effects_of(tools, run, await steps_of(client, run)) == []
    taken = await resume(client, run, {"interrupt_id": run["interrupts"][0]["id"], **answer})
    assert taken.status_code == 202
    ended = await settled(client, run)
    assert (ended["status"], ended["attempt"], ended["interrupts"]) == ("success", 1, [])
    (step,) = await steps_of(client, run)
    assert (step["observation"], step["status"]) == (observation, status)
    assert effects_of(tools, run, [step]) == sent
    chain = (await client.get(f"/runs/{run['id']}/steps/1")).json()["chain"]
    assert "approval" in [item["stage"] for item in chain]


async def test_the_stream_parks_and_is_taken_up_without_a_gap(client: httpx.AsyncClient, tools: ToolServer) -> None:
    script = scripted(calls(("refund", {"amount": 1})), says("done"))
    async with open_stream(
        client, "POST", "/runs/stream", json=run_body(script, refund(tools, "refund", "/echo", **ASKS))
    ) as stream:
        first = await stream.rest()
    assert names(first)[-2:] == ["interrupt", "run"]
    assert first[-1].data["status"] == "interrupted"
    run = (await client.get(f"/runs/{first[0].data['run_id']}")).json()
    again = await client.get(f"/runs/{run['id']}/stream", headers={"Last-Event-ID": str(first[-1].id)})
    assert again.status_code == 204
    held = asyncio.create_task(client.get(f"/runs/{run['id']}/stream?hold=true"))
    await resume(client, run, {"interrupt_id": run["interrupts"][0]["id"], "decision": "approve"})
    events = read_events((await held).content)
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert [event.raw for event in events[: len(first)]] == [event.raw for event in first]
    assert events[len(first)].data["status"] == "running"
    assert names(events)[-1] == "end"


async def test_siblings_run_meanwhile_and_answers_come_in_any_order(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    script = scripted(
        calls(("refund", {"amount": 1}), ("free", {"amount": 2}), ("refund", {"amount": 3})), says("done")
    )
    run = await posted(client, run_body(script, refund(tools, "refund", "/echo", **ASKS), refund(tools, "free")))
    assert [step["status"] for step in await steps_of(client, run)] == ["waiting", "success", "waiting"]
    first, last = run["interrupts"]
    partly = await resume(client, run, {"interrupt_id": last["id"], "decision": "reject"})
    assert partly.json()["status"] == "interrupted"
    assert [item["id"] for item in partly.json()["interrupts"]] == [first["id"]]
    await resume(client, run, {"interrupt_id": first["id"], "decision": "approve"})
    assert (await settled(client, run))["status"] == "success"
    assert [step["status"] for step in await steps_of(client, run)] == ["success", "success", "denied"]
    messages = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    assert len([message for message in messages if message["role"] == "tool"]) == 3


async def test_of_a_hundred_racing_answers_one_wins(client: httpx.AsyncClient, tools: ToolServer) -> None:
    run = await asked(client, tools, 7)
    answer = {"interrupt_id": run["interrupts"][0]["id"], "decision": "approve"}
    answers = await asyncio.gather(*(resume(client, run, answer) for _ in range(100)))
    assert sorted(item.status_code for item in answers) == [202] + [409] * 99
    assert {item.json()["code"] for item in answers if item.status_code == 409} == {"interrupt_resolved"}
    await settled(client, run)
    assert len(effects_of(tools, run, await steps_of(client, run))) == 1


@pytest.mark.parametrize(
    ("answer", "status", "pointer"),
    [
        ({"decision": "edit", "tool_input": {"amount": "much"}}, 422, "/responses/0/tool_input/amount"),
        ({"decision": "edit", "tool_input": "5"}, 422, "/responses/0/tool_input"),
        ({"decision": "edit", "tool_input": [5]}, 422, "/responses/0/tool_input"),
        ({"decision": "edit", "tool_input": {"amount": 1, "__proto__": {"x": 1}}}, 422, "/responses/0/tool_input"),
        ({"decision": "edit", "tool_input": {"amount": 1, "currency": "USD"}}, 422, "/responses/0/tool_input/currency"),
        ({"decision": "respond", "output": "by hand"}, 422, "/responses/0/output"),
        ({"decision": "respond", "message": "by hand"}, 422, "/responses/0/message"),
        ({"decision": "edit"}, 422, "/responses/0"),
        ({"decision": "approve", "tool_input": {"amount": 1}}, 422, "/responses/0"),
        ({"decision": "respond"}, 422, "/responses/0"),
        ({"decision": "maybe"}, 422, "/responses/0/decision"),
        ({"decision": "approve", "colour": 1}, 422, "/responses/0/colour"),
    ],
)
async def test_an_answer_that_does_not_fit_keeps_nothing_and_a_right_one_works_after_it(
    client: httpx.AsyncClient, tools: ToolServer, answer: dict[str, object], status: int, pointer: str
) -> None:
    output = {"type": "object", "required": ["by"]}
    run = await asked(client, tools, 1, constants={"currency": "EUR"}, output_schema=output)
    assert run["interrupts"][0]["response_schema"]["properties"]["output"] == output
    interrupt = {"interrupt_id": run["interrupts"][0]["id"]}
    refused = await resume(client, run, {**interrupt, **answer})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (status, pointer)
    assert (await client.get(f"/runs/{run['id']}")).json()["interrupts"] == run["interrupts"]
    assert (await resume(client, run, {**interrupt, "decision": "reject"})).status_code == 202
    assert (await settled(client, run))["status"] == "success"


async def test_an_edit_takes_what_the_call_would_take_and_its_constants_stay(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    """The input as the question shows it, its constants in, and a number written as text where the tool takes that."""
    run = await asked(client, tools, 1, constants={"currency": "EUR"}, coerce=True)
    (question,) = run["interrupts"]
    assert question["tool_input"] == {"amount": 1, "currency": "EUR"}
    edited = {**question["tool_input"], "amount": "3"}
    taken = await resume(client, run, {"interrupt_id": question["id"], "decision": "edit", "tool_input": edited})
    assert taken.status_code == 202, taken.text
    assert (await settled(client, run))["status"] == "success"
    (step,) = await steps_of(client, run)
    assert (step["status"], step["observation"]) == ("success", {"amount": 3, "currency": "EUR"})
    assert effects_of(tools, run, [step]) == [{"amount": 3, "currency": "EUR"}]


async def test_unknown_interrupts_finished_runs_and_other_tenants_are_refused(
    client: httpx.AsyncClient, server: RunwireServer, tools: ToolServer
) -> None:
    run = await asked(client, tools, 1)
    wrong = await resume(client, run, {"interrupt_id": "nope", "decision": "approve"})
    assert (wrong.status_code, wrong.json()["code"]) == (404, "interrupt_not_found")
    answer = {"interrupt_id": run["interrupts"][0]["id"], "decision": "reject"}
    async with server.client(OTHER) as stranger:
        assert (await resume(stranger, run, answer)).status_code == 404
    both = await resume(client, run, answer, answer)
    assert both.status_code == 422
    await resume(client, run, answer)
    await settled(client, run)
    late = await resume(client, run, answer)
    assert (late.status_code, late.json()["code"]) == (409, "interrupt_resolved")
    unknown = await resume(client, run, {"interrupt_id": "nope", "decision": "approve"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "interrupt_not_found")


@pytest.mark.parametrize(("amount", "status"), [(1000, "success"), (1001, "interrupted"), (None, "error")])
async def test_a_rule_asks_only_where_the_arguments_fit_it(
    client: httpx.AsyncClient, tools: ToolServer, amount: int | None, status: str
) -> None:
    rule = {"when": {"properties": {"amount": {"exclusiveMinimum": 1000}}}}
    arguments: dict[str, object] = {} if amount is None else {"amount": amount}
    script = scripted(calls(("refund", arguments)), says("done"))
    run = await posted(client, run_body(script, refund(tools, requires_approval=rule)))
    steps = await steps_of(client, run)
    assert (run["status"] if status == "interrupted" else steps[0]["status"]) == status


async def test_an_agent_can_be_stricter_than_its_tool_but_never_laxer(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    script = scripted(calls(("refund", {"amount": 1})), says("done"))
    free, strict = refund(tools), refund(tools, "refund", "/echo", **ASKS)
    for tool, setting in ((free, {"refund": True}), (strict, {"refund": False}), (strict, {})):
        run = await posted(client, run_body(script, tool, agent={"interrupt_on": setting}))
        assert run["status"] == "interrupted"


async def test_what_nobody_answers_in_time_is_rejected(client: httpx.AsyncClient, tools: ToolServer) -> None:
    run = await asked(client, tools, 1, requires_approval={"expires_s": 0.2})
    async with open_stream(client, "GET", f"/runs/{run['id']}/stream?hold=true") as stream:
        events = await stream.rest()
    assert names(events)[-1] == "end"
    (step,) = await steps_of(client, run)
    assert (step["status"], step["error"]["code"]) == ("denied", "approval_expired")
    late = await resume(client, run, {"interrupt_id": run["interrupts"][0]["id"], "decision": "approve"})
    assert (late.status_code, late.json()["code"]) == (409, "interrupt_expired")
    assert effects_of(tools, run, [step]) == []


async def test_a_run_that_waits_is_cancelled_at_once(client: httpx.AsyncClient, tools: ToolServer) -> None:
    run = await asked(client, tools, 1, 2)
    ended = (await client.post(f"/runs/{run['id']}/cancel", params={"wait": "true"})).json()
    assert (ended["status"], ended["interrupts"]) == ("cancelled", [])
    assert [step["status"] for step in await steps_of(client, run)] == ["cancelled", "cancelled"]
    gone = await resume(client, run, {"interrupt_id": run["interrupts"][0]["id"], "decision": "approve"})
    assert (gone.status_code, gone.json()["code"]) == (409, "run_not_interrupted")


async def test_the_caller_runs_a_tool_without_an_address(client: httpx.AsyncClient) -> None:
    local = {"name": "read_file", "description": "Reads a local file.", "effect": "read"}
    script = scripted(calls(("read_file", {"path": "a.txt"})), says("done"))
    run = await posted(client, run_body(script, local))
    (asked,) = run["interrupts"]
    assert (asked["reason"], asked["tool_input"]) == ("client_tool", {"path": "a.txt"})
    wrong = await resume(client, run, {"interrupt_id": asked["id"], "decision": "approve"})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/responses/0/decision")
    await resume(client, run, {"interrupt_id": asked["id"], "decision": "respond", "output": {"text": "hi"}})
    assert (await settled(client, run))["status"] == "success"
    (step,) = await steps_of(client, run)
    assert step["observation"] == {"text": "hi"}


# --- deferred tools ---------------------------------------------------------------------------------------------------


async def deferred(
    client: httpx.AsyncClient, tools: ToolServer, **spec: object
) -> tuple[dict[str, Any], dict[str, object]]:
    """A run that runs on while its tool works, and what the tool knows of the call."""
    script = scripted(calls(("later", {"amount": 1})), says("done"))
    run = (await client.post("/runs", json=run_body(script, refund(tools, "later", "/202", **spec)))).json()
    async with asyncio.timeout(20):
        while True:
            ids = {step["tool_call_id"] for step in await steps_of(client, run)}
            for effect in tools.effects():
                if effect["tool_call_id"] in ids:
                    return run, effect


async def call_back(
    client: httpx.AsyncClient, effect: Mapping[str, object], body: object, *, token: object = None, to: str = "result"
) -> httpx.Response:
    url = str(effect["callback_url"]).removesuffix("/result") + f"/{to}"
    headers = {"Authorization": f"Bearer {token or effect['callback_token']}"}
    return await client.post(url, json=body, headers=headers)


@pytest.mark.parametrize(
    ("body", "observation", "status"),
    [
        ({"output": {"refunded": 1}}, {"refunded": 1}, "success"),
        ({"refunded": 1}, {"refunded": 1}, "success"),
        ("done", "done", "success"),
        ({"error": {"message": "No such order.", "code": "no_order"}}, "No such order.", "error"),
    ],
)
async def test_a_tool_answers_later_and_the_run_goes_on(
    client: httpx.AsyncClient, tools: ToolServer, body: object, observation: object, status: str
) -> None:
    run, effect = await deferred(client, tools)
    assert (await client.get(f"/runs/{run['id']}")).json()["status"] == "running"
    told = await call_back(client, effect, {"progress": 0.5, "message": "half"}, to="progress")
    assert told.status_code == 200
    assert (await call_back(client, effect, body)).status_code == 200
    assert (await call_back(client, effect, body)).status_code in (200, 410)
    other = await call_back(client, effect, {"output": "another"})
    assert other.status_code in (409, 410)
    ended = await settled(client, run)
    assert (ended["status"], ended["attempt"]) == ("success", 1)
    (step,) = await steps_of(client, run)
    assert (step["observation"], step["status"]) == (observation, status)
    events = read_events((await client.get(f"/runs/{run['id']}/stream")).content)
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert names(events).count("run") == 1
    assert names(events).count("progress") == 1


async def test_a_flood_of_progress_is_taken_and_a_part_of_it_kept(client: httpx.AsyncClient, tools: ToolServer) -> None:
    run, effect = await deferred(client, tools)
    flood = [call_back(client, effect, {"progress": 0.5, "message": "x" * 2000}, to="progress") for _ in range(400)]
    assert {answer.status_code for answer in await asyncio.gather(*flood)} == {200}
    assert (await call_back(client, effect, {"output": "done"})).status_code == 200
    assert (await settled(client, run))["status"] == "success"
    assert 10 <= names(read_events((await client.get(f"/runs/{run['id']}/stream")).content)).count("progress") < 200
    over = await call_back(client, effect, {"progress": 1}, to="progress")
    assert over.status_code in (200, 410)


async def test_a_plugin_that_reports_all_the_time_fills_no_journal(client: httpx.AsyncClient) -> None:
    run = await posted(client, run_body(scripted(calls(("babble", {"times": 10_000})), says("x")), "babble"))
    assert run["status"] == "success"
    assert 10 <= names(read_events((await client.get(f"/runs/{run['id']}/stream")).content)).count("progress") < 500


async def test_a_callback_needs_the_calls_own_token(client: httpx.AsyncClient, tools: ToolServer) -> None:
    run, effect = await deferred(client, tools)
    _, other = await deferred(client, tools)
    for token in ("x", other["callback_token"], str(effect["callback_token"])[:-1]):
        refused = await call_back(client, effect, {"output": 1}, token=token)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
    await client.post(f"/runs/{run['id']}/cancel", params={"wait": "true"})
    late = await call_back(client, effect, {"output": 1})
    assert (late.status_code, late.json()["code"]) == (410, "call_over")
    (step,) = await steps_of(client, run)
    assert step["status"] == "unknown"


@pytest.mark.parametrize(("kind", "status"), [({}, "unknown"), ({"effect": "read"}, "timeout")])
async def test_a_tool_that_never_calls_back_ends_at_its_deadline(
    client: httpx.AsyncClient, tools: ToolServer, kind: dict[str, object], status: str
) -> None:
    run, effect = await deferred(client, tools, deadline_s=0.3, **kind)
    assert (await settled(client, run))["status"] == "success"
    (step,) = await steps_of(client, run)
    assert step["status"] == status
    assert (await call_back(client, effect, {"output": 1})).status_code == 410


async def test_answers_survive_a_restart_in_between(tmp_path: Path) -> None:
    with ToolServer.start(tmp_path) as tools, RunwireServer.open(tmp_path) as server:
        async with server.client() as client:
            waiting = await asked(client, tools, 1)
            late, effect = await deferred(client, tools)
            async with asyncio.timeout(20):
                while (await steps_of(client, late))[0]["status"] != "waiting":  # a 202 that was read, and is kept
                    pass
        server.kill()
        server.start()
        async with server.client() as client:
            assert (await client.get(f"/runs/{waiting['id']}")).json()["status"] == "interrupted"
            moved = {**effect, "callback_url": f"{server.url}/tool-calls/{effect['tool_call_id']}/result"}
            assert (await call_back(client, moved, {"output": "late"})).status_code == 200
            await resume(client, waiting, {"interrupt_id": waiting["interrupts"][0]["id"], "decision": "approve"})
            for run in (waiting, late):
                assert (await settled(client, run))["status"] == "success"
                events = read_events((await client.get(f"/runs/{run['id']}/stream")).content)
                assert [event.id for event in events] == list(range(1, len(events) + 1))
            assert len(tools.effects()) == 2
