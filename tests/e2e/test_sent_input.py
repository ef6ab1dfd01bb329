"""What a call was sent where that is not what the model asked for: in every record of it, and in what the model reads."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from dirty_equals import IsStr

from app.agent.observing import NOTICE
from tests.e2e.ledger import until_effects
from tests.e2e.test_waiting_crashes import ASKS, PARAMETERS, answered, begun, called_back, ended, restart, tool, until
from tests.e2e.text_runs import agent as text_agent
from tests.support import chat_completions
from tests.support.bodies import calls, openai, run_body, says, scripted, shown, tool_spec
from tests.support.chat_completions import ChatCompletionsServer
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

NAME = "refund"


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    env = {"RUNWIRE_PUBLIC_URL": "http://runwire.test"}  # the port is another one after a restart
    with RunwireServer.open(tmp_path, env=env) as running:
        yield running


def sha256(arguments: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def changed(arguments: Mapping[str, object], name: str = NAME) -> str:
    made = f"{name} with arguments {json.dumps(arguments, separators=(',', ':'))}"
    return f"{NOTICE} Executed instead: {made}.\n\nTool response:\n"


async def asked(client: httpx.AsyncClient, *specs: dict[str, object]) -> dict[str, Any]:
    run = await begun(client, *specs)
    return cast("dict[str, Any]", (await client.get(f"/runs/{run['id']}/wait")).json())


async def results_of(client: httpx.AsyncClient, run: Mapping[str, Any]) -> list[str]:
    """What the model reads of the calls."""
    messages = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    return [message["content"] for message in messages if message["role"] == "tool"]


async def test_every_record_of_an_edited_call_has_what_was_asked_for_and_what_was_sent(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    edited: dict[str, object] = {"n": 7, "note": "x" * 5000}
    async with asyncio.timeout(TIMEOUT_S):
        run = await asked(client, tool(tools, NAME, **ASKS))
        await answered(client, run, decision="edit", tool_input=edited)
        after, told, (step,) = await ended(client, run["id"])
        (listed,) = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
        (audited,) = (await client.get("/tool-calls", params={"run_id": run["id"]})).json()["data"]
        detail = (await client.get(f"/tool-calls/{step['tool_call_id']}")).json()
        peer = (await client.get(f"/runs/{run['id']}/steps", params={"format": "langchain"})).json()["data"]
        results = await results_of(client, run)
    (event,) = [item.data for item in told if item.event == "step"]
    for record in cast("list[dict[str, Any]]", [listed, step, event]):
        assert (record["action"]["tool_input"], record["sent_input"]) == ({"n": 1}, edited)
        assert record["observation"] == edited
    for record in (audited, detail):
        assert (record["tool_input"], record["sent_input"]) == ({"n": 1}, edited)
    assert {record["arguments_sha256"] for record in (step, audited, detail)} == {sha256(edited)}
    assert peer[0]["action"]["kwargs"]["tool_input"] == edited
    asking = peer[0]["action"]["kwargs"]["message_log"][0]["kwargs"]["tool_calls"]
    assert [call["args"] for call in asking] == [{"n": 1}]
    assert results == [changed(edited) + json.dumps(edited, separators=(",", ":"))]
    assert after["status"] == "success"
    sent = [effect for effect in tools.effects() if effect["tool_call_id"] == step["tool_call_id"]]
    assert [effect["arguments"] for effect in sent] == [edited]


@pytest.mark.parametrize(
    ("said", "observation"),
    [
        ({"decision": "approve"}, {"n": 1}),
        ({"decision": "edit", "tool_input": {"n": 1}}, {"n": 1}),
        ({"decision": "reject"}, IsStr(regex="User rejected the tool call for `refund` with id .*")),
        ({"decision": "respond", "output": 2}, 2),
    ],
)
async def test_a_call_that_was_sent_as_asked_or_not_at_all_has_no_other_input(
    client: httpx.AsyncClient, tools: ToolServer, said: dict[str, Any], observation: object
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await asked(client, tool(tools, NAME, **ASKS))
        await answered(client, run, **said)
        _, _, (step,) = await ended(client, run["id"])
        (result,) = await results_of(client, run)
    assert (step["sent_input"], step["observation"]) == (None, observation)
    assert step["arguments_sha256"] == sha256({"n": 1})
    assert "A person changed" not in result


@pytest.mark.parametrize(("edits", "sent"), [(False, {"n": 3}), (True, {"n": 4})])
async def test_what_coercion_makes_of_an_input_is_what_was_sent_and_no_news_to_the_model(
    client: httpx.AsyncClient, tools: ToolServer, edits: bool, sent: dict[str, object]
) -> None:
    """The constants, which every call carries, are in neither input."""
    spec = tool(tools, NAME, coerce=True, constants={"unit": "EUR"}, **(ASKS if edits else {}))
    script = scripted(calls((NAME, {"n": "3"})), says("done"))
    async with asyncio.timeout(TIMEOUT_S):
        run = (await client.post("/runs/wait", json=run_body(script, spec))).json()
        if edits:
            await answered(client, run, decision="edit", tool_input={"n": "4", "unit": "EUR"})
        _, _, (step,) = await ended(client, run["id"])
        (result,) = await results_of(client, run)
    assert (step["action"]["tool_input"], step["sent_input"]) == ({"n": "3"}, sent)
    assert (step["observation"], step["arguments_sha256"]) == ({**sent, "unit": "EUR"}, sha256(sent))
    assert result.startswith(changed(sent)) is edits


async def test_a_text_agent_reads_that_its_call_was_changed_also_after_a_restart(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    parameters = {"type": "object", "properties": {"order": {"type": "string"}}}
    spec = tool_spec(NAME, own_tools.url("/echo"), parameters=parameters, **ASKS)
    turns = [
        chat_completions.says(f"Thought: pay\nAction: {NAME}\nAction Input: A-1"),
        chat_completions.says(f"Thought: again\nAction: {NAME}\nAction Input: A-3"),
        chat_completions.says("Thought: I know\nFinal Answer: done"),
    ]
    async with asyncio.timeout(2 * TIMEOUT_S), ChatCompletionsServer(turns) as model:
        async with own.client() as client:
            body = {"agent": text_agent("react", openai(model.base_url), spec), "input": "q?"}
            run = (await client.post("/runs/wait", json=body)).json()
            await answered(client, run, decision="edit", tool_input={"order": "A-2"})
            run = (await client.get(f"/runs/{run['id']}/wait")).json()
        await restart(own)
        async with own.client() as client:
            await answered(client, run, decision="reject")
            assert (await client.get(f"/runs/{run['id']}/wait")).json()["status"] == "success"
            steps = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
        prompts = [str(shown(request)[-1]["content"]) for request in model.requests]
    assert [step["action"]["tool_input"] for step in steps] == ["A-1", "A-3"]
    assert [step["sent_input"] for step in steps] == [{"order": "A-2"}, None]
    observed = f'Observation: {changed({"order": "A-2"})}{{"order":"A-2"}}\n'
    assert observed in prompts[1]
    assert observed in prompts[2]


@pytest.mark.parametrize("path", ["/hold", "/202", "/never"])
@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_crash_loses_nothing_of_what_was_sent(
    own: RunwireServer, own_tools: ToolServer, path: str, idempotent: bool
) -> None:
    """`/202`: it answers later; `/never`: so, but its 202 never came."""
    edited = {"n": 7}
    async with asyncio.timeout(2 * TIMEOUT_S):
        async with own.client() as client:
            run = await asked(client, tool(own_tools, NAME, path, idempotent=idempotent, **ASKS))
            await answered(client, run, decision="edit", tool_input=edited)
            (effect,) = await until_effects(own_tools, NAME, count=1)
            (step,) = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
            assert (step["action"]["tool_input"], step["sent_input"]) == ({"n": 1}, edited)
        if path == "/never":
            assert (await called_back(own, effect, {"output": "late"})).status_code == 200
        own.kill()
        own_tools.release()
        await restart(own)
        if path == "/202":
            assert (await called_back(own, effect, {"output": "late"})).status_code == 200
        async with own.client() as client:
            _, _, (step,) = await ended(client, run["id"])
            (result,) = await results_of(client, run)
    assert (step["action"]["tool_input"], step["sent_input"]) == ({"n": 1}, edited)
    assert step["arguments_sha256"] == sha256(edited)
    assert result.startswith(changed(edited))
    assert step["started_at"] == step["attempts"][0]["at"]
    assert [item["verdict"] for item in step["chain"] if item["stage"] == "approval"].count("edited") == 1
    effects = own_tools.effects()
    assert len({(item["idempotency_key"], item["body_sha256"]) for item in effects}) == 1
    assert {json.dumps(item["arguments"]) for item in effects} == {json.dumps(edited)}


async def test_a_cut_after_a_restart_tells_what_was_sent_and_who_decided(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    async with asyncio.timeout(2 * TIMEOUT_S):
        async with own.client() as client:
            run = await asked(client, tool(own_tools, NAME, "/202", **ASKS), tool(own_tools, "other", **ASKS))
            await answered(client, run, 1, decision="reject")
            await answered(client, run, 0, decision="edit", tool_input={"n": 7})
            await until(client, run["id"], "waiting", "denied")  # its 202 is recorded
        await restart(own)
        async with own.client() as client:
            over = await client.post(f"/runs/{run['id']}/cancel", params={"wait": "true"})
            assert over.json()["status"] == "cancelled"
            step = (await client.get(f"/runs/{run['id']}/steps/1")).json()
            (result, _) = await results_of(client, run)
    assert (step["status"], step["sent_input"]) == ("unknown", {"n": 7})
    assert [item["outcome"] for item in step["attempts"]] == ["deferred"]
    assert [item["verdict"] for item in step["chain"] if item["stage"] == "approval"] == ["asked", "edited"]
    assert result.startswith(changed({"n": 7}))


async def test_a_call_of_the_callers_was_handed_over_as_it_was_edited(client: httpx.AsyncClient) -> None:
    spec = {"name": "read_file", "description": "Reads.", "parameters": PARAMETERS, **ASKS}
    async with asyncio.timeout(TIMEOUT_S):
        run = await asked(client, spec)
        await answered(client, run, decision="edit", tool_input={"n": 9})
        run = (await client.get(f"/runs/{run['id']}/wait")).json()
        await answered(client, run, decision="respond", output="text")
        _, _, (step,) = await ended(client, run["id"])
        (result,) = await results_of(client, run)
    assert (step["sent_input"], step["observation"]) == ({"n": 9}, "text")
    assert result == changed({"n": 9}, "read_file") + "text"
