"""Models in Python: what a good one can do, and that a bad one ends its own run and nothing else."""

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.plugins import PluginError
from app.models.plugins import ModelPlugins
from runwire import ModelPlugin
from tests.api.plugin_models import ENDINGS, SECRET, Odd
from tests.api.problems import check_problem
from tests.cli.command import runwire
from tests.support.bodies import run_body
from tests.support.server import ROOT, TIMEOUT_S, RunwireServer
from tests.support.streams import Event, check_whole, read_events, stream

pytestmark = pytest.mark.anyio

ALIASES = {
    "louder": {
        "provider": "odd",
        "model": "answers",
        "params": {"said": "good"},
        "prices": {"input_per_mtok": 3, "output_per_mtok": 15},
    }
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    env = {
        "RUNWIRE_MODELS": json.dumps(ALIASES),
        "RUNWIRE_PLUGINS": "tests.e2e.plugin_tools,tests.api.plugin_models,documented",
    }
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "documented.py").write_text(documented())
    with RunwireServer.open(folder, env=env) as running:
        yield running


def documented() -> str:
    """The example of docs/models.md."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "models.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return next(block for block in blocks if '@model("echo"' in block)


async def test_loaded_model_plugins_are_told_where_providers_are(client: httpx.AsyncClient) -> None:
    facts = (await client.get("/info")).json()
    assert set(facts["model_providers"]) == {"openai", "anthropic", "scripted", "demo", "odd", "echo"}
    for model in ("nothing:x", "alias:nothing", {"provider": "nothing", "model": "x"}):
        answer = await client.post("/runs", json=run_body(model))
        assert (answer.status_code, answer.json()["code"]) == (422, "unknown_model")
        assert "configured here: " in answer.json()["detail"]
        assert '"echo:NAME", "odd:NAME"' in answer.json()["detail"]


async def told(client: httpx.AsyncClient, model: object, *tools: str, **more: object) -> list[Event]:
    async with asyncio.timeout(TIMEOUT_S):
        answer = await client.post("/runs/stream", json=run_body(model, *tools, **more))
    assert answer.status_code == 200, answer.text
    assert SECRET not in answer.text
    found = read_events(answer.content)
    check_whole(found)
    return found


def of(found: list[Event], kind: str) -> list[dict[str, Any]]:
    return [item.data for item in found if item.event == kind]


async def test_the_documented_example_works(client: httpx.AsyncClient) -> None:
    found = await told(client, "echo:anything", text="say it again")
    assert "".join(item["delta"]["text"] for item in of(found, "output")) == "say it again "
    assert of(found, "finish")[0]["return_values"] == {"output": "say it again"}
    assert of(found, "usage")[0]["model"] == "anything"
    found = await told(client, {"provider": "echo", "model": "x", "params": {"prefix": "> "}}, text="hello")
    assert of(found, "finish")[0]["return_values"] == {"output": "> hello"}
    assert (await client.get("/models/echo")).json()["description"] == "Gives the last message back."


async def test_a_plugins_model_calls_tools(client: httpx.AsyncClient) -> None:
    found = await told(client, "odd:calls", "echo")
    assert of(found, "action")[0]["tool_input"] == {"text": "a"}
    assert of(found, "step")[0]["observation"] == "a"
    assert of(found, "finish")[0]["return_values"] == {"output": "so far"}
    assert "cost_usd" not in of(found, "usage")[1]


async def test_an_alias_gives_a_plugins_model_params_and_prices(client: httpx.AsyncClient) -> None:
    found = await told(client, "louder")
    assert of(found, "finish")[0]["return_values"] == {"output": "so good"}
    assert of(found, "usage")[0]["cost_usd"] == 0.006
    found = await told(client, {"provider": "alias", "model": "louder", "params": {"said": "bad"}})
    assert of(found, "finish")[0]["return_values"] == {"output": "so bad"}


async def test_deltas_are_left_out_where_nobody_wants_them(client: httpx.AsyncClient) -> None:
    found = await told(client, "odd:answers", agent={"stream_output": False})
    assert not of(found, "output")
    assert of(found, "finish")[0]["return_values"] == {"output": "so far"}


async def test_half_a_character_of_a_plugin_can_be_stored(client: httpx.AsyncClient) -> None:
    found = await told(client, "odd:half a character")
    assert of(found, "finish")[0]["return_values"] == {"output": "so \ufffd far"}


@pytest.mark.parametrize("name", ["no factory", "raises", "exits", "cancels itself", "times out", "an odd error"])
async def test_what_a_plugin_raises_ends_its_run_and_shows_in_the_log_only(
    client: httpx.AsyncClient, server: RunwireServer, name: str
) -> None:
    found = await told(client, f"odd:{name}")
    error = of(found, "error")[0]
    assert (error["code"], error["retryable"]) == ("model_plugin_failed", False)
    assert error["request_id"] in error["message"]
    lines = [line for line in server.log().splitlines() if error["request_id"] in line]
    assert any("Traceback" in line for line in lines)
    assert (await client.get("/readyz")).status_code == 200


async def test_the_text_of_an_accident_is_in_the_log(client: httpx.AsyncClient, server: RunwireServer) -> None:
    await told(client, "odd:raises")
    assert SECRET in server.log()


async def test_a_plugin_may_say_what_its_model_could_not_do(client: httpx.AsyncClient) -> None:
    error = of(await told(client, "odd:a model's error"), "error")[0]
    assert (error["code"], error["message"], error["retryable"]) == ("model_rate_limited", "Too many questions.", True)
    odd = {"provider": "odd", "model": "refused params", "params": {"colour": 1}}
    error = of(await told(client, odd), "error")[0]
    assert (error["code"], error["message"]) == ("model_bad_request", "There is no param of this name: colour.")


@pytest.mark.parametrize(
    "name", [*ENDINGS, "no answer", "two answers", "talks on", "no generator", "a list", "no stream"]
)
async def test_what_a_plugin_must_not_yield_ends_its_run_with_a_word_for_its_author(
    client: httpx.AsyncClient, name: str
) -> None:
    error = of(await told(client, f"odd:{name}", "echo"), "error")[0]
    assert (error["code"], error["retryable"]) == ("model_invalid_response", False)
    assert error["message"].startswith("The model plugin `odd` broke its contract: ")


@pytest.mark.parametrize("name", ["hangs", "does not let go", "fails at its end"])
async def test_a_run_of_a_plugin_is_cancelled_whatever_the_plugin_makes_of_it(
    client: httpx.AsyncClient, name: str
) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        stream(client, "POST", "/runs/stream", json=run_body(f"odd:{name}")) as events,
    ):
        run_id = (await events.until("run")).data["run_id"]
        await events.until("output")
        assert (await client.post(f"/runs/{run_id}/cancel")).status_code in (200, 202)
        found = await events.rest()
    check_whole(found)
    assert found[-1].data["status"] == "cancelled"


async def test_the_time_limit_of_a_run_holds_for_a_plugin(client: httpx.AsyncClient) -> None:
    for name in ("hangs", "does not let go", "fails at its end"):
        found = await told(client, f"odd:{name}", agent={"max_execution_time": 0.2})
        assert of(found, "end")[0]["stop_reason"] == "max_execution_time"


@pytest.mark.parametrize(
    ("model", "code", "pointer"),
    [
        ("odd", "invalid_request", "/agent/model"),
        ("odd:", "invalid_request", "/agent/model"),
        ({"provider": "odd"}, "invalid_request", "/agent/model/model"),
        ({"provider": "odd", "model": "x", "base_url": "http://h/v1"}, "invalid_request", "/agent/model/base_url"),
        ({"provider": "odd", "model": "x", "params": []}, "invalid_request", "/agent/model/params"),
        ("odder:x", "unknown_model", "/agent/model"),
    ],
)
async def test_a_spec_that_does_not_fit_a_plugin_is_refused(
    client: httpx.AsyncClient, model: object, code: str, pointer: str
) -> None:
    check_problem(await client.post("/runs", json=run_body(model)), 422, code, pointer)


@pytest.mark.parametrize("name", ["openai", "anthropic", "demo", "scripted", "alias", "", "a:b", "x" * 65])
def test_a_plugins_name_is_a_name_and_no_providers(name: str) -> None:
    with pytest.raises(PluginError, match="Plugin model"):
        ModelPlugins([ModelPlugin(Odd.factory, name)])


def test_two_plugins_of_one_name_are_refused() -> None:
    with pytest.raises(PluginError, match="two plugin models named 'odd'"):
        ModelPlugins([Odd, ModelPlugin(Odd.factory, "odd")])


def test_a_module_holds_tools_and_models() -> None:
    assert ModelPlugins.load(["tests.e2e.plugin_tools"], entry_points=False).names == []
    found = ModelPlugins.load(["tests.api.plugin_models", "tests.api.plugin_models:Odd"], entry_points=False)
    assert found.names == ["odd"]
    assert found.describe("odd")["description"] == "Does what its model name says."


def test_an_installed_package_offers_models_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "their_models-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-models\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[runwire.models]\nodd = tests.api.plugin_models:Odd\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert "odd" in ModelPlugins.load().names
    (info / "entry_points.txt").write_text("[runwire.models]\nodd = tests.e2e.plugin_tools:echo\n")
    with pytest.raises(PluginError, match=r"runwire\.models"):
        ModelPlugins.load()


async def test_a_plugin_with_a_providers_name_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "taken.py").write_text("from runwire import model\n\n@model('openai')\nclass Mine: ...\n")
    result = await runwire("serve", cwd=tmp_path, env={"RUNWIRE_PLUGINS": "taken", "RUNWIRE_PORT": "0"})
    assert result.code == 2
    assert "Plugin model 'openai'" in result.err


async def test_an_alias_must_not_have_a_plugins_name(tmp_path: Path) -> None:
    env = {"RUNWIRE_PLUGINS": "tests.api.plugin_models", "RUNWIRE_PORT": "0"}
    result = await runwire("serve", cwd=tmp_path, env={**env, "RUNWIRE_MODELS": '{"odd": {"provider": "demo"}}'})
    assert result.code == 2
    assert 'alias "odd": this is a provider\'s name' in result.err


async def test_the_public_module_loads_no_http_library() -> None:
    program = "import json, sys, runwire; print(json.dumps(sorted(sys.modules)))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert set(json.loads(out)).isdisjoint(("httpx", "fastapi", "sqlalchemy", "pydantic", "uvicorn"))
