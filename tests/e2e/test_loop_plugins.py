"""Planners, parse policies and trimmers in Python, over HTTP: what they decide, and that their faults stay theirs."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.agent.cases import CASES
from tests.e2e.plugin_loop import BROKEN, SECRET
from tests.e2e.text_runs import agent, ended, on, prompts, spoken, steps_of, stop_of, text_server, told
from tests.support.bodies import says, scripted
from tests.support.chat_completions import ChatCompletionsServer, fails
from tests.support.chat_completions import says as model_says
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import check_whole, names, read_events, stream

pytestmark = pytest.mark.anyio

ACT = "Action: a\nAction Input: {}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    with text_server(tmp_path_factory.mktemp("plugins")) as running:
        yield running


def run_of(kind: str, *tools: object, text: object = "q", turns: tuple[str, ...] = (), **settings: object) -> Any:
    """A run on a scripted model that says these texts."""
    settings.setdefault("return_intermediate_steps", True)
    return {"agent": agent(kind, scripted(*map(says, turns)), *tools, **settings), "input": text}


# --- planners ---------------------------------------------------------------------------------------------------------


async def test_a_planner_decides_without_a_model(client: httpx.AsyncClient) -> None:
    events = await told(client, run_of("search_once", "search", text="where?"))
    run = (await client.get(f"/runs/{events[0].data['run_id']}")).json()
    assert (run["output"], run["iterations"]) == ({"output": "found search:where?"}, 2)
    assert steps_of(run) == [[{"tool": "search", "tool_input": "where?", "log": "I search"}, "search:where?"]]
    messages = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]


@pytest.mark.parametrize(("kind", "multi"), [("pair", False), ("pair_declared", True)])
async def test_several_actions_of_one_round_all_run(client: httpx.AsyncClient, kind: str, multi: bool) -> None:
    """A-W02: undeclared, they get the stop text of agents with single actions."""
    case = CASES["A-W02"]
    run = await ended(client, run_of(kind, "a", **case["given"]["settings"]))
    assert steps_of(run) == case["expect"]["intermediate_steps"]
    assert run["output"]["output"] == ("Agent stopped due to max iterations." if multi else case["expect"]["output"])


async def test_a_planner_asks_the_agents_model_and_its_words_stream(client: httpx.AsyncClient) -> None:
    async with ChatCompletionsServer([model_says("hello END there")]) as model:
        events = await told(client, on(model, "asks", "a", "calc", instructions="Be brief", text="who?"))
        assert (prompts(model), stop_of(model.requests[0])) == (["Be brief: who?"], ["END"])
    assert spoken(events) == "hello END there"
    finish = next(item.data for item in events if item.event == "finish")
    assert finish["return_values"] == {"output": "hello END there (1 ['a', 'calc'] 1)"}
    assert next(item.data for item in events if item.event == "usage")["total_tokens"] == 12


async def test_a_models_error_is_not_the_planners(client: httpx.AsyncClient) -> None:
    run = await ended(client, run_of("asks"))
    assert (run["status"], run["error"]["code"]) == ("error", "script_exhausted")


async def test_a_planner_may_ask_again_when_its_model_failed(client: httpx.AsyncClient) -> None:
    async with ChatCompletionsServer([fails(400, "no"), model_says("yes")]) as model:
        run = await ended(client, on(model, "persistent"))
        assert len(model.requests) == 2
    assert run["output"] == {"output": "yes"}


async def test_a_planner_that_can_read_nothing_is_handled_like_any_parser(client: httpx.AsyncClient) -> None:
    run = await ended(client, run_of("cannot_parse"))
    assert run["output"] == {"output": "_Exception try again"}
    assert steps_of(run) == [[{"tool": "_Exception", "tool_input": "try again", "log": "hm"}, "try again"]]
    run = await ended(client, run_of("cannot_parse", handle_parsing_errors=False))
    assert run["error"]["code"] == "output_parsing_error"
    run = await ended(client, run_of("cannot_parse", handle_parsing_errors={"plugin": "polite_async"}))
    assert run["output"] == {"output": "_Exception said 'hm'"}


async def test_a_planner_has_no_last_word(client: httpx.AsyncClient) -> None:
    """What it would need for one, its prompt, is its own: the fixed text stands, and no model is asked."""
    async with ChatCompletionsServer([model_says("no")]) as model:
        run = await ended(client, on(model, "pair", "a", max_iterations=1, early_stopping_method="generate"))
        assert not model.requests
    assert run["output"] == {"output": "Agent stopped due to iteration limit or time limit."}


async def test_a_finish_without_output_is_refused(client: httpx.AsyncClient) -> None:
    """A-100: `output` is the one key of a run's answer."""
    run = await ended(client, run_of("answer_key"))
    assert (run["status"], run["error"]["code"]) == ("error", "missing_output_keys")


async def test_a_planner_whose_tools_differ_is_refused(client: httpx.AsyncClient) -> None:
    """A-082, in the peer's words, with JSON's quotes."""
    answer = await client.post("/runs", json=run_of("search_once", "a"))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/agent/tools"
    assert 'Allowed tools (["search"]) different than provided tools (["a"])' in error["detail"]


@pytest.mark.parametrize(
    ("settings", "code", "pointer"),
    [
        ({"type": "no_such"}, "unknown_agent_type", "/type"),
        ({"type": "polite"}, "unknown_agent_type", "/type"),
        ({"handle_parsing_errors": {"plugin": "no_such"}}, "unknown_plugin", "/handle_parsing_errors/plugin"),
        ({"handle_parsing_errors": {"plugin": "odd_steps"}}, "unknown_plugin", "/handle_parsing_errors/plugin"),
        ({"trim_intermediate_steps": {"plugin": "no_such"}}, "unknown_plugin", "/trim_intermediate_steps/plugin"),
        ({"trim_intermediate_steps": {"plugin": "pair"}}, "unknown_plugin", "/trim_intermediate_steps/plugin"),
    ],
)
async def test_what_this_server_does_not_have_is_refused(
    client: httpx.AsyncClient, settings: dict[str, object], code: str, pointer: str
) -> None:
    spec = agent("react", scripted()) | settings
    for path, body, at in (
        ("/runs", {"agent": spec, "input": "q"}, "/agent"),
        ("/agents", {"name": "lacking", **spec}, ""),
    ):
        answer = await client.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, code)
        assert answer.json()["errors"][0]["pointer"] == at + pointer
    if "type" not in settings:
        answer = await client.post(
            "/runs", json={"agent": agent("react", scripted()), "input": "q", "config": settings}
        )
        assert (answer.status_code, answer.json()["code"]) == (422, code)


# --- faults -----------------------------------------------------------------------------------------------------------


async def failed(client: httpx.AsyncClient, server: RunwireServer, body: object) -> dict[str, Any]:
    """The error of a run that a plugin ended; nothing of its exception comes out, all of it is in the log."""
    answer = await client.post("/runs/stream", json=body)
    assert answer.status_code == 200, answer.text
    events = read_events(answer.content)
    check_whole(events)
    assert names(events)[-2:] == ["error", "end"]
    error = events[-2].data
    run = (await client.get(f"/runs/{events[0].data['run_id']}")).json()
    assert (run["status"], run["stop_reason"], run["error"]) == ("error", "error", error)
    assert error["code"] == "plugin_failed"
    assert error["request_id"]
    seen = answer.text + json.dumps(run) + (await client.get(f"/runs/{run['id']}/steps")).text
    assert SECRET not in seen
    assert str(error["request_id"]) in server.log()
    return error


@pytest.mark.parametrize("kind", [*BROKEN, "asks twice", "asks twice at once"])
async def test_a_planner_that_fails_ends_its_run_alone(
    client: httpx.AsyncClient, server: RunwireServer, kind: str
) -> None:
    error = await failed(client, server, run_of("breaks", "a", text=kind, turns=("1", "2")))
    assert "`breaks`" in str(error["message"])
    assert (await client.get("/livez")).status_code == 200


@pytest.mark.parametrize("name", ["policy_raises", "policy_exits", "policy_cancels", "policy_dict"])
async def test_a_policy_that_fails_ends_its_run_alone(
    client: httpx.AsyncClient, server: RunwireServer, name: str
) -> None:
    body = run_of("react", "a", turns=("dunno",), handle_parsing_errors={"plugin": name})
    error = await failed(client, server, body)
    assert f"`{name}`" in str(error["message"])


@pytest.mark.parametrize("name", ["trim_raises", "trim_exits", "trim_nothing", "trim_invents"])
async def test_a_trimmer_that_fails_ends_its_run_alone(
    client: httpx.AsyncClient, server: RunwireServer, name: str
) -> None:
    body = run_of("react", "a", turns=(ACT, "Final Answer: x"), trim_intermediate_steps={"plugin": name})
    error = await failed(client, server, body)
    assert f"`{name}`" in str(error["message"])
    (run, *_) = (await client.get("/runs", params={"limit": 1})).json()["data"]
    messages = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    assert "The task: q\n" in messages[-1]["content"]
    wrong = "it must give back some of the steps that it was given" in str(error["message"])
    assert wrong == (name == "trim_invents")


@pytest.mark.parametrize("kind", ["hangs", "stubborn"])
async def test_a_planner_that_hangs_can_be_cancelled_and_runs_out_of_time(client: httpx.AsyncClient, kind: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        run_id = (await client.post("/runs", json=run_of(kind))).json()["id"]
        run = (await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})).json()
        assert run["status"] == "cancelled"
        run = await ended(client, run_of(kind, max_execution_time=0.05))
    assert (run["stop_reason"], run["iterations"]) == ("max_execution_time", 0)


async def test_a_policy_that_hangs_can_be_cancelled_and_runs_out_of_time(client: httpx.AsyncClient) -> None:
    body = run_of("react", "a", turns=("dunno",), handle_parsing_errors={"plugin": "policy_hangs"})
    async with asyncio.timeout(TIMEOUT_S):
        async with stream(client, "POST", "/runs/stream", json=body) as reading:
            event = await reading.until("output")
            run_id = reading.events[0].data["run_id"]
            assert event.data["iteration"] == 1
            run = (await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})).json()
        assert run["status"] == "cancelled"
        body["agent"]["max_execution_time"] = 0.05
        run = await ended(client, body)
    assert (run["stop_reason"], run["iterations"], run["usage"]["model_calls"]) == ("max_execution_time", 1, 1)
    assert steps_of(run)[0][1] == "Invalid or incomplete response"


# --- policies and trimmers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "observation"),
    [("polite", "Please use the format: Could not parse LLM "), ("polite_async", "said 'dunno'")],
)
async def test_a_policy_words_what_the_model_reads(client: httpx.AsyncClient, name: str, observation: str) -> None:
    async with ChatCompletionsServer([model_says("dunno"), model_says("Final Answer: x")]) as model:
        run = await ended(client, on(model, "react", "a", handle_parsing_errors={"plugin": name}))
        assert f"Observation: {observation}\nThought: " in prompts(model)[1]
    ((action, observed),) = steps_of(run)
    assert isinstance(action, dict)
    assert (action["tool"], action["tool_input"], observed) == ("_Exception", observation, observation)


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        (2, [3, 4]),
        ({"keep_first": 1, "keep_last": 1}, [1, 4]),
        ({"keep_first": 2}, [1, 2]),
        ({"max_tokens": 0}, []),
        ({"max_tokens": 1000}, [1, 2, 3, 4]),
        ({"max_tokens": 20, "keep_first": 1}, [1, 4]),
        ({"plugin": "odd_steps"}, [1, 3]),
    ],
)
async def test_trimming_changes_the_prompt_only(client: httpx.AsyncClient, setting: object, seen: list[int]) -> None:
    replies = [model_says(ACT.format(number)) for number in (1, 2, 3, 4)]
    async with ChatCompletionsServer([*replies, model_says("Final Answer: x")]) as model:
        run = await ended(client, on(model, "react", "a", trim_intermediate_steps=setting))
        last = prompts(model)[4]
        messages = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    assert [number for number in (1, 2, 3, 4) if f"Observation: a:{number}\n" in last] == seen
    assert [observation for _, observation in steps_of(run)] == ["a:1", "a:2", "a:3", "a:4"]
    assert [message["content"] for message in messages] == [last, "Final Answer: x"]


async def test_a_plugin_that_is_gone_after_a_restart_ends_its_runs(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * TIMEOUT_S):
        with text_server(tmp_path) as server:
            async with server.client() as client:
                hanging = [
                    run_of("hangs"),
                    run_of(
                        "react",
                        "hang",
                        turns=("Action: hang\nAction Input: ",),
                        handle_parsing_errors={"plugin": "polite"},
                    ),
                    run_of(
                        "react",
                        "hang",
                        turns=("Action: hang\nAction Input: ",),
                        trim_intermediate_steps={"plugin": "odd_steps"},
                    ),
                ]
                runs = [(await client.post("/runs", json=body)).json()["id"] for body in hanging]
                for run_id in runs[1:]:
                    async with stream(client, "GET", f"/runs/{run_id}/stream") as reading:
                        await reading.until("action")
            server.kill()
            server.env = {**server.env, "RUNWIRE_PLUGINS": "tests.e2e.plugin_tools"}
            await asyncio.to_thread(server.start)
            async with server.client() as client:
                for run_id in runs:
                    done = (await client.get(f"/runs/{run_id}/wait", params={"timeout_s": 15})).json()
                    assert (done["status"], done["error"]["code"]) == ("error", "plugin_failed")
                    assert done["error"]["request_id"]
                    events = read_events((await client.get(f"/runs/{run_id}/stream")).content)
                    check_whole(events)
                    assert names(events).count("action") == names(events).count("step")
                    messages = await client.get(f"/runs/{run_id}/messages")
                    assert messages.status_code == 200, messages.text
