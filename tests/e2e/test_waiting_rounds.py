"""Waiting within the loop: what the model reads after it, the run's limits and its clock, what is counted, 200 lost answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.agent.observing import NOTICE
from tests.e2e.ledger import until_effects
from tests.e2e.test_waiting_crashes import ASKS, answered, begun, called_back, ended, restart, tool
from tests.e2e.text_runs import agent as text_agent
from tests.support import anthropic_messages, chat_completions
from tests.support.bodies import calls, openai, run_body, says, scripted, shown, tool_spec
from tests.support.chat_completions import ChatCompletionsServer
from tests.support.scrape import scrape
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

CUT = 200


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    with RunwireServer.open(tmp_path) as running:
        yield running


async def posted(client: httpx.AsyncClient, body: object) -> dict[str, Any]:
    answer = await client.post("/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_200_writes_cut_after_their_effect_are_unknown_and_none_is_repeated(
    own: RunwireServer, own_tools: ToolServer
) -> None:
    """A quarter each: the connection closes, the body breaks off, an error of the server, and a kill -9 of ours."""
    lost = [tool(own_tools, f"cut_by_{path[1:]}", path) for path in ("/close-after", "/half", "/500")]
    hanging = tool(own_tools, "never", "/never", timeout_s=60)
    each = CUT // 4

    def turn(name: str) -> dict[str, object]:
        return calls(*((name, {"n": number}) for number in range(each)))

    async with asyncio.timeout(4 * TIMEOUT_S):
        async with own.client() as client:
            script = scripted(*(turn(str(spec["name"])) for spec in lost), turn("never"), says("done"))
            body = run_body(script, *lost, hanging, agent={"max_parallel_tools": each})
            answer = await client.post("/runs", json=body)
            assert answer.status_code == 201, answer.text
            run = answer.json()
            await until_effects(own_tools, "never", count=each)
        await restart(own)
        async with own.client() as client:
            answer = await client.get(f"/runs/{run['id']}/wait", params={"timeout_s": 20})
            assert answer.json()["status"] == "success"
            steps: list[dict[str, Any]] = []
            after: str | None = None
            while True:
                page = (
                    await client.get(
                        f"/runs/{run['id']}/steps", params={"limit": 100} | ({"after": after} if after else {})
                    )
                ).json()
                steps += page["data"]
                after = page["next_cursor"]
                if not page["has_more"]:
                    break
    assert [step["status"] for step in steps] == ["unknown"] * CUT
    assert len(own_tools.effects()) == CUT
    assert own_tools.repeated() == {}


async def test_a_runs_clock_stands_while_it_waits(client: httpx.AsyncClient, tools: ToolServer) -> None:
    """The questions expire long after the run's time would have been used up; what it was active is kept."""
    slow = tool(tools, "slow_answer", requires_approval={"expires_s": 1.2})
    async with asyncio.timeout(TIMEOUT_S):
        run = await begun(client, slow, agent={"max_execution_time": 1})
        async with stream(client, "GET", f"/runs/{run['id']}/stream?hold=true") as opened:
            await opened.rest()
        after, _, (step,) = await ended(client, run["id"])
        assert (after["stop_reason"], step["error"]["code"]) == ("finish", "approval_expired")
        late = tool(tools, "slow_late", "/202", deadline_s=1.2)
        run = await begun(client, late, agent={"max_execution_time": 1})
        after, _, (step,) = await ended(client, run["id"])
        assert (after["stop_reason"], step["status"]) == ("finish", "unknown")


async def test_calls_over_the_runs_limit_are_not_asked_about(client: httpx.AsyncClient, tools: ToolServer) -> None:
    turn = calls(("limited", {"n": 1}), ("limited", {"n": 2}), ("limited", {"n": 3}))
    spec = tool(tools, "limited", **ASKS)
    body = run_body(scripted(turn, says("done")), spec, agent={"limits": {"max_tool_calls": 2}})
    async with asyncio.timeout(TIMEOUT_S):
        run = await posted(client, body)
        assert [item["tool_input"] for item in run["interrupts"]] == [{"n": 1}, {"n": 2}]
        await answered(client, run, 0)
        await answered(client, run, 1, decision="reject")
        after, _, steps = await ended(client, run["id"])
    assert [step["status"] for step in steps] == ["success", "denied", "error"]
    assert (after["usage"]["tool_calls"], after["stop_reason"]) == (3, "usage_limit")


@pytest.mark.parametrize(
    ("answer", "output", "reason"),
    [
        ({"decision": "approve"}, {"n": 1}, "return_direct"),
        ({"decision": "edit", "tool_input": {"n": 2}}, {"n": 2}, "return_direct"),
        ({"decision": "respond", "output": "mine"}, "mine", "return_direct"),
        ({"decision": "reject"}, "done", "finish"),
    ],
)
async def test_a_tool_whose_answer_is_the_runs_may_wait_for_a_person(
    client: httpx.AsyncClient, tools: ToolServer, answer: dict[str, Any], output: object, reason: str
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run = await posted(
            client,
            run_body(
                scripted(calls(("direct", {"n": 1})), says("done")), tool(tools, "direct", return_direct=True, **ASKS)
            ),
        )
        await answered(client, run, **answer)
        after, _, _ = await ended(client, run["id"])
    assert (after["output"], after["stop_reason"]) == ({"output": output}, reason)


async def test_a_text_agent_waits_and_reads_what_was_decided(client: httpx.AsyncClient, tools: ToolServer) -> None:
    script = scripted(
        says("I need it.\nAction: look\nAction Input: 5"), says("I now know.\nFinal Answer: done"),
    )  # fmt: skip
    spec = tool_spec(
        "look", tools.url("/echo"), parameters={"type": "object", "properties": {"q": {"type": "string"}}}, **ASKS
    )
    async with asyncio.timeout(TIMEOUT_S):
        decisions: list[tuple[dict[str, Any], object]] = [
            ({"decision": "approve"}, {"q": "5"}),
            ({"decision": "edit", "tool_input": {"q": "6"}}, {"q": "6"}),
            ({"decision": "reject", "message": "no"}, "User rejected the tool call for `look` with reason: no"),
        ]
        for answer, observation in decisions:
            run = await posted(client, {"agent": text_agent("react", script, spec), "input": "q?"})
            assert run["interrupts"][0]["tool_input"] == {"q": "5"}
            await answered(client, run, **answer)
            run = (await client.get(f"/runs/{run['id']}/wait")).json()
            (step,) = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
            assert (run["output"], step["observation"]) == ({"output": "done"}, observation)


TURN = [("a", "mixed_ask", 1), ("b", "mixed_free", 2), ("c", "mixed_ask", 3), ("d", "mixed_later", 4)]


def mixed(tools: ToolServer) -> list[dict[str, object]]:
    return [tool(tools, "mixed_ask", **ASKS), tool(tools, "mixed_free"), tool(tools, "mixed_later", "/202")]


async def decide(own: RunwireServer, client: httpx.AsyncClient, tools: ToolServer, run: dict[str, Any]) -> None:
    """The last question first, and rejected; the callback in between."""
    await answered(client, run, 1, decision="reject", message="too much")
    (effect,) = await until_effects(tools, "mixed_later", count=1)
    assert (await called_back(own, effect, {"output": "late"})).status_code == 200
    await answered(client, run, 0, decision="edit", tool_input={"n": 9})
    await ended(client, run["id"])


async def test_a_round_that_waited_is_valid_for_chat_completions(own: RunwireServer, own_tools: ToolServer) -> None:
    turn = chat_completions.calls(*((call, name, json.dumps({"n": n})) for call, name, n in TURN))
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer([turn, chat_completions.says("done")]) as model:
        async with own.client() as client:
            run = await posted(client, run_body(openai(model.base_url), *mixed(own_tools)))
            await decide(own, client, own_tools, run)
        *_, asking, one, two, three, four = shown(model.requests[1])
    assert [call["id"] for call in asking["tool_calls"]] == ["a", "b", "c", "d"]
    # The model sees what it said; what a person made of it is in the result.
    assert [json.loads(call["function"]["arguments"])["n"] for call in asking["tool_calls"]] == [1, 2, 3, 4]
    results = [(item["role"], item["tool_call_id"], item["content"]) for item in (one, two, three, four)]
    assert results == [
        ("tool", "a", f'{NOTICE} Executed instead: mixed_ask with arguments {{"n":9}}.\n\nTool response:\n{{"n":9}}'),
        ("tool", "b", '{"n":2}'),
        ("tool", "c", "User rejected the tool call for `mixed_ask` with reason: too much"),
        ("tool", "d", "late"),
    ]


async def test_a_round_that_waited_is_valid_for_anthropic(own: RunwireServer, own_tools: ToolServer) -> None:
    uses = [anthropic_messages.tool_use(call, name, {"n": n}) for call, name, n in TURN]
    replies = [anthropic_messages.answers(*uses, stop="tool_use"), anthropic_messages.says("done")]
    async with asyncio.timeout(TIMEOUT_S), anthropic_messages.messages_server(replies) as model:
        async with own.client() as client:
            spec = {"provider": "anthropic", "model": "m", "base_url": model.base_url, "api_key": "k"}
            run = await posted(client, run_body(spec, *mixed(own_tools)))
            await decide(own, client, own_tools, run)
        _, asking, results = shown(model.requests[1])
    assert [block["id"] for block in asking["content"]] == ["a", "b", "c", "d"]
    assert (results["role"], [block["type"] for block in results["content"]]) == ("user", ["tool_result"] * 4)
    assert [block["tool_use_id"] for block in results["content"]] == ["a", "b", "c", "d"]
    assert [bool(block.get("is_error")) for block in results["content"]] == [False, False, True, False]


async def test_a_call_that_waited_is_counted_once(own: RunwireServer, own_tools: ToolServer) -> None:
    async with asyncio.timeout(TIMEOUT_S), own.client() as client:
        before = await scrape(client)
        run = await begun(client, *mixed(own_tools))
        run = (await client.get(f"/runs/{run['id']}/wait")).json()
        await until_effects(own_tools, "mixed_later", count=1)
        (effect,) = await until_effects(own_tools, "mixed_later", count=1)
        assert (await called_back(own, effect, {"output": "late"})).status_code == 200
        await answered(client, run)
        await ended(client, run["id"])
        after = await scrape(client)
    assert after.sum("runwire_tool_calls_total") - before.sum("runwire_tool_calls_total") == 3
    assert after.sum("runwire_runs_total") - before.sum("runwire_runs_total") == 1
