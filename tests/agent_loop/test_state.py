"""`create_agent`'s state, case by case, over HTTP: what tools write and read, what callers bring."""

from typing import Any

import httpx
import pytest

from tests.agent_loop.support import Call, Model, posted, seen
from tests.support.bodies import openai, run_body

pytestmark = pytest.mark.anyio

STATE: dict[str, object] = {
    "cart": {"schema": {"type": "string"}},
    "log": {"schema": {"type": "array", "items": {"type": "string"}}, "reducer": "append"},
    "raw": {},
}
STATEFUL: dict[str, object] = {"state_schema": STATE}


async def test_a_command_gives_its_result_and_writes_the_state_B_036(client: httpx.AsyncClient) -> None:
    async with Model([("c1", "setcart", {"v": "apple"})], "ok") as model:
        played = await posted(client, model, "setcart", agent=STATEFUL)
    assert (await played.said())[2:] == [("tool", "set apple", "c1"), ("assistant", "ok")]
    values = await played.state()
    assert (values["cart"], "log" in values) == ("apple", False)


async def test_what_the_model_need_not_see_is_kept_in_the_state_B_024(client: httpx.AsyncClient) -> None:
    """The peer keeps an artifact beside the message's content."""
    async with Model([("c1", "art", {"x": "1"})], "ok") as model:
        played = await posted(client, model, "art", agent=STATEFUL)
    assert (await played.state())["raw"] == {"raw": 1}
    assert seen(model.requests[1])[2] == ("tool", "text", "c1")
    assert all(b'"raw"' not in request.body for request in model.requests)


@pytest.mark.parametrize(
    ("name", "field", "kept", "results"),
    [
        pytest.param("setcart", "cart", "b", ["set a", "set b"], id="B-037"),
        pytest.param("logit", "log", ["a", "b"], ["logged a", "logged b"], id="B-038"),
    ],
)
async def test_two_updates_of_one_field_in_one_round_meet_in_call_order(
    client: httpx.AsyncClient, name: str, field: str, kept: object, results: list[str]
) -> None:
    """B-037, where the peer's run fails: the later one wins. B-038."""
    made: list[Call] = [("c1", name, {"v": "a"}), ("c2", name, {"v": "b"})]
    async with Model(made, "ok") as model:
        played = await posted(client, model, name, agent=STATEFUL)
    assert (await played.state())[field] == kept
    assert [item[1] for item in seen(model.requests[1])[2:]] == results
    assert played.answer == "ok"


async def test_a_command_without_an_output_gives_its_call_a_result_all_the_same_B_039(
    client: httpx.AsyncClient,
) -> None:
    """In the peer a tool writes the message for its call itself, and may forget it."""
    async with Model([("c1", "nomsg", {"v": "a"})], "ok") as model:
        played = await posted(client, model, "nomsg", agent=STATEFUL)
    assert [item[2] for item in await played.said() if item[0] == "tool"] == ["c1"]
    assert ((await played.state())["cart"], played.answer) == ("a", "ok")


async def test_a_tools_message_for_another_call_is_refused_B_040(client: httpx.AsyncClient) -> None:
    """The peer's run fails; here the step does, and nothing is written."""
    async with Model([("c1", "wrongid", {"v": "a"})], "ok") as model:
        played = await posted(client, model, "wrongid", agent=STATEFUL)
    step = await played.step()
    assert (step["status"], step["error"]["code"]) == ("error", "state_update_invalid")
    assert [item[2] for item in await played.said() if item[0] == "tool"] == ["c1"]
    assert ("cart" in await played.state(), played.answer) == (False, "ok")


async def test_a_field_that_the_thread_lacks_fails_the_call_and_not_the_run_B_035(client: httpx.AsyncClient) -> None:
    async with Model([("c1", "inj", {"x": 1})], "ok") as model:
        played = await posted(client, model, "inj", agent=STATEFUL)
    step = await played.step()
    assert (step["status"], played.run["status"], played.answer) == ("error", "success", "ok")
    assert step["error"]["request_id"]
    async with Model([("c1", "inj", {"x": 1})], "ok") as model:
        there = await posted(client, model, "inj", agent=STATEFUL, state={"cart": "k"})
    assert (await there.step())["observation"] == "k"


async def test_a_reader_beside_a_writer_sees_the_state_from_before_the_round_B_521(client: httpx.AsyncClient) -> None:
    first: list[Call] = [("c1", "setcart", {"v": "apple"}), ("c2", "getcart", {})]
    async with Model(first, [("c3", "getcart", {})], "ok") as model:
        played = await posted(client, model, "setcart", "getcart", agent=STATEFUL)
    assert [item[1] for item in await played.said() if item[0] == "tool"] == ["set apple", "cart=None", "cart=apple"]


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"text": {"messages": [{"role": "user", "content": "hi"}], "zzz": 1}}, "/input/zzz"),
        ({"state": {"zzz": 1}}, "/state/zzz"),
    ],
)
async def test_an_unknown_field_of_the_state_is_refused_B_044(
    client: httpx.AsyncClient, more: dict[str, Any], pointer: str
) -> None:
    """The peer drops it silently."""
    async with Model("ok") as model:
        refused = await client.post("/runs", json=run_body(openai(model.base_url), agent=STATEFUL, **more))
        assert model.requests == []
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == pointer


async def test_the_state_that_was_brought_comes_back_and_a_field_without_a_default_is_absent_B_045(
    client: httpx.AsyncClient,
) -> None:
    async with Model("ok") as model:
        played = await posted(client, model, agent=STATEFUL, state={"cart": "k"})
    values = await played.state()
    assert {name: value for name, value in values.items() if name != "messages"} == {"cart": "k"}
