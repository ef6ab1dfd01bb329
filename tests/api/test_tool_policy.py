"""The server's policy: asked about each call after schema and scopes, and never a yes by accident."""

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from tests.api.tool_policies import SECRET
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.receiver import Receiver
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

PLUGINS = "tests.e2e.plugin_tools,tests.api.tool_policies"


@pytest.fixture(scope="module")
def governed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    env = {"RUNWIRE_PLUGINS": PLUGINS, "RUNWIRE_TOOL_POLICY": "as_told"}
    with RunwireServer.open(tmp_path_factory.mktemp("governed"), env=env) as running:
        yield running


@pytest.fixture
async def at(governed: RunwireServer) -> AsyncIterator[httpx.AsyncClient]:
    async with governed.client() as opened:
        yield opened


async def step_of(
    client: httpx.AsyncClient, policy: object, tool: object = "echo", arguments: Mapping[str, object] | None = None
) -> dict[str, Any]:
    name = tool if isinstance(tool, str) else cast("dict[str, str]", tool)["name"]
    wanted = {"text": "hi"} if arguments is None else arguments
    body = run_body(scripted(calls((name, wanted)), says("done")), tool, context={"policy": policy})
    run = (await client.post("/runs/wait", json=body)).json()
    assert run["status"] == "success", run
    return (await client.get(f"/runs/{run['id']}/steps/1")).json()


def authorization(step: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    return [(item["verdict"], item["detail"]) for item in step["chain"] if item["stage"] == "authorization"]


async def test_what_the_policy_allows_is_called_and_its_reason_is_kept(at: httpx.AsyncClient) -> None:
    step = await step_of(at, ["allow", "in office hours"])
    assert (step["status"], step["observation"]) == ("success", "hi")
    assert authorization(step) == [("ok", "policy as_told: in office hours")]
    assert [item["stage"] for item in step["chain"]] == [
        "intent", "validation", "authorization", "execution", "state_update",
    ]  # fmt: skip


async def test_what_it_asks_about_waits_for_a_person_and_is_ruled_on_again(at: httpx.AsyncClient) -> None:
    script = scripted(calls(("echo", {"text": "hi"})), says("done"))
    body = run_body(script, "echo", context={"policy": ["ask", "over the limit"]})
    run = (await at.post("/runs/wait", json=body)).json()
    assert run["status"] == "interrupted"
    question = "May echo be called with this input? The policy asks: over the limit"
    assert run["interrupts"][0]["message"] == question
    answer = {"interrupt_id": run["interrupts"][0]["id"], "decision": "approve"}
    assert (await at.post(f"/runs/{run['id']}/resume", json={"responses": [answer]})).status_code == 202
    assert (await at.get(f"/runs/{run['id']}/wait")).json()["status"] == "success"
    step = (await at.get(f"/runs/{run['id']}/steps/1")).json()
    assert (step["status"], step["observation"]) == ("success", "hi")
    assert [item["stage"] for item in step["chain"]] == [
        "intent", "validation", "authorization", "approval", "approval", "validation", "authorization", "execution",
        "state_update",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("", "May echo be called with this input?"),
        ("x" * 501, "May echo be called with this input? The policy asks: " + "x" * 500),
    ],
)
async def test_why_the_policy_asks_reaches_the_person_within_bounds(
    at: httpx.AsyncClient, reason: str, message: str
) -> None:
    script = scripted(calls(("echo", {"text": "hi"})), says("done"))
    run = (await at.post("/runs/wait", json=run_body(script, "echo", context={"policy": ["ask", reason]}))).json()
    assert run["interrupts"][0]["message"] == message


@pytest.mark.parametrize(
    ("policy", "code", "told"),
    [
        (["deny", "not on Sundays"], "policy_denied", "echo was not called: that is not allowed: not on Sundays"),
        ("deny", "policy_denied", "echo was not called: that is not allowed."),
        ("raise", "policy_failed", "it could not be decided"),
        ("nonsense", "policy_failed", "it could not be decided"),
        ("ALLOW", "policy_failed", "it could not be decided"),
        (["allowed", "x"], "policy_failed", "it could not be decided"),
    ],
)
async def test_what_it_does_not_allow_is_denied_and_not_sent(
    at: httpx.AsyncClient, governed: RunwireServer, policy: object, code: str, told: str
) -> None:
    async with Receiver.open() as tool:
        step = await step_of(at, policy, tool_spec("sent", tool.url), {})
        assert tool.connections == 0
    assert (step["status"], step["error"]["code"], step["attempts"]) == ("denied", code, [])
    assert told.replace("echo", "sent") in step["observation"]
    [(verdict, detail)] = authorization(step)
    assert verdict == "denied"
    assert detail is not None
    assert detail.startswith("policy as_told")
    assert SECRET not in str(step)
    if policy == "raise":
        assert SECRET in governed.log()


async def test_it_sees_the_call_as_it_is_sent(at: httpx.AsyncClient) -> None:
    async with Receiver.open() as tool:
        spec = tool_spec("constant", tool.url, effect="read", constants={"version": "2"})
        step = await step_of(at, "tell", spec, {"order": 7})
    assert repr(("constant", "read", {"order": 7, "version": "2"}, "acme", None)) in step["observation"]


async def test_what_it_was_shown_is_what_is_sent(at: httpx.AsyncClient) -> None:
    async with Receiver.open() as tool:
        step = await step_of(at, "change", tool_spec("unchanged", tool.url))
        [request] = tool.requests
    assert step["status"] == "success"
    assert request.data["arguments"] == {"text": "hi"}


async def test_it_is_not_asked_about_what_does_not_fit_or_is_out_of_scope(at: httpx.AsyncClient) -> None:
    assert (await step_of(at, "deny", "echo", {"text": 5}))["error"]["code"] == "invalid_arguments"


async def test_a_call_outside_a_run_is_asked_about_too(at: httpx.AsyncClient) -> None:
    answer = (await at.post("/tools/echo/invoke", json={"arguments": {"text": "hi"}})).json()
    assert (answer["status"], answer["data"]) == ("success", "hi")


async def test_a_policy_that_blocks_works_on_a_thread(tmp_path: Path) -> None:
    env = {"RUNWIRE_PLUGINS": PLUGINS, "RUNWIRE_TOOL_POLICY": "blocking"}
    with RunwireServer.open(tmp_path, env=env) as server:
        async with server.client() as client, Receiver.open() as tool:
            assert (await step_of(client, None))["status"] == "success"
            step = await step_of(client, None, tool_spec("writes", tool.url), {})
            assert (step["error"]["code"], tool.connections) == ("policy_denied", 0)


def test_an_unknown_policy_keeps_the_server_from_starting(tmp_path: Path) -> None:
    env = {"RUNWIRE_PLUGINS": PLUGINS, "RUNWIRE_TOOL_POLICY": "no_such_policy"}
    with pytest.raises(AssertionError, match="no tool policy named 'no_such_policy'"):
        RunwireServer(tmp_path, env).start()
