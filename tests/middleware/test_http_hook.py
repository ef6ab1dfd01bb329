"""The middleware `http`: hooks that another program answers, and programs that do not answer as they must."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import Webhook

from tests.agent_loop.support import Call, seen
from tests.middleware.support import Model, events, played
from tests.support.bodies import run_body, scripted, tool_spec
from tests.support.hook_server import HANG, SECRET, Asked, HookServer
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

CALL: list[Call] = [("c1", "echo", {"x": "1"})]
HOOKS = ["before_agent", "before_model", "wrap_model_call", "after_model", "wrap_tool_call", "after_agent"]
TOKEN = "the-token-of-the-hook-server"


def hook(server: HookServer, *hooks: str, **more: object) -> dict[str, object]:
    return {"name": "http", "config": {"url": server.url, "hooks": list(hooks), **more}}


def at(name: str, answer: object) -> Callable[[Asked], object]:
    """Answers so at one hook, and at the others that it may go on."""
    return lambda asked: answer if asked.type == f"middleware.{name}" else {"action": "continue"}


async def test_each_hook_is_asked_by_a_signed_post(client: httpx.AsyncClient) -> None:
    more = {"signing_secret": SECRET, "headers": {"X-Team": "blue", "X-Api-Key": TOKEN}}
    async with HookServer() as server, Model(CALL, "ok") as model:
        run = await played(client, model, [hook(server, *HOOKS, **more)], context={"locale": "de"})
        for asked in server.asked:
            Webhook(SECRET).verify(asked.body, dict(asked.headers))
            assert (asked.headers["x-team"], asked.headers["x-api-key"]) == ("blue", TOKEN)
            assert set(asked.data) == {
                "run_id",
                "thread_id",
                "context",
                "principal",
                "request" if "wrap" in asked.type else "state",
            }
            assert (asked.data["run_id"], asked.data["context"]) == (run.run["id"], {"locale": "de"})
            assert asked.data["principal"]["tenant"] == "acme"
        types = [asked.type.removeprefix("middleware.") for asked in server.asked]
    once = ["before_model", "wrap_model_call", "after_model"]
    assert types == ["before_agent", *once, "wrap_tool_call", *once, "after_agent"]
    assert len({asked.headers["webhook-id"] for asked in server.asked}) == len(server.asked)
    assert server.asked[0].data["state"] == {"messages": [{"role": "user", "content": "hi"}]}
    tool = next(asked.data["request"] for asked in server.asked if asked.type == "middleware.wrap_tool_call")
    assert (tool["tool"], tool["arguments"], tool["effect"]) == ("echo", {"x": "1"}, "pure")
    assert run.answer == "ok"


async def test_a_hook_changes_the_state(client: httpx.AsyncClient) -> None:
    update = {"seen": 1, "messages": [{"role": "user", "content": "note"}]}
    async with HookServer(at("before_agent", {"update": update})) as server, Model("ok") as model:
        agent = {"state_schema": {"seen": {"schema": {"type": "integer"}}}}
        run = await played(client, model, [hook(server, "before_agent")], agent=agent)
        assert seen(model.requests[0]) == [("user", "hi"), ("user", "note")]
    assert (await run.state())["seen"] == 1


@pytest.mark.parametrize("name", HOOKS)
async def test_a_hook_can_stop_the_run_with_a_sentence(client: httpx.AsyncClient, name: str) -> None:
    async with HookServer(at(name, {"action": "stop", "message": "enough"})) as server, Model(CALL, "ok") as model:
        run = await played(client, model, [hook(server, name)])
    assert (run.run["status"], run.answer) == ("success", "enough")
    assert run.model_calls == {"before_agent": 0, "before_model": 0, "wrap_model_call": 0, "after_agent": 2}.get(
        name, 1
    )


@pytest.mark.parametrize("name", HOOKS)
async def test_a_hook_can_deny(client: httpx.AsyncClient, name: str) -> None:
    async with HookServer(at(name, {"action": "deny", "message": "not for you"})) as server, Model(CALL, "ok") as model:
        run = await played(client, model, [hook(server, name)])
    if name == "wrap_tool_call":
        step = await run.step()
        assert (step["status"], step["observation"], run.answer) == ("denied", "not for you", "ok")
    else:
        assert (run.run["status"], run.run["error"]["code"]) == ("error", "middleware_denied")
        assert run.run["error"]["message"] == "not for you"


async def test_a_hook_changes_what_the_model_is_asked(client: httpx.AsyncClient) -> None:
    request = {"messages": [{"role": "user", "content": "other"}], "tools": []}
    async with HookServer(at("wrap_model_call", {"request": request})) as server, Model("ok") as model:
        await played(client, model, [hook(server, "wrap_model_call")])
        assert seen(model.requests[0]) == [("user", "other")]
        assert "tools" not in model.requests[0].json
        told = server.asked[0].data["request"]
    assert [tool["name"] for tool in told["tools"]] == ["echo"]


async def test_a_hook_changes_a_calls_arguments_which_are_checked_again(client: httpx.AsyncClient) -> None:
    for arguments, observed in (({"x": "2"}, "echo:2"), ({"y": 2}, None)):
        answer = {"request": {"arguments": arguments}}
        async with HookServer(at("wrap_tool_call", answer)) as server, Model(CALL, "ok") as model:
            run = await played(client, model, [hook(server, "wrap_tool_call")])
        step = await run.step()
        assert observed in (step["observation"], None)
        assert step["status"] == ("error" if observed is None else "success")


BAD: dict[str, object] = {
    "no JSON": b"<html>", "a list": [], "an action": {"action": "explode"}, "a member": {"acton": "deny"},
    "a message": {"message": 3}, "an update": {"update": {"nothing": 1}}, "own fields": {"update": {"__hooks": []}},
    "messages": {"update": {"messages": [{"role": "tool", "content": "x"}]}}, "a request": {"request": {"messages": []}},
    "NaN": b'{"message": NaN}', "deep": b"[" * 5000, "an error": 500, "a redirect": 302,
    "10 MB": b'{"message": "' + b"x" * 10_000_000 + b'"}', "nothing": HANG,
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("on_failure", ["open", "closed"])
async def test_a_hook_that_lies_hangs_or_talks_too_much_follows_on_failure(
    client: httpx.AsyncClient, kind: str, on_failure: str
) -> None:
    async with asyncio.timeout(TIMEOUT_S), HookServer(lambda _: BAD[kind]) as server, Model("ok") as model:
        entry = hook(server, "before_model", on_failure=on_failure, timeout_s=0.5 if kind == "nothing" else 10)
        run = await played(client, model, [entry])
        assert len(server.asked) == 1
    if on_failure == "open":
        assert (run.run["status"], run.answer, run.model_calls) == ("success", "ok", 1)
    else:
        assert (run.run["status"], run.run["error"]["code"], run.model_calls) == ("error", "middleware_error", 0)
        assert run.run["error"]["request_id"] in run.run["error"]["message"]


BAD_REQUESTS: dict[str, object] = {
    "wrap_model_call": {"request": {"messages": [{"role": "nobody", "content": "x"}]}},
    "wrap_tool_call": {"request": {"tool": "pay"}},
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
@pytest.mark.parametrize("on_failure", ["open", "closed"])
async def test_a_request_that_cannot_be_used_follows_on_failure(
    client: httpx.AsyncClient, name: str, on_failure: str
) -> None:
    async with HookServer(at(name, BAD_REQUESTS[name])) as server, Model(CALL, "ok") as model:
        run = await played(client, model, [hook(server, name, on_failure=on_failure)])
    if on_failure == "open":
        assert [step["observation"] for step in await run.steps()] == ["echo:1"]
    elif name == "wrap_tool_call":
        assert [step["status"] for step in await run.steps()] == ["denied"]
    else:
        assert run.run["error"]["code"] == "middleware_error"


async def test_a_hook_that_nobody_serves_follows_on_failure(client: httpx.AsyncClient) -> None:
    async with HookServer() as server:
        entries = [hook(server, "before_model", on_failure=way) for way in ("open", "closed")]
    for entry, status in zip(entries, ("success", "error"), strict=True):
        async with Model("ok") as model:
            assert (await played(client, model, [entry])).run["status"] == status


async def test_a_hook_that_fails_closed_lets_no_call_through(client: httpx.AsyncClient, tools: ToolServer) -> None:
    spec = tool_spec("pay", tools.url("/ok"))
    async with HookServer(lambda _: 500) as server, Model([("c1", "pay", {"n": 1})], "ok") as model:
        run = await played(client, model, [hook(server, "wrap_tool_call")], spec)
    assert await run.effects(tools) == []
    assert (await run.step())["attempts"] == []


async def test_a_cancel_does_not_wait_for_a_hook(client: httpx.AsyncClient) -> None:
    reached = asyncio.Event()

    def hangs(_: Asked) -> object:
        reached.set()
        return HANG

    async with asyncio.timeout(TIMEOUT_S), HookServer(hangs) as server:
        body = run_body(scripted({"content": "x"}), agent={"middleware": [hook(server, "before_model", timeout_s=60)]})
        run_id = (await client.post("/runs", json=body)).json()["id"]
        await reached.wait()
        run = (await client.post(f"/runs/{run_id}/cancel", params={"wait": "true"})).json()
    assert run["status"] == "cancelled"


async def test_its_secrets_are_shown_to_nobody_and_stay_where_they_are_left_out(
    client: httpx.AsyncClient, server: RunwireServer
) -> None:
    async with HookServer() as hooks:
        config = {
            "url": hooks.url,
            "hooks": ["before_model"],
            "signing_secret": SECRET,
            "headers": {"X-Api-Key": TOKEN},
        }
        spec = {
            "name": "guarded",
            "model": scripted({"content": "x"}),
            "middleware": [{"name": "http", "config": config}],
        }
        made = await client.post("/agents", json=spec)
        assert made.status_code == 201, made.text
        shown = made.json()["middleware"]
        for text in (made.text, (await client.get("/agents/guarded")).text):
            assert not [secret for secret in (SECRET, TOKEN, "secret_ref") if secret in text]
        put = await client.put("/agents/guarded", json={"model": spec["model"], "middleware": shown})
        assert put.status_code == 200, put.text
        run = (await client.post("/runs/wait", json={"agent": "guarded", "input": "hi"})).json()
        (asked,) = hooks.asked
        Webhook(SECRET).verify(asked.body, dict(asked.headers))
        assert asked.headers["x-api-key"] == TOKEN
    data = json.dumps([run, await events(client, run)])
    assert not [secret for secret in (SECRET, TOKEN) if secret in data + server.log()]
    stored = b"".join(path.read_bytes() for path in server.folder.rglob("*.db*"))
    assert not [secret for secret in (SECRET, TOKEN) if secret.encode() in stored]


@pytest.mark.parametrize(
    ("config", "pointer"),
    [
        ({"url": "http://169.254.169.254/x"}, "/url"), ({"url": "file:///etc/passwd"}, "/url"), ({"url": "http://10.0.0.1"}, "/url"),
        ({"hooks": []}, "/hooks"), ({"hooks": ["around_everything"]}, "/hooks/0"), ({"timeout_s": 0}, "/timeout_s"),
        ({"timeout_s": 61}, "/timeout_s"), ({"on_failure": "shrug"}, "/on_failure"), ({"signing_secret": "short"}, "/signing_secret"),
        ({"signing_secret": {"secret_ref": "x"}}, "/signing_secret"), ({"headers": {"Host": "x"}}, "/headers"),
        ({"headers": {"X-Key": {"secret_ref": "x"}}}, "/headers/X-Key"), ({"headers": {"X": "a\r\nB: c"}}, "/headers"),
    ],
)  # fmt: skip
async def test_a_config_that_cannot_be_used_is_refused_at_its_place(
    client: httpx.AsyncClient, config: dict[str, Any], pointer: str
) -> None:
    entry = {"name": "http", "config": {"url": "https://example.com/hook", "hooks": ["before_model"], **config}}
    refused = await client.post("/runs", json=run_body(scripted({"content": "x"}), agent={"middleware": [entry]}))
    assert refused.status_code == 422, refused.text
    assert refused.json()["errors"][0]["pointer"].startswith(f"/agent/middleware/0/config{pointer}")
