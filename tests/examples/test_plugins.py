"""The plugins' example: loaded as its guide says, and used by runs."""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

from runwire import Client
from tests.examples.processes import EXAMPLES, ROOT, blocks, run, shell
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

FOLDER = EXAMPLES / "plugins"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    """Started with the settings of the guide."""
    start = blocks(FOLDER / "README.md")[0]
    given = dict(re.findall(r"(\w+)=(\S+) ", start))
    env = {**given, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / given["PYTHONPATH"])))}
    with RunwireServer.open(tmp_path_factory.mktemp("shop"), keys="", env=env) as running:
        yield running


async def posted(server: RunwireServer, body: dict[str, object]) -> dict[str, Any]:
    async with server.client(None) as client:
        answer = await client.post("/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    return cast("dict[str, Any]", answer.json())


async def test_the_model_calls_the_tool_as_the_guide_says(shop: RunwireServer) -> None:
    done = json.loads(await shell(blocks(FOLDER / "README.md")[1], {"RUNWIRE_URL": shop.url}))
    assert done["status"] == "success"
    (step,) = done["intermediate_steps"]
    assert step["observation"] == {"item": "teapot", "status": "on its way"}
    assert re.fullmatch(r"Good morning! This is what I found: .*teapot.*", done["output"]["output"])
    assert done["usage"]["output_tokens"] == len(done["output"]["output"])


async def test_the_command_of_the_guide_shows_the_answer(shop: RunwireServer) -> None:
    (line,) = re.findall(r"`\.venv/bin/(runwire run [^`]*)`", (FOLDER / "README.md").read_text(encoding="utf-8"))
    _, *arguments = shlex.split(line)
    out = await run(sys.executable, "-m", "app", *arguments, env={"RUNWIRE_URL": shop.url})
    assert "teapot" in out


async def test_the_server_tells_of_both(shop: RunwireServer) -> None:
    async with shop.client(None) as client:
        tool = (await client.get("/tools/order_status")).json()
        model = (await client.get("/models/clerk")).json()
    assert tool["description"] == "Find out where an order is."
    assert list(tool["parameters"]["properties"]) == ["order_id"]  # the context is not the model's business
    assert model["description"].startswith("Looks up the order")


@pytest.mark.parametrize(
    ("order_id", "says_what"),
    [("Z-1", "There is no order Z-1."), ("B-3", "There is no order B-3."), ("teapot", "order_id")],
)
async def test_the_model_reads_what_was_wrong(shop: RunwireServer, order_id: str, says_what: str) -> None:
    model = scripted(calls(("order_status", {"order_id": order_id})), says("I see."))
    done = await posted(shop, run_body(model, "order_status", agent={"return_intermediate_steps": True}))
    (step,) = done["intermediate_steps"]
    assert step["status"] == "error"
    assert says_what in str(step["observation"])


async def test_params_that_do_not_fit_end_the_run_with_a_reason(shop: RunwireServer) -> None:
    done = await posted(shop, run_body({"provider": "clerk", "model": "clerk", "params": {"greeting": 7}}))
    assert done["status"] == "error"
    assert done["error"]["code"] == "model_bad_request"
    assert "`greeting` is text." in done["error"]["message"]


async def test_the_middleware_answers_the_same_call_from_the_thread(shop: RunwireServer) -> None:
    model = scripted(calls(("order_status", {"order_id": "A-17"})), says("There."))
    body = run_body(model, "order_status", agent={"return_intermediate_steps": True, "middleware": ["once"]})
    async with shop.client(None) as client:
        thread = (await client.post("/threads", json={})).json()["id"]
        runs = [(await client.post("/runs/wait", json={**body, "thread_id": thread})).json() for _ in range(2)]
        steps = [(await client.get(f"/runs/{done['id']}/steps/1")).json() for done in runs]
    assert [step["observation"] for step in steps] == [{"item": "teapot", "status": "on its way"}] * 2
    assert [len(step["attempts"]) for step in steps] == [1, 0]


async def test_the_tool_that_asks_goes_on_with_the_answer(shop: RunwireServer) -> None:
    model = scripted(calls(("cancel_order", {"order_id": "A-17"})), says("done"))
    async with Client(shop.url) as client:
        asked_run = await client.runs.wait({"model": model, "tools": ["cancel_order"]}, "Cancel it.")
        (asked,) = asked_run.interrupts
        assert (asked.reason, asked.payload, asked.message) == ("input", {"order": "A-17"}, "Why cancel A-17?")
        assert asked.decisions == ("respond", "reject")
        await client.runs.resume(asked_run.id, [asked.respond("Ordered twice.")])
        done = await client.runs.wait_for(asked_run.id)
        assert done.text == "done"
        (step,) = (await client.runs.steps(asked_run.id)).data
    assert step.observation == "A-17 is cancelled: Ordered twice."
