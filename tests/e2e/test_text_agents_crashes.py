"""kill -9, cancel and time limits in every phase of a text agent's round: what it is shown afterwards is what it would have been."""

import asyncio
import re
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from tests.e2e.ledger import until_effects
from tests.e2e.text_runs import on, prompts, text_server
from tests.support.bodies import shown, tool_spec
from tests.support.chat_completions import ChatCompletionsServer, RecordedRequest, Reply, answer_chunks
from tests.support.chat_completions import events as sse
from tests.support.chat_completions import says as model_says
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import Event, check_whole, names, read_events, stream
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

DEMAND = "\n\nI now need to return a final answer based on the previous steps:"
SILENT = Reply(silent=True)

ACTS = {
    "react": "t\nAction: search\nAction Input: {foo}",
    "react_json": 'Action:\n```json\n{"action": "search", "action_input": {"x": "{foo}"}}\n```',
    "structured_chat": '```json\n{"action": "search", "action_input": {"x": "{foo}"}}\n```',
    "xml": "t <tool>search</tool><tool_input>{foo}</tool_input>",
    "self_ask": "t\nFollow up: {foo}",
}
FINISHES = {
    "react": "Final Answer: bar",
    "react_json": "Final Answer: bar",
    "structured_chat": '{"action": "Final Answer", "action_input": "bar"}',
    "xml": "<final_answer>bar</final_answer>",
    "self_ask": "So the final answer is: bar",
}


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    """A server of the test's own."""
    with text_server(tmp_path) as running:
        yield running


async def crash(server: RunwireServer) -> None:
    server.kill()
    await asyncio.to_thread(server.start)


async def story(client: httpx.AsyncClient, run_id: object) -> tuple[list[Event], dict[str, Any]]:
    """All events of a run and the run itself, after its end."""
    done = await client.get(f"/runs/{run_id}/wait", params={"timeout_s": 15})
    assert done.status_code == 200, done.text
    told = read_events((await client.get(f"/runs/{run_id}/stream")).content)
    check_whole(told)
    # Every action has its one step, numbered in order.
    actions = [(item.data["step"], item.data["tool_call_id"]) for item in told if item.event == "action"]
    steps = [(item.data["step"], item.data["tool_call_id"]) for item in told if item.event == "step"]
    assert actions == steps
    assert [step for step, _ in steps] == list(range(1, len(steps) + 1))
    return told, done.json()


def by_kind(play: Callable[[str, int], Reply]) -> Callable[[RecordedRequest], Reply]:
    """Replies by the type that the input names in `<<…>>`, and by how many requests it has made, from 1."""
    made: Counter[str] = Counter()

    def choose(request: RecordedRequest) -> Reply:
        kind = kind_of(request)
        made[kind] += 1
        return play(kind, made[kind])

    return choose


def kind_of(request: RecordedRequest) -> str:
    found = re.search(r"<<(\w+)>>", str(shown(request)[-1]["content"]))
    assert found is not None
    return found[1]


async def test_after_a_kill_every_type_is_shown_what_it_was_shown_before(own: RunwireServer) -> None:
    """Killed while the third answer is awaited, after an answer that cannot be read and a step."""

    def play(kind: str, number: int) -> Reply:
        unread = "<tool>" if kind == "xml" else "dunno"
        return [model_says(unread), model_says(ACTS[kind]), SILENT, model_says(FINISHES[kind])][number - 1]

    trims: dict[str, object] = {"react": {"keep_first": 1}, "xml": {"plugin": "odd_steps"}, "self_ask": 1}
    async with asyncio.timeout(2 * TIMEOUT_S), ChatCompletionsServer(by_kind(play)) as model:
        async with own.client() as client:
            runs: dict[str, str] = {}
            for kind in ACTS:
                trim = {"trim_intermediate_steps": trims[kind]} if kind in trims else {}
                body = on(model, kind, "search", text=f"<<{kind}>> {{x}}", **trim)
                runs[kind] = (await client.post("/runs", json=body)).json()["id"]
            await model.until(lambda: len(model.requests) == 3 * len(ACTS))
        await crash(own)
        async with own.client() as client:
            for kind, run_id in runs.items():
                told, run = await story(client, run_id)
                assert [item.data["attempt"] for item in told if item.event == "run"] == [1, 2]
                assert (run["output"], run["iterations"]) == ({"output": "bar"}, 3)
                assert (run["usage"]["model_calls"], run["usage"]["tool_calls"]) == (3, 1)
                assert [step["observation"] for step in run["intermediate_steps"]][1] == "search:{foo}"
                before, after = [cast("dict[str, Any]", item.json) for item in model.requests if kind_of(item) == kind][
                    2:
                ]
                assert before == after
                messages = (await client.get(f"/runs/{run_id}/messages")).json()["data"]
                assert messages[-2] == after["messages"][-1]
                assert messages[-1]["content"] == FINISHES[kind]


@pytest.mark.parametrize("phase", ["in the middle of an answer", "in the middle of the last word"])
async def test_a_kill_while_it_speaks_asks_again_under_a_new_message(own: RunwireServer, phase: str) -> None:
    last = phase == "in the middle of the last word"
    body = sse(answer_chunks("Final Answer: broken off"))
    broken = Reply(body=body, pause_after=len(body) - 300)
    replies = [model_says(ACTS["react"]), broken, model_says("hm, {bar}" if last else FINISHES["react"])]
    limit = {"max_iterations": 1, "early_stopping_method": "generate"} if last else {}
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer(replies) as model:
        async with (
            own.client() as client,
            stream(client, "POST", "/runs/stream", json=on(model, "react", "search", **limit)) as reading,
        ):
            await reading.until("step")
            await model.until(lambda: len(model.requests) == 2)
            own.kill()
            seen = await reading.until_broken()
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            told, run = await story(client, seen[0].data["run_id"])
        assert model.requests[1].json == model.requests[2].json
        assert prompts(model)[2].endswith(DEMAND) == last
    assert told[: len(seen)] == seen
    assert run["output"] == {"output": "hm, {bar}" if last else "bar"}
    assert (run["stop_reason"], run["iterations"]) == (("max_iterations", 1) if last else ("finish", 2))
    assert run["usage"]["model_calls"] == 2


async def test_a_kill_while_the_last_word_after_a_repeat_is_awaited_asks_for_it_again(own: RunwireServer) -> None:
    """The round that was one repeat too many is known after the restart, too."""
    act = model_says(ACTS["react"])
    settings = {"limits": {"max_repeats": 0}, "early_stopping_method": "generate"}
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer([act, act, SILENT, act]) as model:
        async with own.client() as client:
            run_id = (await client.post("/runs", json=on(model, "react", "search", **settings))).json()["id"]
            await model.until(lambda: len(model.requests) == 3)
        await crash(own)
        async with own.client() as client:
            _, run = await story(client, run_id)
        assert prompts(model)[2] == prompts(model)[3]
        assert prompts(model)[3].endswith(DEMAND)
    assert (run["stop_reason"], run["iterations"]) == ("max_repeats", 2)
    assert run["output"] == {"output": ACTS["react"]}


TOOL_PHASES = {
    "sent, and it may be sent again": ("again", 2, "success"),
    "sent, and it may not": ("once", 1, "unknown"),
    "not sent yet": ("once", 1, "success"),
}


@pytest.mark.parametrize("phase", TOOL_PHASES)
async def test_a_kill_around_a_tool_neither_repeats_nor_forgets_it(
    own: RunwireServer, own_tools: ToolServer, phase: str
) -> None:
    name, effects, status = TOOL_PHASES[phase]
    unsent = phase == "not sent yet"
    tool = tool_spec(name, own_tools.url("/hold"), idempotent=name == "again", timeout_s=15)
    act = f"Thought: t\nAction: {name}\nAction Input: {{foo}}"
    async with (
        asyncio.timeout(TIMEOUT_S),
        ChatCompletionsServer([model_says(act), model_says(FINISHES["react"])]) as model,
    ):
        async with own.client() as client:
            run_id = (await client.post("/runs", json=on(model, "react", tool))).json()["id"]
            await until_effects(own_tools, name, count=1)
        own.kill()
        if unsent:  # what a crash leaves between the answer and the dispatch
            own_tools.ledger.write_bytes(b"")
            with sqlite3.connect(own.folder / ".runwire" / "runwire.db") as database:
                database.execute("UPDATE tool_calls SET attempts = 0, state = 'proposed' WHERE run_id = ?", (run_id,))
            database.close()
        own_tools.release()
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            _, run = await story(client, run_id)
            (step,) = (await client.get(f"/runs/{run_id}/steps")).json()["data"]
        again = prompts(model)[1]
    assert (step["step"], step["iteration"], step["status"]) == (1, 1, status)
    observation = step["observation"] if isinstance(step["observation"], str) else "true"
    assert again.endswith(f"Thought: {act}\nObservation: {observation}\nThought: ")
    assert (run["output"], run["iterations"], run["usage"]["model_calls"]) == ({"output": "bar"}, 2, 2)
    found = own_tools.effects()
    assert len(found) == effects
    assert len({item["idempotency_key"] for item in found}) == 1
    assert {str(item["arguments"]) for item in found} == {"{'input': '{foo}'}"}


async def test_many_text_runs_survive_many_kills(own: RunwireServer, own_tools: ToolServer) -> None:
    """Whatever is killed when: no effect twice, each scratchpad whole."""
    write = tool_spec("write_text", own_tools.url("/slow?ms=20"))

    def play(request: RecordedRequest) -> Reply:
        done = str(shown(request)[-1]["content"]).count("\nObservation: ")
        return model_says(f"Action: write_text\nAction Input: {done + 1}" if done < 6 else "Final Answer: bar")

    async with asyncio.timeout(3 * TIMEOUT_S), ChatCompletionsServer(play) as model:
        runs: list[str] = []
        for kill in range(3):
            async with own.client() as client:
                body = on(model, "react", write)
                runs += [(await client.post("/runs", json=body)).json()["id"] for _ in range(8)]
                await until_effects(own_tools, "write_text", count=20 * (kill + 1))
            await crash(own)
        async with own.client() as client:
            for run_id in runs:
                _, run = await story(client, run_id)
                assert (run["output"], run["iterations"]) == ({"output": "bar"}, 7)
                inputs = [step["action"]["tool_input"] for step in run["intermediate_steps"]]
                assert inputs == ["1", "2", "3", "4", "5", "6"]
    assert not own_tools.repeated()


# --- cancel and time limits -------------------------------------------------------------------------------------------

PHASES: dict[str, tuple[list[Reply], dict[str, object]]] = {
    "the first answer": ([SILENT], {}),
    "a tool": ([model_says("Action: hang\nAction Input: ")], {}),
    "the answer after a step": ([model_says(ACTS["react"]), SILENT], {}),
    "the last word": (
        [model_says(ACTS["react"]), SILENT],
        {"max_iterations": 1, "early_stopping_method": "generate"},
    ),
}


@pytest.mark.parametrize("phase", PHASES)
async def test_a_cancel_ends_a_run_in_any_phase(own: RunwireServer, phase: str) -> None:
    replies, settings = PHASES[phase]
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer(replies) as model, own.client() as client:
        body = on(model, "react", "search", "hang", **settings)
        async with stream(client, "POST", "/runs/stream", json=body) as reading:
            await model.until(lambda: len(model.requests) == len(replies))
            if phase == "a tool":
                await reading.until("action")
            run_id = (await anext(aiter(reading)) if not reading.events else reading.events[0]).data["run_id"]
            run = (await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})).json()
        told, _ = await story(client, run_id)
        assert (run["status"], run["stop_reason"], run["output"]) == ("cancelled", "cancelled", None)
        assert names(told)[-1] == "end"
        await model.until(lambda: model.open_connections == 0 or phase == "a tool")
        after = await client.post(
            "/runs/wait",
            json={"agent": {"model": {"provider": "scripted", "script": [{"content": "next"}]}}, "input": "go",
                  "thread_id": run["thread_id"]},
        )  # fmt: skip
        assert after.json()["output"] == {"output": "next"}


@pytest.mark.parametrize("phase", ["the first answer", "a tool", "the answer after a step"])
@pytest.mark.parametrize("method", ["force", "generate"])
async def test_a_time_limit_ends_a_run_in_any_phase(own: RunwireServer, phase: str, method: str) -> None:
    def play(request: RecordedRequest) -> Reply:
        if str(shown(request)[-1]["content"]).endswith(DEMAND):
            return model_says("Final Answer: in time")
        replies, _ = PHASES[phase]
        return replies[min(len(model.requests), len(replies)) - 1]

    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer(play) as model, own.client() as client:
        settings = {"max_execution_time": 0.4, "early_stopping_method": method}
        run = (await client.post("/runs/wait", json=on(model, "react", "search", "hang", **settings))).json()
        await story(client, run["id"])
    assert (run["status"], run["stop_reason"]) == ("success", "max_execution_time")
    fixed = "Agent stopped due to iteration limit or time limit."
    assert run["output"] == {"output": fixed if method == "force" else "in time"}
