"""The audit of tool calls over HTTP: asked, decided, sent, answered, and for whom."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from dirty_equals import IsStr
from inline_snapshot import snapshot

from app.core.ids import new_id
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.receiver import Receiver
from tests.support.server import NOBODY, OTHER, TIMEOUT_S, RunwireServer

pytestmark = pytest.mark.anyio

UUID = IsStr(regex=r"[0-9a-f]{8}-[0-9a-f-]{27}")
TIME = IsStr(regex=r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
async def tool() -> AsyncIterator[Receiver]:
    async with Receiver.open() as opened:
        yield opened


async def registered(client: httpx.AsyncClient, tool: Receiver) -> str:
    name = "a" + new_id().replace("-", "")
    answer = await client.post("/tools", json=tool_spec(name, tool.url))
    assert answer.status_code == 201, answer.text
    return name


async def run_of(client: httpx.AsyncClient, *wanted: tuple[str, dict[str, object]], **more: object) -> dict[str, Any]:
    names = {name for name, _ in wanted}
    body = run_body(scripted(*(calls(item) for item in wanted), says("done")), *names, **more)
    run = (await client.post("/runs/wait", json=body)).json()
    assert run["status"] == "success", run
    return run


async def audit(client: httpx.AsyncClient, **where: str | int) -> list[dict[str, Any]]:
    answer = await client.get("/tool-calls", params=where)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


async def test_a_call_is_told_whole(client: httpx.AsyncClient, tool: Receiver) -> None:
    name = await registered(client, tool)
    run = await run_of(client, (name, {"order": 7}))
    [item] = await audit(client, tool=name)
    [sent] = tool.requests
    one = (await client.get(f"/tool-calls/{item['tool_call_id']}")).json()
    assert {key: one[key] for key in item} == item
    assert item["idempotency_key"] == sent.headers["idempotency-key"]
    assert (item["tool_call_id"], item["run_id"], item["thread_id"]) == (
        sent.headers["webhook-id"], run["id"], run["thread_id"],
    )  # fmt: skip
    shown = {key: value for key, value in item.items() if key not in ("chain", "attempts", "tool", "duration_ms")}
    assert shown == snapshot(
        {
            "tool_call_id": UUID,
            "run_id": UUID,
            "thread_id": UUID,
            "step": 1,
            "agent": None,
            "principal": {"tenant": "acme", "subject": IsStr(regex="key_[0-9a-f]{12}")},
            "tool_version": 1,
            "effect": "write",
            "tool_input": {"order": 7},
            "sent_input": None,
            "arguments_sha256": IsStr(regex="[0-9a-f]{64}"),
            "asked_at": TIME,
            "idempotency_key": IsStr(regex="[0-9a-f]{64}"),
            "attempts_recorded": 1,
            "started_at": TIME,
            "status": "success",
            "error_code": None,
            "answered_at": TIME,
        }
    )
    assert [(step["stage"], step["verdict"]) for step in item["chain"]] == [
        ("intent", "ok"), ("validation", "ok"), ("authorization", "ok"), ("execution", "success"),
    ]  # fmt: skip
    assert [(attempt["attempt"], attempt["http_status"]) for attempt in item["attempts"]] == [(1, 200)]
    assert (one["observation"], one["error"], one["envelope"]["ok"]) == ("done", None, True)


async def test_a_call_under_way_is_there_before_its_answer(client: httpx.AsyncClient, tool: Receiver) -> None:
    name = await registered(client, tool)
    tool.hold = asyncio.Event()
    body = run_body(scripted(calls((name, {})), says("done")), name)
    async with asyncio.timeout(TIMEOUT_S):
        run = (await client.post("/runs", json=body)).json()
        await tool.until(1)
        [item] = await audit(client, run_id=run["id"])
        assert (item["status"], item["attempts_recorded"], item["answered_at"]) == ("running", 1, None)
        tool.hold.set()
        await client.get(f"/runs/{run['id']}/wait")
    assert [item["status"] for item in await audit(client, run_id=run["id"])] == ["success"]


async def test_filters_and_pages(client: httpx.AsyncClient, tool: Receiver) -> None:
    name = await registered(client, tool)
    run = await run_of(client, (name, {"n": 1}), (name, {"n": 2}), ("echo", {"text": 5}))
    first = await client.get("/tool-calls", params={"thread_id": run["thread_id"], "limit": 2})
    page = first.json()
    rest = await audit(client, thread_id=run["thread_id"], limit=2, after=page["next_cursor"])
    assert [item["step"] for item in [*page["data"], *rest]] == [3, 2, 1]
    assert (page["has_more"], page["data"][0]["status"], page["data"][0]["error_code"]) == (
        True, "error", "invalid_arguments",
    )  # fmt: skip
    assert [item["step"] for item in await audit(client, run_id=run["id"], outcome="error")] == [3]
    assert [item["step"] for item in await audit(client, run_id=run["id"], tool=name)] == [2, 1]
    at = page["data"][1]["asked_at"]
    assert 2 in [item["step"] for item in await audit(client, run_id=run["id"], **{"from": at})]
    assert 2 not in [item["step"] for item in await audit(client, run_id=run["id"], to=at)]
    assert await audit(client, run_id=run["id"], **{"from": "2999-01-01T00:00:00+02:00"}) == []


@pytest.mark.parametrize(
    "query",
    ["from=yesterday", "to=2026-01-01", "from=2026-01-01T00:00:00", "outcome=done", "limit=0", "to=9999-99-99T00:00:00Z"],
)  # fmt: skip
async def test_what_is_no_filter_is_refused(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"/tool-calls?{query}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


async def test_another_tenant_finds_nothing_and_a_key_needs_the_scope(
    client: httpx.AsyncClient, server: RunwireServer
) -> None:
    run = await run_of(client, ("echo", {"text": "hi"}))
    [item] = await audit(client, run_id=run["id"])
    async with server.client(OTHER) as other, server.client(NOBODY) as nobody:
        assert await audit(other, run_id=run["id"]) == []
        theirs, unknown = (
            await other.get(f"/tool-calls/{item['tool_call_id']}"),
            await other.get(f"/tool-calls/{new_id()}"),
        )
        assert [answer.json()["code"] for answer in (theirs, unknown)] == ["tool_call_not_found"] * 2
        assert (await nobody.get("/tool-calls")).status_code == 403


async def test_a_call_has_one_id_in_its_step_its_audit_and_its_envelope(
    client: httpx.AsyncClient, tool: Receiver
) -> None:
    name = await registered(client, tool)
    run = await run_of(client, (name, {}))
    [step] = (await client.get(f"/runs/{run['id']}/steps")).json()["data"]
    [item] = await audit(client, run_id=run["id"])
    whole = (await client.get(f"/tool-calls/{step['tool_call_id']}")).json()
    assert item["tool_call_id"] == whole["tool_call_id"] == step["tool_call_id"]
    assert whole["envelope"]["meta"]["tool_call_id"] == step["tool_call_id"]
    assert "id" not in whole


async def test_a_failed_call_outside_a_run_says_so_in_a_sentence(client: httpx.AsyncClient, tool: Receiver) -> None:
    name = await registered(client, tool)
    tool.answer = lambda _: (404, {"why": "gone"})
    said = (await client.post(f"/tools/{name}/invoke", json={"arguments": {}})).json()
    call_id, request_id = said["meta"]["tool_call_id"], said["error"]["request_id"]
    assert said == {
        "status": "error",
        "ok": False,
        "data": None,
        "error": {
            "code": "tool_http_error",
            "retryable": False,
            "state": "failed",
            "request_id": request_id,
            "tool_call_id": call_id,
            "user_message": IsStr(regex=f"{name} answered HTTP 404.*"),
        },
        "meta": {
            "tool": name, "tool_call_id": call_id, "status": "error", "attempts": 1,
            "duration_ms": said["meta"]["duration_ms"],
        },
    }  # fmt: skip


async def test_a_call_under_a_key_has_an_id_that_is_made_of_it_and_any_other_a_new_one(
    client: httpx.AsyncClient, tool: Receiver
) -> None:
    name = await registered(client, tool)

    async def called(*, key: str | None = None, order: int = 1) -> uuid.UUID:
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = await client.post(f"/tools/{name}/invoke", json={"arguments": {"order": order}}, headers=headers)
        assert answer.json()["meta"]["tool_call_id"] == tool.requests[-1].headers["webhook-id"]
        return uuid.UUID(answer.json()["meta"]["tool_call_id"])

    key = new_id()
    kept = [await called(key=key), await called(key=key)]
    assert kept[0] == kept[1]
    others = [await called(key=key, order=2), await called(key=new_id()), await called(), await called()]
    assert len({kept[0], *others}) == 5
    assert [call.version for call in (kept[0], *others)] == [8, 8, 8, 7, 7]
