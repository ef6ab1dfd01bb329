"""A plugin and a registered tool of one name: the plugin serves, and the registered tool is neither lost nor in the way."""

import json
from pathlib import Path

import pytest

from tests.support.bodies import tool_spec
from tests.support.receiver import Receiver
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

PLUGINS = {"RUNWIRE_PLUGINS": "tests.e2e.plugin_tools"}
NO_PLUGINS = {"RUNWIRE_PLUGINS": ""}


def restart(server: RunwireServer, env: dict[str, str]) -> None:
    server.kill()
    server.env = {**server.env, **env}
    server.start()


async def test_the_plugin_serves_and_the_registered_tool_is_kept_for_when_it_is_gone(tmp_path: Path) -> None:
    async with Receiver.open() as tool:
        with RunwireServer.open(tmp_path, env=NO_PLUGINS) as server:
            async with server.client() as client:
                for name in ("echo", "own_tool"):
                    assert (await client.post("/tools", json=tool_spec(name, tool.url))).status_code == 201
            restart(server, PLUGINS)
            async with server.client() as client:
                called = await client.post("/tools/echo/invoke", json={"arguments": {"text": "hi"}})
                assert (called.json()["data"], tool.requests) == ("hi", [])

                every = (await client.get("/tools", params={"limit": 100})).json()["data"]
                names = [item["name"] for item in every]
                assert len(names) == len(set(names))
                assert [(item["source"], item["shadowed"]) for item in every if item["name"] == "echo"] == [
                    ("plugin", False)
                ]
                kept = (await client.get("/tools", params={"source": "registered"})).json()["data"]
                assert [(item["name"], item["shadowed"]) for item in kept] == [("echo", True), ("own_tool", False)]
                one = (await client.get("/tools/echo", params={"source": "registered"})).json()
                assert (one["source"], one["shadowed"], one["http"]["url"]) == ("registered", True, tool.url)
                assert (await client.get("/tools/echo")).json()["source"] == "plugin"
                assert (await client.get("/tools/own_tool", params={"source": "plugin"})).status_code == 404
                for refused in (
                    await client.post("/tools", json=tool_spec("echo", tool.url)),
                    await client.put("/tools/echo", json=tool_spec("echo", tool.url)),
                    await client.post("/tools/echo/rotate-secret"),
                ):
                    assert refused.status_code == 409

            restart(server, NO_PLUGINS)
            async with server.client() as client:
                called = await client.post("/tools/echo/invoke", json={"arguments": {"text": "hi"}})
                assert (called.json()["data"], len(tool.requests)) == ("done", 1)


async def test_a_registered_tool_that_a_plugin_hides_can_be_deleted(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path, env=NO_PLUGINS) as server:
        async with server.client() as client:
            made = await client.post("/tools", json=tool_spec("echo", "https://tools.example.com/x"))
            assert made.status_code == 201, made.text
        restart(server, PLUGINS)
        async with server.client() as client:
            assert (await client.delete("/tools/echo")).status_code == 204
            assert (await client.get("/tools", params={"source": "registered"})).json()["data"] == []
            assert (await client.get("/tools/echo")).json()["source"] == "plugin"
            again = await client.delete("/tools/echo")
            assert (again.status_code, again.json()["code"]) == (409, "plugin_tool")


async def test_the_server_warns_of_it_at_its_start_and_only_then(tmp_path: Path) -> None:
    with RunwireServer.open(tmp_path, env={**NO_PLUGINS, "RUNWIRE_LOG_FORMAT": "json"}) as server:
        async with server.client() as client:
            for name in ("echo", "own_tool"):
                made = await client.post("/tools", json=tool_spec(name, "https://tools.example.com/x"))
                assert made.status_code == 201, made.text
        restart(server, {})
        assert "tool_shadowed" not in server.log()
        restart(server, PLUGINS)
        warned = [json.loads(line) for line in server.log().splitlines() if "tool_shadowed" in line]
        assert [(line["level"], line["tool"]) for line in warned] == [("warning", "echo")]
