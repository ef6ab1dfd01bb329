"""The arguments of calls, case by case, over HTTP: what does not fit is told, what the server fills in is its own."""

import json
from typing import Any, cast

import httpx
import pytest

from tests.agent_loop.support import Call, Model, posted, seen
from tests.support.bodies import tool_spec
from tests.support.chat_completions import calls
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio


async def test_an_unknown_tool_is_told_with_those_that_there_are_B_004(client: httpx.AsyncClient) -> None:
    """The words are AgentExecutor's."""
    async with Model([("c1", "nope", {})], "ok") as model:
        played = await posted(client, model, "add", "echo")
    told = "nope is not a valid tool, try one of [add, echo]."
    assert (await played.said())[2] == ("tool", told, "c1", "error")
    assert (played.answer, played.model_calls) == ("ok", 2)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param({"a": 1}, ('"b"',), id="B-005"),
        pytest.param({"a": "x", "b": 2}, ("/a", "expected an integer"), id="B-006"),
        pytest.param({"a": 1, "b": 2, "zz": 3}, ('"zz"',), id="B-008"),
    ],
)
async def test_what_is_wrong_with_arguments_is_told_by_place(
    client: httpx.AsyncClient, args: dict[str, object], words: tuple[str, ...]
) -> None:
    """B-005, B-006; B-008, where the peer drops the argument silently."""
    async with Model([("c1", "add", args)], "ok") as model:
        played = await posted(client, model, "add")
    step = await played.step()
    assert (step["status"], step["error"]["code"], step["attempts"]) == ("error", "invalid_arguments", [])
    assert step["observation"].startswith("add was not called, its arguments do not fit its schema: ")
    assert all(word in step["observation"] for word in words)
    assert (await played.said())[2] == ("tool", step["observation"], "c1", "error")
    assert (played.answer, played.model_calls) == ("ok", 2)


async def test_an_extra_argument_reaches_a_tool_whose_schema_allows_it_B_008(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    args = {"a": 1, "b": 2, "zz": 3}
    properties = {name: {"type": "integer"} for name in ("a", "b")}
    spec = tool_spec("sum_up", tools.url("/echo"), parameters={"type": "object", "properties": properties})
    async with Model([("c1", "sum_up", args)], "ok") as model:
        played = await posted(client, model, spec)
    assert await played.effects(tools) == [("sum_up", args)]


async def test_a_good_call_runs_beside_two_that_are_wrong_B_014(client: httpx.AsyncClient) -> None:
    made: list[Call] = [("c1", "add", {"a": 1}), ("c2", "nope", {}), ("c3", "echo", {"x": "z"})]
    async with Model(made, "ok") as model:
        played = await posted(client, model, "add", "echo")
    assert [step["status"] for step in await played.steps()] == ["error", "error", "success"]
    assert [item[2] for item in (await played.said())[2:5]] == ["c1", "c2", "c3"]
    assert ("tool", "echo:z", "c3") in seen(model.requests[1])


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("[]", "The arguments are an array, not a JSON object."),
        ('{"x": NaN}', "The arguments are not valid JSON ("),
        ('{"x": "\\u0000"}', "The arguments hold a value that cannot be used: text must not contain U+0000."),
    ],
)
async def test_arguments_that_cannot_be_read_are_told_in_whole_sentences_once(
    client: httpx.AsyncClient, raw: str, why: str
) -> None:
    async with Model(calls(("c1", "echo", raw)), "ok") as model:
        played = await posted(client, model, "echo")
    told = str((await played.step())["observation"])
    assert told.startswith(f"The arguments of `echo` could not be read. {why}")
    assert told.endswith(". Call the tool again with its arguments as one JSON object.")
    assert (told.count("again"), ".." in told, played.answer) == (1, False, "ok")


NESTED = {"addr": {"zip": 1, "city": "HZ"}, "mode": "sea", "note": None}


async def test_an_object_given_as_text_is_told_B_513(client: httpx.AsyncClient) -> None:
    async with Model([("c1", "ship", {"addr": '{"zip":1,"city":"HZ"}', "mode": "air"})], "ok") as model:
        played = await posted(client, model, "ship")
    step = await played.step()
    assert (step["status"], step["attempts"]) == ("error", [])
    assert "at /addr: expected an object" in step["observation"]


async def test_null_stands_for_an_optional_argument_B_514(client: httpx.AsyncClient) -> None:
    async with Model([("c1", "ship", NESTED)], "ok") as model:
        played = await posted(client, model, "ship")
    assert (await played.said())[2] == ("tool", "1|HZ|sea|None|1", "c1")


async def test_a_nested_tools_schema_is_shown_whole_B_515(client: httpx.AsyncClient) -> None:
    """The nested object stands behind a local `$ref`."""
    async with Model("ok") as model:
        await posted(client, model, "ship")
    (shown,) = cast("list[dict[str, Any]]", model.requests[0].json["tools"])
    assert shown["function"] == {
        "name": "ship",
        "description": "ship",
        "parameters": {
            "type": "object",
            "properties": {
                "addr": {"$ref": "#/$defs/Address"},
                "mode": {"enum": ["air", "sea"], "type": "string"},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                "n": {"default": 1, "maximum": 3, "minimum": 1, "type": "integer"},
            },
            "required": ["addr", "mode"],
            "additionalProperties": False,
            "$defs": {
                "Address": {
                    "type": "object",
                    "properties": {"zip": {"type": "integer"}, "city": {"type": "string"}},
                    "required": ["zip", "city"],
                }
            },
        },
    }


# --- what the server fills in -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["runtime", "context"])
async def test_a_models_own_value_for_what_the_server_fills_in_never_arrives_B_032(
    client: httpx.AsyncClient, name: str
) -> None:
    """The peer overwrites it; here the call is refused, and one without it has the real values."""
    evil = {"state": {"cart": "EVIL"}, "context": {"user_id": "EVIL"}}
    made: list[Call] = [("c1", "rt", {"x": "1", name: evil}), ("c2", "rt", {"x": "1"})]
    async with Model(made, "ok") as model:
        played = await posted(
            client, model, "rt", context={"user_id": "u1"}, state={"cart": "k"}, agent={"state_schema": {"cart": {}}}
        )
    wrong, right = await played.steps()
    assert (wrong["status"], f'"{name}"' in wrong["observation"]) == ("error", True)
    assert right["observation"] == {"cart": "k", "context": {"user_id": "u1"}, "id": right["tool_call_id"]}
    assert "EVIL" not in json.dumps([wrong["observation"], right["observation"]])


async def test_constants_overrule_the_model_and_stay_out_of_what_it_is_told_B_032_B_034(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}, "cart": {"type": "string"}}}
    spec = tool_spec("inj_http", tools.url("/ok"), parameters=parameters, constants={"cart": "SECRET"})
    async with Model([("c1", "inj_http", {"x": "abc"})], [("c2", "inj_http", {"x": 1, "cart": "EVIL"})], "ok") as model:
        played = await posted(client, model, spec)
    wrong, right = await played.steps()
    assert (wrong["status"], "SECRET" in json.dumps(wrong)) == ("error", False)
    assert "at /x: expected an integer" in wrong["observation"]
    assert right["status"] == "success"
    assert await played.effects(tools) == [("inj_http", {"x": 1, "cart": "SECRET"})]
    assert all("SECRET" not in request.body.decode() for request in model.requests)
