"""Who may do what: keys, scopes, and the wall between tenants."""

import httpx
import pytest

from tests.api.problems import check_problem
from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.server import ACME, NOBODY, OTHER, READER, RUNNER, RunwireServer

pytestmark = pytest.mark.anyio

HELLO = run_body(scripted(says("hello")))
UNKNOWN = "0190a0a0-0000-7000-8000-000000000000"
TOOL_URL = "https://tools.example.com/x"


async def test_the_key_goes_in_either_header(server: RunwireServer) -> None:
    async with server.client(None) as client:
        for headers in ({"Authorization": f"Bearer {ACME}"}, {"Authorization": f"bearer  {ACME}"}, {"X-API-Key": ACME}):
            assert (await client.get("/runs", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"Authorization": "Bearer"}, {"Authorization": "Bearer wrong-key-0123456789"}, {"X-API-Key": ""},
        {"Authorization": f"Basic {ACME}"}, {"Authorization": ACME}, {"X-API-Key": ACME + "x"},
        {"Authorization": "Bearer nonsense", "X-API-Key": ACME}, {"Authorization": "Bearer \xff\xfe"},
    ],
)  # fmt: skip
async def test_without_a_good_key_every_route_is_401(server: RunwireServer, headers: dict[str, str]) -> None:
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    async with server.client(None) as client:
        for method, path in (
            ("GET", "/runs"), ("POST", "/runs"), ("POST", "/runs/stream"), ("POST", "/runs/wait"), ("GET", f"/runs/{UNKNOWN}"),
            ("GET", f"/runs/{UNKNOWN}/stream"), ("GET", f"/runs/{UNKNOWN}/events"), ("GET", f"/runs/{UNKNOWN}/steps"),
            ("GET", f"/runs/{UNKNOWN}/steps/1"), ("GET", f"/runs/{UNKNOWN}/messages"), ("GET", f"/runs/{UNKNOWN}/wait"),
            ("POST", f"/runs/{UNKNOWN}/cancel"), ("POST", f"/runs/{UNKNOWN}/resume"), ("DELETE", f"/runs/{UNKNOWN}"),
            ("GET", "/agents"), ("POST", "/agents"), ("GET", "/agents/a"), ("PUT", "/agents/a"), ("DELETE", "/agents/a"),
            ("GET", "/tools"), ("POST", "/tools"), ("GET", "/tools/echo"), ("PUT", "/tools/a"), ("DELETE", "/tools/a"),
            ("POST", "/tools/echo/invoke"),
        ):  # fmt: skip
            answer = await client.request(method, path, headers=encoded)
            check_problem(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("name", ["api_key", "access_token", "token", "X-API-Key"])
async def test_a_key_in_the_address_is_401_even_beside_a_good_one(client: httpx.AsyncClient, name: str) -> None:
    check_problem(await client.get("/runs", params={name: ACME}), 401, "unauthenticated")


async def test_each_route_asks_for_its_scope(server: RunwireServer) -> None:
    allowed = {
        ("GET", "/runs"): "runs:read",
        ("GET", f"/runs/{UNKNOWN}"): "runs:read",
        ("GET", f"/runs/{UNKNOWN}/stream"): "runs:read",
        ("GET", f"/runs/{UNKNOWN}/events"): "runs:read",
        ("GET", f"/runs/{UNKNOWN}/steps"): "runs:read",
        ("GET", f"/runs/{UNKNOWN}/steps/1"): "runs:read",
        ("GET", f"/runs/{UNKNOWN}/messages"): "runs:read",
        ("GET", f"/runs/{UNKNOWN}/wait"): "runs:read",
        ("POST", "/runs"): "runs:write",
        ("POST", "/runs/stream"): "runs:write",
        ("POST", "/runs/wait"): "runs:write",
        ("POST", f"/runs/{UNKNOWN}/cancel"): "runs:write",
        ("DELETE", f"/runs/{UNKNOWN}"): "runs:write",
        ("POST", "/tools/nothing/invoke"): "runs:write",
        ("GET", "/tools"): "tools:read",
        ("GET", "/tools/nothing"): "tools:read",
        ("POST", "/tools"): "tools:write",
        ("PUT", "/tools/nothing"): "tools:write",
        ("DELETE", "/tools/nothing"): "tools:write",
        ("POST", "/agents"): "agents:write",
        ("PUT", "/agents/nothing"): "agents:write",
        ("DELETE", "/agents/nothing"): "agents:write",
    }
    held = {READER: {"runs:read", "tools:read"}, RUNNER: {"runs:read", "runs:write"}, NOBODY: set[str]()}
    for key, scopes in held.items():
        async with server.client(key) as client:
            for (method, path), scope in allowed.items():
                answer = await client.request(method, path)
                if scope in scopes:
                    assert answer.status_code not in (401, 403), (key, method, path)
                else:
                    check_problem(answer, 403, "missing_scope")
                    assert scope in answer.json()["detail"]


async def test_inline_agents_and_tools_need_their_own_scopes(server: RunwireServer, client: httpx.AsyncClient) -> None:
    await client.put("/agents/scoped", json={"model": scripted(says("x")), "tools": ["echo"]})
    async with server.client(RUNNER) as runner:
        assert (await runner.post("/runs", json={"agent": "scoped", "input": "x"})).status_code == 201
        check_problem(await runner.post("/runs", json=HELLO), 403, "missing_scope")


async def test_a_tools_own_scope_is_asked_of_the_caller(server: RunwireServer, client: httpx.AsyncClient) -> None:
    await client.put("/tools/scoped_tool", json=tool_spec("scoped_tool", TOOL_URL, scopes=["orders:read"]))
    turn = calls(("scoped_tool", {}))
    await client.put("/agents/scoped_caller", json={"model": scripted(turn, says("ok")), "tools": ["scoped_tool"]})
    async with server.client(RUNNER) as runner:
        run = (await runner.post("/runs/wait", json={"agent": "scoped_caller", "input": "x"})).json()
        step = (await runner.get(f"/runs/{run['id']}/steps/1")).json()
    assert (step["status"], step["attempts"], run["status"]) == ("denied", [], "success")
    assert [item["stage"] for item in step["chain"]][:3] == ["intent", "validation", "authorization"]


def but_for_the_request(answer: httpx.Response) -> dict[str, object]:
    body = answer.json()
    return {name: value for name, value in body.items() if name not in ("request_id", "instance")}


async def test_another_tenants_things_do_not_exist_on_any_route(
    server: RunwireServer, client: httpx.AsyncClient
) -> None:
    made = (await client.post("/runs/wait", json={**HELLO, "metadata": {"wall": "1"}})).json()
    await client.put("/agents/walled_agent", json={"model": scripted(says("x"))})
    await client.put("/tools/walled_tool", json=tool_spec("walled_tool", TOOL_URL))
    async with server.client(OTHER) as other:
        for method, path in (
            ("GET", "/runs/{}"), ("GET", "/runs/{}/stream"), ("GET", "/runs/{}/events"), ("GET", "/runs/{}/steps"),
            ("GET", "/runs/{}/steps/1"), ("GET", "/runs/{}/messages"), ("GET", "/runs/{}/wait"),
            ("POST", "/runs/{}/cancel"), ("POST", "/runs/{}/resume"), ("DELETE", "/runs/{}"),
        ):  # fmt: skip
            theirs = await other.request(method, path.format(made["id"]))
            unknown = await other.request(method, path.format(UNKNOWN))
            check_problem(theirs, 404, "run_not_found")
            hidden, absent = but_for_the_request(theirs), but_for_the_request(unknown)
            assert str(hidden).replace(made["id"], "ID") == str(absent).replace(UNKNOWN, "ID")
        for method, path in (
            ("GET", "/agents/{}_agent"), ("DELETE", "/agents/{}_agent"), ("GET", "/tools/{}_tool"),
            ("DELETE", "/tools/{}_tool"), ("POST", "/tools/{}_tool/invoke"),
        ):  # fmt: skip
            body: object = {"arguments": {}} if method == "POST" else None
            theirs = await other.request(method, path.format("walled"), json=body)
            unknown = await other.request(method, path.format("absent"), json=body)
            check_problem(theirs, 404)
            assert str(but_for_the_request(theirs)).replace("walled", "absent") == str(but_for_the_request(unknown))
        for body, code in (
            ({"agent": "walled_agent", "input": "x"}, "unknown_agent"),
            (run_body(scripted(says("x")), "walled_tool"), "unknown_tool"),
        ):
            check_problem(await other.post("/runs", json=body), 422, code)
        thread = await other.post("/runs", json={**HELLO, "thread_id": made["thread_id"]})
        check_problem(thread, 404, "thread_not_found")
        for query in (
            {},
            {"thread_id": made["thread_id"]},
            {"metadata.wall": "1"},
            {"after": "ffffffff-ffff-7fff-8fff-ffffffffffff"},
        ):
            found = (await other.get("/runs", params=query)).json()["data"]
            assert made["id"] not in [run["id"] for run in found]
        assert (await other.get("/agents", params={"limit": 100})).json()["data"] == []
        listed = (await other.get("/tools", params={"source": "registered", "limit": 100})).json()["data"]
        assert "walled_tool" not in [tool["name"] for tool in listed]
        assert (await other.put("/tools/walled_tool", json=tool_spec("walled_tool", TOOL_URL))).status_code == 201
    assert (await client.get("/tools/walled_tool")).json()["version"] == 1
    assert (await client.get(f"/runs/{made['id']}")).json()["status"] == "success"
