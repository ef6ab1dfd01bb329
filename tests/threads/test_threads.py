"""Threads over HTTP: made, listed, labelled, read, changed, forked, deleted."""

import asyncio
import itertools
from typing import Any

import httpx
import pytest

from tests.support.bodies import calls, openai, run_body, says, scripted, shown
from tests.support.chat_completions import ChatCompletionsServer
from tests.support.chat_completions import says as model_says
from tests.support.server import OTHER, READER, TIMEOUT_S, RunwireServer
from tests.threads.support import done, stateful

pytestmark = pytest.mark.anyio

UNKNOWN = "0190a0a0-0000-7000-8000-000000000000"


async def made(client: httpx.AsyncClient, **metadata: object) -> dict[str, Any]:
    answer = await client.post("/threads", json={"metadata": metadata})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/threads/{answer.json()['id']}"
    return answer.json()


async def state(client: httpx.AsyncClient, thread_id: str, checkpoint: str | None = None) -> dict[str, Any]:
    params = {} if checkpoint is None else {"checkpoint_id": checkpoint}
    answer = await client.get(f"/threads/{thread_id}/state", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def update(
    client: httpx.AsyncClient, thread_id: str, values: dict[str, object], **more: object
) -> httpx.Response:
    return await client.post(f"/threads/{thread_id}/state", json={"values": values, **more})


def texts(found: dict[str, Any]) -> list[object]:
    return [message["content"] for message in found["values"]["messages"]]


async def test_a_thread_is_made_found_by_its_labels_and_labelled_anew(client: httpx.AsyncClient) -> None:
    first, second = await made(client, shop="a", n=1), await made(client, shop="b")
    assert (first["status"], first["metadata"], first["listed"]) == ("idle", {"shop": "a", "n": 1}, True)
    listed = (await client.get("/threads", params={"limit": 100})).json()["data"]
    assert [item["id"] for item in listed if item["id"] in (first["id"], second["id"])] == [second["id"], first["id"]]
    found = (await client.get("/threads", params={"metadata.shop": "a", "metadata.n": "1"})).json()["data"]
    assert [item["id"] for item in found] == [first["id"]]
    patched = await client.patch(f"/threads/{first['id']}", json={"metadata": {"shop": "c"}})
    assert patched.json()["metadata"] == {"shop": "c", "n": 1}
    assert (await client.get("/threads", params={"metadata.shop": "a"})).json()["data"] == []
    assert [t["id"] for t in (await client.get("/threads", params={"metadata.shop": "c"})).json()["data"]] == [
        first["id"]
    ]
    page = (await client.get("/threads", params={"limit": 1})).json()
    assert page["has_more"]
    rest = (await client.get("/threads", params={"limit": 1, "after": page["next_cursor"]})).json()
    assert rest["data"][0]["id"] < page["data"][0]["id"]


async def test_the_same_key_makes_one_thread(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "one thread"}
    first = await client.post("/threads", json={}, headers=headers)
    again = await client.post("/threads", json={}, headers=headers)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"
    other = await client.post("/threads", json={"metadata": {"a": 1}}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    forks = [
        (await client.post(f"/threads/{first.json()['id']}/fork", json={}, headers={"Idempotency-Key": "f"})).json()[
            "id"
        ]
        for _ in range(2)
    ]
    assert forks[0] == forks[1]


async def test_a_runs_own_thread_is_unlisted_and_otherwise_like_any_other(client: httpx.AsyncClient) -> None:
    run = await done(client, stateful(calls(("put", {"field": "log", "value": "x"})), state={"note": "n"}))
    thread_id = run["thread_id"]
    assert thread_id not in [item["id"] for item in (await client.get("/threads")).json()["data"]]
    thread = (await client.get(f"/threads/{thread_id}")).json()
    assert (thread["status"], thread["listed"], thread["active_run_id"]) == ("idle", False, None)
    found = await state(client, thread_id)
    assert {name: value for name, value in found["values"].items() if name != "messages"} == {
        "log": ["x"], "count": 0, "note": "n",
    }  # fmt: skip
    assert [message["role"] for message in found["values"]["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert (found["run_id"], found["source"]) == (run["id"], "loop")
    runs = (await client.get(f"/threads/{thread_id}/runs")).json()["data"]
    assert [item["id"] for item in runs] == [run["id"]]


async def test_a_state_goes_on_over_runs_and_every_checkpoint_can_be_read(client: httpx.AsyncClient) -> None:
    thread = await made(client)
    assert (await state(client, thread["id"]))["values"] == {"messages": []}
    turn = calls(("put", {"field": "log", "value": "a"}), ("write", {"update": {"count": 2}}))
    for number in range(3):
        await done(client, stateful(turn, thread_id=thread["id"], text=f"t{number}", state={"count": 1}))
    found = await state(client, thread["id"])
    assert (found["values"]["log"], found["values"]["count"]) == (["a"] * 3, 9)
    points = (await client.get(f"/threads/{thread['id']}/history", params={"limit": 100})).json()["data"]
    assert [point["checkpoint_id"] for point in points] == sorted((p["checkpoint_id"] for p in points), reverse=True)
    assert points[0]["checkpoint_id"] == found["checkpoint_id"]
    for newer, older in itertools.pairwise(points):
        assert newer["parent_checkpoint_id"] == older["checkpoint_id"]
    values: list[int] = []
    for point in reversed(points):
        at = await state(client, thread["id"], point["checkpoint_id"])
        assert len(at["values"]["messages"]) == point["messages"]
        values.append(at["values"]["count"])
    assert sorted(values) == values
    assert points[-1]["source"] == "input"
    assert points[-1]["update"]["count"] == [{"reducer": "replace", "value": 0}, {"reducer": "sum", "value": 1}]


async def test_a_caller_changes_the_state_through_its_reducers(client: httpx.AsyncClient) -> None:
    run = await done(client, stateful(state={"log": ["a"], "count": 1}))
    changed = await update(
        client, run["thread_id"], {"log": ["b"], "count": 2, "messages": [{"role": "user", "content": "by hand"}]}
    )
    assert changed.status_code == 200
    values = changed.json()["values"]
    assert (values["log"], values["count"]) == (["a", "b"], 3)
    assert texts(changed.json()) == ["go", "done", "by hand"]
    assert (changed.json()["source"], changed.json()["run_id"]) == ("update", None)
    over = await update(
        client,
        run["thread_id"],
        {"log": ["c"], "messages": [{"role": "user", "content": "only"}]},
        overwrite=["log", "messages"],
    )
    assert (over.json()["values"]["log"], texts(over.json()), over.json()["values"]["count"]) == (["c"], ["only"], 3)
    after = await done(client, stateful(thread_id=run["thread_id"], text="next"))
    assert texts(await state(client, after["thread_id"])) == ["only", "next", "done"]


async def test_a_wrong_update_is_422_and_changes_nothing(client: httpx.AsyncClient) -> None:
    run = await done(client, stateful(state={"count": 9}))
    before = await state(client, run["thread_id"])
    wrong: list[tuple[dict[str, object], str]] = [
        ({"values": {"count": 2}}, "/values/count"),
        ({"values": {"log": ["ok"], "count": "x"}}, "/values/count"),
        ({"values": {"log": [1]}}, "/values/log/0"),
        ({"values": {"nothing": 1}}, "/values/nothing"),
        ({"values": {"__own": 1}}, "/values/__own"),
        ({"values": {"odd": 1}}, "/values/odd"),
        ({"values": {"messages": "x"}}, "/values/messages"),
        ({"values": {"messages": [{"role": "robot", "content": "x"}]}}, "/values/messages/0/role"),
        ({"values": {"log": ["x"]}, "overwrite": ["count"]}, "/overwrite/0"),
        ({"values": {"count": 11}, "overwrite": ["count"]}, "/values/count"),
        ({"values": {"log": []}, "agent": "nobody"}, "/agent"),
        ({"values": {"log": []}, "what": 1}, "/what"),
        ({}, "/values"),
    ]
    for body, pointer in wrong:
        answer = await client.post(f"/threads/{run['thread_id']}/state", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer), body
        assert "secret detail" not in answer.text
    assert await state(client, run["thread_id"]) == before
    new = await made(client)
    assert (await update(client, new["id"], {"log": ["x"]})).status_code == 422
    assert (await update(client, new["id"], {"messages": [{"role": "user", "content": "x"}]})).status_code == 200


async def test_a_runs_state_is_checked_when_it_is_posted(client: httpx.AsyncClient) -> None:
    wrong: list[tuple[dict[str, object], str]] = [
        ({"count": 11}, "/state/count"),
        ({"nothing": 1}, "/state/nothing"),
        ({"messages": []}, "/state/messages"),
        ({"__x": 1}, "/state/__x"),
    ]
    for given, pointer in wrong:
        answer = await client.post("/runs", json=stateful(state=given))
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    run = await done(client, stateful(state={"count": 6}))
    answer = await client.post("/runs", json=stateful(state={"count": 5}, thread_id=run["thread_id"]))
    assert answer.status_code == 422, "on top of what the thread has"


@pytest.mark.parametrize(
    ("field", "pointer"),
    [
        ({"schema": {"type": "nothing"}}, "/agent/state_schema/f/schema/type"),
        ({"schema": {"$ref": "https://example.com/x"}}, "/agent/state_schema/f/schema/$ref"),
        ({"reducer": "nobody"}, "/agent/state_schema/f/reducer"),
        ({"schema": {"type": "string"}, "default": 1}, "/agent/state_schema/f/default"),
        ({"what": 1}, "/agent/state_schema"),
    ],
)
async def test_a_state_schema_that_cannot_be_used_is_422(
    client: httpx.AsyncClient, field: dict[str, object], pointer: str
) -> None:
    body = run_body(scripted(says("x")), agent={"state_schema": {"f": field}})
    answer = await client.post("/runs", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    named = {"name": "stateful", "model": "scripted:any", "state_schema": {"f": field}}
    assert (await client.post("/agents", json=named)).status_code == 422
    for name in ("messages", "__own"):
        body = run_body(scripted(says("x")), agent={"state_schema": {name: {}}})
        assert (await client.post("/runs", json=body)).status_code == 422


async def test_a_context_must_fit_the_agents_schema(client: httpx.AsyncClient) -> None:
    schema = {
        "type": "object",
        "properties": {"user": {"type": "string"}},
        "required": ["user"],
        "additionalProperties": False,
    }
    settings: dict[str, object] = {"context_schema": schema}
    for context, pointer in (({}, "/context"), ({"user": 1}, "/context/user"), ({"user": "a", "b": 1}, "/context")):
        answer = await client.post("/runs", json=stateful(settings=settings, context=context))
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"].startswith(pointer)
    assert (await done(client, stateful(settings=settings, context={"user": "a"})))["status"] == "success"
    bad = await client.post("/runs", json=stateful(settings={"context_schema": {"type": "odd"}}))
    assert bad.json()["errors"][0]["pointer"] == "/agent/context_schema/type"


async def test_a_fork_is_a_thread_of_its_own(client: httpx.AsyncClient) -> None:
    turn = calls(("put", {"field": "log", "value": "a"}))
    run = await done(client, stateful(turn, text="one"))
    origin = run["thread_id"]
    await client.patch(f"/threads/{origin}", json={"metadata": {"kind": "first"}})
    at_one = (await state(client, origin))["checkpoint_id"]
    await done(client, stateful(turn, text="two", thread_id=origin))
    fork = await client.post(f"/threads/{origin}/fork", json={"checkpoint_id": at_one})
    assert fork.status_code == 201
    assert (fork.json()["metadata"], fork.json()["listed"]) == ({"kind": "first"}, True)
    new = fork.json()["id"]
    found = await state(client, new)
    assert (found["values"], found["source"]) == ((await state(client, origin, at_one))["values"], "fork")
    await done(client, stateful(turn, text="two", thread_id=new))
    mine, theirs = await state(client, new), await state(client, origin)
    assert texts(mine) == texts(theirs)
    assert {**mine["values"], "messages": []} == {**theirs["values"], "messages": []}
    whole = (await client.post(f"/threads/{origin}/fork", json={"metadata": {}})).json()
    assert whole["metadata"] == {}
    assert (await state(client, whole["id"]))["values"] == (await state(client, origin))["values"]
    assert (await client.delete(f"/threads/{origin}")).status_code == 204
    assert (await state(client, new))["values"]["log"] == ["a", "a"]


async def test_a_thread_goes_on_from_an_earlier_checkpoint(client: httpx.AsyncClient) -> None:
    run = await done(client, stateful(text="one", state={"count": 1}))
    early = (await state(client, run["thread_id"]))["checkpoint_id"]
    await done(client, stateful(text="two", state={"count": 1}, thread_id=run["thread_id"]))
    back = await update(client, run["thread_id"], {"count": 5}, checkpoint_id=early)
    assert (back.json()["parent_checkpoint_id"], back.json()["values"]["count"]) == (early, 6)
    await done(client, stateful(text="three", thread_id=run["thread_id"]))
    assert texts(await state(client, run["thread_id"])) == ["one", "done", "three", "done"]


async def test_a_checkpoint_of_another_thread_or_tenant_is_unknown(
    client: httpx.AsyncClient, state_server: RunwireServer
) -> None:
    mine, other = await done(client, stateful()), await done(client, stateful())
    foreign = (await state(client, other["thread_id"]))["checkpoint_id"]
    for checkpoint in (foreign, UNKNOWN, "x"):
        at = f"/threads/{mine['thread_id']}"
        for answer in (
            await client.get(f"{at}/state", params={"checkpoint_id": checkpoint}),
            await client.post(f"{at}/state", json={"values": {}, "checkpoint_id": checkpoint}),
            await client.post(f"{at}/fork", json={"checkpoint_id": checkpoint}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (404, "checkpoint_not_found")
    async with state_server.client(OTHER) as stranger:
        for thread_id in (mine["thread_id"], UNKNOWN):
            at = f"/threads/{thread_id}"
            answers = [
                await stranger.get(at),
                await stranger.get(f"{at}/state"),
                await stranger.get(f"{at}/history"),
                await stranger.get(f"{at}/runs"),
                await stranger.post(f"{at}/state", json={"values": {}}),
                await stranger.post(f"{at}/fork", json={}),
                await stranger.patch(at, json={"metadata": {}}),
                await stranger.delete(at),
            ]
            assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [
                (404, "thread_not_found")
            ] * 8
    async with state_server.client(READER) as reader:
        assert (await reader.get(f"/threads/{mine['thread_id']}/state")).status_code == 200
        assert (await reader.post(f"/threads/{mine['thread_id']}/state", json={"values": {}})).status_code == 403
        assert (await reader.delete(f"/threads/{mine['thread_id']}")).status_code == 403


async def test_a_busy_thread_is_read_live_and_changed_by_nobody_else(client: httpx.AsyncClient) -> None:
    thread = await made(client)
    run = (
        await client.post("/runs", json=stateful(calls(("hang", {})), thread_id=thread["id"], state={"note": "n"}))
    ).json()
    at = f"/threads/{thread['id']}"
    found = (await client.get(at)).json()
    assert (found["status"], found["active_run_id"]) == ("busy", run["id"])
    assert (await state(client, thread["id"]))["values"]["note"] == "n"
    for answer in (await client.post(f"{at}/state", json={"values": {}}), await client.delete(at)):
        assert (answer.status_code, answer.json()["code"]) == (409, "thread_busy")
    await client.post(f"/runs/{run['id']}/cancel", params={"wait": "true"})
    assert (await client.get(at)).json()["status"] == "idle"
    await done(client, run_body(scripted(), thread_id=thread["id"]))
    assert (await client.get(at)).json()["status"] == "error"


async def test_a_deleted_thread_leaves_nothing(client: httpx.AsyncClient) -> None:
    thread = await made(client, kind="gone")
    runs = [
        await done(client, stateful(calls(("put", {"field": "log", "value": "x"})), thread_id=thread["id"]))
        for _ in range(3)
    ]
    assert (await client.delete(f"/threads/{thread['id']}")).status_code == 204
    for path in (f"/threads/{thread['id']}", f"/threads/{thread['id']}/state", *(f"/runs/{run['id']}" for run in runs)):
        assert (await client.get(path)).status_code == 404
    assert (await client.get("/threads", params={"metadata.kind": "gone"})).json()["data"] == []
    assert (await client.get("/runs", params={"thread_id": thread["id"]})).json()["data"] == []
    assert (await client.get("/tool-calls", params={"thread_id": thread["id"]})).json()["data"] == []
    assert (await client.post("/runs", json=stateful(thread_id=thread["id"]))).status_code == 404
    assert (await client.delete(f"/threads/{thread['id']}")).status_code == 404


async def test_updates_posted_at_once_are_all_taken(client: httpx.AsyncClient) -> None:
    run = await done(client, stateful())
    answers = await asyncio.gather(*(update(client, run["thread_id"], {"log": [f"v{n}"]}) for n in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert sorted((await state(client, run["thread_id"]))["values"]["log"]) == sorted(f"v{n}" for n in range(20))


async def test_open_calls_are_repaired_before_the_model_sees_them(client: httpx.AsyncClient) -> None:
    thread = await made(client)
    asked: dict[str, object] = {
        "role": "assistant",
        "tool_calls": [{"id": f"c{n}", "name": "look", "args": {}} for n in range(2)],
    }
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "go"},
        asked,
        {"role": "tool", "content": "seen", "tool_call_id": "c1"},
        {"role": "tool", "content": "stray", "tool_call_id": "c9"},
    ]
    assert (await update(client, thread["id"], {"messages": messages})).status_code == 200
    async with asyncio.timeout(TIMEOUT_S), ChatCompletionsServer([model_says("fine")]) as model:
        run = await done(client, run_body(openai(model.base_url), text="on", thread_id=thread["id"]))
    assert run["status"] == "success"
    seen = shown(model.requests[0])
    assert [item["role"] for item in seen] == ["user", "assistant", "tool", "tool", "user"]
    assert [item.get("tool_call_id") for item in seen[2:4]] == ["c1", "c0"]
    assert "no result" in seen[3]["content"]
    stored = (await state(client, thread["id"]))["values"]["messages"]
    assert [item["content"] for item in stored[2:4]] == ["seen", "stray"]
    told = (await client.get(f"/runs/{run['id']}/messages")).json()["data"]
    assert [item["role"] for item in told] == ["user", "assistant", "tool", "tool", "user", "assistant"]


async def test_what_looks_like_a_langchain_object_stays_plain_data(client: httpx.AsyncClient) -> None:
    odd = {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}}
    settings: dict[str, object] = {"state_schema": {"any": {}}}
    run = await done(client, stateful(settings=settings, state={"any": odd}))
    assert (await state(client, run["thread_id"]))["values"]["any"] == odd
    again = await update(client, run["thread_id"], {"any": [odd]})
    assert again.json()["values"]["any"] == [odd]
