"""Tools and the state: what they write, what they see, where they jump, what they tell."""

import httpx
import pytest

from tests.support.bodies import calls, tool_spec
from tests.support.tool_server import ToolServer
from tests.threads.support import done, events, stateful, steps

pytestmark = pytest.mark.anyio


async def test_updates_of_one_round_meet_in_call_order(client: httpx.AsyncClient) -> None:
    """B-038."""
    names = [f"v{number}" for number in range(6)]
    run = await done(client, stateful(calls(*[("put", {"field": "log", "value": name}) for name in names])))
    told = [data for name, data in await events(client, run["id"], "state") if name == "state"]
    assert [item["update"] for item in told] == [{"log": [name]} for name in names]
    assert {item["by"] for item in told} == {"tool:put"}
    asked = [step["tool_call_id"] for step in await steps(client, run["id"])]
    assert [item["tool_call_id"] for item in told] == asked


async def test_a_stream_has_state_events_only_where_they_are_asked_for(client: httpx.AsyncClient) -> None:
    run = await done(client, stateful(calls(("put", {"field": "log", "value": "x"}))))
    usual = [name for name, _ in await events(client, run["id"])]
    assert "state" not in usual
    assert "step" in usual
    asked = [name for name, _ in await events(client, run["id"], "state,step")]
    assert asked.index("step") < asked.index("state") < asked.index("finish")
    page = (await client.get(f"/runs/{run['id']}/events", params={"limit": 100})).json()["data"]
    assert "state" in [item["event"] for item in page]


async def test_an_update_that_does_not_fit_is_its_steps_error_and_changes_nothing(client: httpx.AsyncClient) -> None:
    wrong: list[dict[str, object]] = [
        {"log": [3]},
        {"log": "x"},
        {"count": 11},
        {"count": True},
        {"unknown": 1},
        {"__own": 1},
        {"note": 5},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "y"}]},
        {"messages": "x"},
        {"odd": 1},
    ]
    run = await done(client, stateful(*[calls(("write", {"update": update})) for update in wrong]))
    found = await steps(client, run["id"])
    assert [step["status"] for step in found] == ["error"] * len(wrong)
    codes = {step["error"]["code"] for step in found}
    assert codes <= {"state_update_invalid", "invalid_arguments"}
    assert "/log/0" in found[0]["observation"]
    assert "a secret detail" not in str(found)
    assert [name for name, _ in await events(client, run["id"], "state") if name == "state"] == []


async def test_updates_that_fit_only_alone_leave_the_later_one_out(client: httpx.AsyncClient) -> None:
    turn = calls(*[("write", {"update": {"count": 6}, "output": f"w{number}"}) for number in range(2)])
    run = await done(client, stateful(turn, calls(("look", {"field": "count"}))))
    assert (await steps(client, run["id"]))[2]["observation"] == 6
    said = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    results = [item["content"] for item in said if item["role"] == "tool"]
    assert results[0] == "w0"
    assert "does not fit" in results[1]


async def test_a_tool_sees_the_rounds_start_and_cannot_change_it(client: httpx.AsyncClient) -> None:
    first = calls(("put", {"field": "log", "value": "a"}), ("look", {"field": "log"}))
    run = await done(
        client, stateful(first, calls(("spoil", {})), calls(("look", {"field": "log"})), state={"count": 2})
    )
    seen = [step["observation"] for step in await steps(client, run["id"])]
    assert seen == ["put a", [], "tried", ["a"]]
    said = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    assert said[0]["content"] == "go"


async def test_a_jump_to_the_end_makes_the_tools_output_the_answer(client: httpx.AsyncClient) -> None:
    run = await done(client, stateful(calls(("write", {"update": {"note": "n"}, "goto": "end", "output": "bye"}))))
    assert (run["output"], run["stop_reason"], run["iterations"]) == ({"output": "bye"}, "finish", 1)
    on = await done(client, stateful(calls(("write", {"update": {"note": "n"}, "goto": "model"}))))
    assert on["output"] == {"output": "done"}
    wrong = await done(client, stateful(calls(("write", {"update": {"note": "n"}, "goto": "nowhere"}))))
    (step,) = await steps(client, wrong["id"])
    assert (step["status"], step["error"]["code"]) == ("error", "command_invalid")


async def test_what_a_tool_tells_comes_in_order_with_the_rest(client: httpx.AsyncClient) -> None:
    run = await done(client, stateful(calls(("tell", {"text": "hi"})), calls(("tell_from_a_thread", {"text": "yo"}))))
    told = [
        (name, data)
        for name, data in await events(client, run["id"])
        if name in ("action", "custom", "progress", "step")
    ]
    assert [name for name, _ in told] == [
        "action", "custom", "progress", "step", "action", "custom", "custom", "custom", "step",
    ]  # fmt: skip
    first, _ = await steps(client, run["id"])
    call = first["tool_call_id"]
    assert told[1][1] == {"by": "tool:tell", "tool_call_id": call, "data": {"said": "hi"}}
    assert told[2][1] == {"tool_call_id": call, "progress": 0.5, "message": "hi"}
    assert [data["data"] for _, data in told[5:8]] == [["yo", 0], ["yo", 1], ["yo", 2]]


async def test_an_http_tool_updates_the_state_and_jumps(client: httpx.AsyncClient, state_tools: ToolServer) -> None:
    answer = {"output": "sold", "update": {"log": ["sold"], "messages": [{"role": "user", "content": "and?"}]}}
    spec = tool_spec("sell", state_tools.url("/as-asked"))
    body = stateful(calls(("sell", answer)), calls(("look", {"field": "log"})), tools=(spec, "look"))
    run = await done(client, body)
    first, second = await steps(client, run["id"])
    assert (first["observation"], second["observation"]) == ("sold", ["sold"])
    said = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    assert [item["role"] for item in said[:5]] == ["user", "assistant", "tool", "user", "assistant"]
    ends = calls(("sell", {"output": "over", "goto": "end"}))
    run = await done(client, stateful(ends, tools=(spec,)))
    assert run["output"] == {"output": "over"}


async def test_a_plugin_reducer_folds_and_its_result_is_what_is_stored(client: httpx.AsyncClient) -> None:
    turns = [calls(("write", {"update": {"last": [number]}})) for number in range(4)]
    run = await done(client, stateful(*turns, calls(("look", {"field": "last"}))))
    assert (await steps(client, run["id"]))[-1]["observation"] == [2, 3]


async def test_an_update_of_many_megabytes_is_refused(client: httpx.AsyncClient) -> None:
    run = await done(client, stateful(calls(("flood", {"size": 10_000_000})), tools=("flood",)))
    (step,) = await steps(client, run["id"])
    assert (step["status"], step["error"]["code"]) == ("error", "state_update_invalid")
    assert len(step["observation"]) < 500


async def test_the_last_call_wins_a_field_without_a_reducer(client: httpx.AsyncClient) -> None:
    """B-037, where the peer's run fails."""
    turn = calls(("write", {"update": {"note": "a"}}), ("write", {"update": {"note": "b"}}))
    run = await done(client, stateful(turn, calls(("look", {"field": "note"}))))
    assert (await steps(client, run["id"]))[-1]["observation"] == "b"


async def test_a_field_without_a_default_is_absent_until_it_is_written(client: httpx.AsyncClient) -> None:
    """B-045."""
    run = await done(client, stateful(state={"note": "k"}))
    values = (await client.get(f"/threads/{run['thread_id']}/state")).json()["values"]
    assert {name for name in values if name != "messages"} == {"log", "count", "note"}
