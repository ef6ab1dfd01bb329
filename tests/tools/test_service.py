"""Registering, replacing, listing and deleting tools, and what runs hold of them."""

import base64
from dataclasses import replace

import pytest
from dirty_equals import IsStr
from inline_snapshot import snapshot

from app.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from app.core.idempotency import IdempotencyKey
from app.core.principal import Principal
from app.tools.arguments import completed, fitted
from app.tools.demo import DEMO_TOOLS
from app.tools.plugins import PluginSet
from tests.tools.support import ME, Bench, call, ran, spec

pytestmark = pytest.mark.anyio

OTHER = Principal("other", "key-2")
SECRET = "whsec_" + base64.b64encode(b"s" * 24).decode()


def bench() -> Bench:
    return Bench.make(plugins=PluginSet(DEMO_TOOLS))


def with_token(token: str | None = "t0ken", url: str = "https://tools.example.com/x") -> dict[str, object]:
    auth: dict[str, object] = {"type": "bearer"} if token is None else {"type": "bearer", "token": token}
    return spec(http={"url": url, "auth": auth, "headers": {"X-Api-Key": "k3y", "X-Team": "blue"}})


async def test_a_created_tool_shows_its_secret_once() -> None:
    at = bench()
    made, replayed = await at.service.create(ME, spec())
    assert not replayed
    assert made["signing_secret"] == IsStr(regex=r"whsec_[A-Za-z0-9+/]{43}=")
    shown = await at.service.get(ME, "lookup")
    assert shown == {name: value for name, value in made.items() if name != "signing_secret"}
    assert shown == snapshot(
        {
            "name": "lookup",
            "description": "For tests.",
            "parameters": {"type": "object", "properties": {}},
            "http": {"url": "https://tools.example.com/x", "method": "POST", "headers": {}, "auth": None},
            "effect": "write",
            "scopes": [],
            "return_direct": False,
            "constants": {},
            "timeout_s": 30.0,
            "deadline_s": 3600.0,
            "retry": {"max_attempts": 3},
            "max_result_bytes": 1048576,
            "output_schema": None,
            "coerce": False,
            "requires_approval": None,
            "status_url": None,
            "concurrency_key": None,
            "max_concurrency": None,
            "idempotent": False,
            "version": 1,
            "source": "registered",
            "shadowed": False,
            "created_at": IsStr(regex=r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"),
        }
    )


async def test_no_secret_is_kept_in_a_spec_or_comes_back() -> None:
    at = bench()
    await at.service.create(ME, {**with_token(), "signing_secret": SECRET})
    listed, _ = await at.service.list(ME)
    pins = await at.service.pin(ME, [{**with_token(), "name": "inline", "signing_secret": SECRET}], pointer="/tools")
    for place in (at.registry.rows, await at.service.get(ME, "lookup"), listed, pins):
        assert not any(secret in str(place) for secret in ("t0ken", "k3y", SECRET))
    assert (await at.service.get(ME, "lookup"))["http"] == {
        "url": "https://tools.example.com/x",
        "method": "POST",
        "headers": {"X-Api-Key": None, "X-Team": "blue"},
        "auth": {"type": "bearer"},
    }


async def test_a_replay_answers_the_same_and_leaves_no_secret_behind() -> None:
    at = bench()
    key = IdempotencyKey.of("acme", "POST /tools", "k", b"body")
    first, _ = await at.service.create(ME, spec(), key)
    kept = dict(at.secrets.values)
    assert await at.service.create(ME, spec(), key) == (first, True)
    with pytest.raises(Conflict) as caught:
        await at.service.create(ME, spec())
    assert (caught.value.code, at.secrets.values) == ("tool_exists", kept)


async def test_a_replacement_keeps_the_secret_and_never_gives_one_back() -> None:
    at = bench()
    created, new = await at.service.put(ME, "lookup", with_token())
    assert new
    assert created["signing_secret"] == IsStr(regex="whsec_.*")
    kept, new = await at.service.put(ME, "lookup", with_token(None))
    assert (new, kept["version"], "signing_secret" in kept) == (False, 2, False)
    rows = at.registry.rows["acme", "lookup"]
    assert rows[0].spec["signing_secret"] == rows[1].spec["signing_secret"]
    given, _ = await at.service.put(ME, "lookup", {**with_token(None), "signing_secret": SECRET})
    assert "signing_secret" not in given
    assert at.registry.rows["acme", "lookup"][2].spec["signing_secret"] != rows[0].spec["signing_secret"]


@pytest.mark.parametrize("url", ["https://evil.example.com/x", "http://tools.example.com/x"])
async def test_a_kept_token_is_not_led_to_another_origin(url: str) -> None:
    at = bench()
    await at.service.create(ME, with_token())
    with pytest.raises(InvalidRequest) as caught:
        await at.service.put(ME, "lookup", with_token(None, url))
    assert caught.value.errors[0].pointer == "/http/auth/token"


async def test_plugins_are_listed_and_cannot_be_changed() -> None:
    at = bench()
    await at.service.create(ME, spec("b_tool"))
    names = ["b_tool", "calculator", "current_time", "text_length"]
    listed, after = await at.service.list(ME)
    assert ([tool["name"] for tool in listed], after) == (names, None)
    first, after = await at.service.list(ME, limit=2)
    second, end = await at.service.list(ME, limit=2, after=after)
    assert ([tool["name"] for tool in first + second], after, end) == (names, "calculator", None)
    assert [tool["source"] for tool in (await at.service.list(ME, source="registered"))[0]] == ["registered"]
    assert len((await at.service.list(OTHER, source="plugin"))[0]) == 3
    assert (await at.service.get(OTHER, "calculator"))["source"] == "plugin"
    for change in (at.service.delete(ME, "calculator"), at.service.put(ME, "calculator", spec("calculator"))):
        with pytest.raises(Conflict) as caught:
            await change
        assert caught.value.code == "plugin_tool"
    with pytest.raises(Conflict) as caught:
        await at.service.create(ME, spec("calculator"))
    assert caught.value.code == "tool_exists"


async def test_another_tenants_tool_does_not_exist() -> None:
    at = bench()
    await at.service.create(ME, spec())
    for attempt in (
        at.service.get(OTHER, "lookup"),
        at.service.delete(OTHER, "lookup"),
        at.service.invoke(OTHER, "lookup", {}),
    ):
        with pytest.raises(NotFound) as caught:
            await attempt
        assert caught.value.code == "tool_not_found"
    with pytest.raises(InvalidRequest) as refused:
        await at.service.pin(OTHER, ["lookup"], pointer="/tools")
    assert refused.value.code == "unknown_tool"


async def test_pins_name_versions_and_are_plain_json() -> None:
    at = bench()
    await at.service.create(ME, spec())
    await at.service.put(ME, "lookup", spec())
    pins = await at.service.pin(ME, ["lookup", "calculator", spec("mine")], pointer="/tools")
    assert pins[:2] == [
        {"source": "registered", "name": "lookup", "version": 2},
        {"source": "plugin", "name": "calculator"},
    ]
    assert (pins[2]["source"], pins[2]["name"]) == ("inline", "mine")


@pytest.mark.parametrize(
    ("tools", "code", "pointer"),
    [
        (["calculator", "nope"], "unknown_tool", "/agent/tools/1"),
        (["calculator", "calculator"], "duplicate_tool", "/agent/tools/1"),
        ([spec("calculator"), "calculator"], "duplicate_tool", "/agent/tools/1"),
        ([spec(effect="x")], "invalid_request", "/agent/tools/0/effect"),
        ([spec(url="http://127.0.0.1/")], "egress_refused", "/agent/tools/0/http/url"),
        ([spec(http={"url": "https://a.example", "auth": {"type": "bearer"}})], "invalid_request", "/agent/tools/0/http/auth/token"),
    ],
)  # fmt: skip
async def test_what_cannot_be_pinned_is_told_with_its_place(
    tools: list[str | dict[str, object]], code: str, pointer: str
) -> None:
    at = Bench.make(plugins=PluginSet(DEMO_TOOLS), allow=())
    with pytest.raises(InvalidRequest) as caught:
        await at.service.pin(ME, tools, pointer="/agent/tools")
    assert (caught.value.code, caught.value.errors[0].pointer) == (code, pointer)
    assert at.secrets.values == {}


async def test_inline_tools_need_the_scope_to_write_tools() -> None:
    at = bench()
    poor = Principal("acme", "k", frozenset({"runs:write"}))
    with pytest.raises(Forbidden) as caught:
        await at.service.pin(poor, [spec()], pointer="/tools")
    assert caught.value.code == "missing_scope"


async def test_a_run_keeps_its_version_and_a_deleted_tool_is_denied() -> None:
    at = bench()
    await at.service.create(ME, {**spec(), "description": "one"})
    pins = await at.service.pin(ME, ["lookup"], pointer="/tools")
    await at.service.put(ME, "lookup", {**spec(), "description": "two"})
    bound = await at.service.bind(pins, at.context())
    assert bound.definitions[0].description == "one"
    assert await at.service.bind(pins, at.context()) is not bound
    await at.service.delete(ME, "lookup")
    assert at.secrets.values == {}
    fresh = bench()
    fresh.registry.rows, fresh.secrets.values = at.registry.rows, at.secrets.values
    later = await fresh.service.bind(pins, fresh.context())
    outcome = await ran(later.run(call("lookup", {})))
    assert (outcome.status, list(later.definitions), fresh.journal.dispatches) == ("denied", [], [])


async def test_constants_are_hidden_from_the_model() -> None:
    at = bench()
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "version": {"type": "string"}},
        "required": ["city", "version"],
    }
    bound = await at.bound(spec(parameters=parameters, constants={"version": "2"}))
    assert bound.definitions[0].parameters == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }
    arguments, _ = fitted(bound._tools["lookup"], {"city": "Paris", "version": "9"})
    assert completed(bound._tools["lookup"], arguments) == {"city": "Paris", "version": "2"}


async def test_another_tenants_context_binds_nothing_of_mine() -> None:
    at = bench()
    await at.service.create(ME, spec())
    pins = await at.service.pin(ME, ["lookup"], pointer="/tools")
    await at.service.bind(pins, at.context())
    theirs = await at.service.bind(pins, replace(at.context(), principal=OTHER))
    assert list(theirs.definitions) == []


async def test_invoke_takes_plugins_and_checks_arguments() -> None:
    at = bench()
    answer = await at.service.invoke(ME, "calculator", {"expression": "2 + 3"})
    assert [answer[key] for key in ("status", "ok", "data", "error")] == ["success", True, 5, None]
    assert (await at.service.invoke(ME, "calculator", {}))["status"] == "error"
    with pytest.raises(InvalidRequest):
        await at.service.invoke(ME, "calculator", ["2"])
