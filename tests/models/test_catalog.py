"""The catalog: which specs are taken, what is pinned, and whose key goes where."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from app.agent.ports import ModelAnswer, ModelRequest
from app.core.errors import InvalidRequest, ModelError, NotSupported
from app.core.messages import Message
from app.models.catalog import ModelCatalog, ModelOptions
from app.models.retries import Retries
from app.tools.egress import EgressRefused
from tests.support.chat_completions import ChatCompletionsServer, says

pytestmark = pytest.mark.anyio

OPERATOR_KEY, TENANT_KEY = "sk-operator-0123456789", "tenant-key-0123456789"


@dataclass
class Secrets:
    """A `SecretStore` in memory."""

    kept: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    async def put(self, tenant: str, value: str) -> str:
        ref = f"ref-{len(self.kept)}"
        self.kept[tenant, ref] = value
        return ref

    async def get(self, tenant: str, ref: str) -> str | None:
        return self.kept.get((tenant, ref))

    async def delete(self, tenant: str, ref: str) -> None:
        self.kept.pop((tenant, ref), None)


class Guarded(httpx.AsyncHTTPTransport):
    """Stands for the egress guard: lets everything through and counts."""

    made = 0
    requests = 0

    def __init__(self) -> None:
        super().__init__()
        Guarded.made += 1

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        Guarded.requests += 1
        return await super().handle_async_request(request)


@asynccontextmanager
async def catalog(
    options: ModelOptions | None = None,
    *,
    check_url: Callable[[str], None] = lambda url: None,
    secrets: Secrets | None = None,
) -> AsyncGenerator[ModelCatalog]:
    Guarded.made = Guarded.requests = 0
    made = ModelCatalog(
        options or ModelOptions(), secrets=secrets or Secrets(), guarded_transport=Guarded, check_url=check_url
    )
    try:
        yield made
    finally:
        await made.close()


async def ask(models: ModelCatalog, spec: object) -> ModelAnswer:
    model = await models.build("t", await models.pin("t", spec))
    items = [item async for item in model.stream(ModelRequest([Message("user", "hi")], stream=False))]
    assert isinstance(items[0], ModelAnswer)
    return items[0]


@pytest.mark.parametrize(
    ("spec", "pinned"),
    [
        ("openai:gpt-x:y", {"provider": "openai", "model": "gpt-x:y", "params": {}}),
        ("demo", {"provider": "demo", "model": "demo", "params": {"delay_ms": 15}}),
        ("demo:demo", {"provider": "demo", "model": "demo", "params": {"delay_ms": 15}}),
        (
            {"provider": "demo", "params": {"delay_ms": 0}},
            {"provider": "demo", "model": "demo", "params": {"delay_ms": 0}},
        ),
        (
            {"provider": "openai", "model": "m", "base_url": "https://h/v1/", "api_key": "k", "params": {"seed": 1}},
            {
                "provider": "openai",
                "model": "m",
                "params": {"seed": 1},
                "base_url": "https://h/v1",
                "api_key": {"secret_ref": "ref-0"},
            },
        ),
        (
            {"provider": "scripted", "model": "any", "script": [{"content": "x", "delay_ms": 1}], "repeat": True},
            {"provider": "scripted", "model": "any", "script": [{"content": "x", "delay_ms": 1}], "repeat": True},
        ),
    ],
)
async def test_a_spec_is_pinned_as_json_without_secrets(spec: object, pinned: object) -> None:
    async with catalog(ModelOptions(openai_api_key=OPERATOR_KEY)) as models:
        assert json.loads(json.dumps(await models.pin("t", spec))) == pinned


REFUSED: list[tuple[object, str, str]] = [
    ("gpt-x", "unknown_model", "/agent/model"),
    ("openai:", "unknown_model", "/agent/model"),
    ("no\x00pe:x", "unknown_model", "/agent/model"),
    ({"provider": "nope", "model": "m"}, "unknown_model", "/agent/model/provider"),
    ("anthropic:", "unknown_model", "/agent/model"),
    ("scripted:x", "invalid_request", "/agent/model"),
    (7, "invalid_request", "/agent/model"),
    ({"model": "m"}, "invalid_request", "/agent/model/provider"),
    ({"provider": "openai", "model": ""}, "invalid_request", "/agent/model/model"),
    ({"provider": "openai", "model": "m", "extra": 1}, "invalid_request", "/agent/model/extra"),
    ({"provider": "openai", "model": "m", "params": {"stream": True}}, "invalid_request", "/agent/model/params"),
    ({"provider": "openai", "model": "m", "base_url": "ftp://h/v1"}, "invalid_request", "/agent/model/base_url"),
    ({"provider": "openai", "model": "m", "base_url": "http://u:p@h"}, "invalid_request", "/agent/model/base_url"),
    ({"provider": "openai", "model": "m", "base_url": "http://h/?q"}, "invalid_request", "/agent/model/base_url"),
    (
        {"provider": "openai", "model": "m", "api_key": TENANT_KEY + "\r\nX: y"},
        "invalid_request",
        "/agent/model/api_key",
    ),
    (
        {"provider": "scripted", "script": [{}, {"tool_calls": [{"args": {}}]}]},
        "invalid_request",
        "/agent/model/script/1/tool_calls/0/name",
    ),
    (
        {"provider": "scripted", "script": [{"error": {"code": "nope"}}]},
        "invalid_request",
        "/agent/model/script/0/error/code",
    ),
]


@pytest.mark.parametrize(("spec", "code", "pointer"), REFUSED)
async def test_what_cannot_be_used_is_refused_with_its_place(spec: object, code: str, pointer: str) -> None:
    async with catalog(ModelOptions(openai_api_key=OPERATOR_KEY)) as models:
        with pytest.raises(InvalidRequest) as raised:
            await models.pin("t", spec, pointer="/agent/model")
    assert (raised.value.code, raised.value.errors[0].pointer) == (code, pointer)
    assert TENANT_KEY not in f"{raised.value!r} {raised.value.errors}"


async def test_openai_without_a_key_or_an_address_says_what_to_set() -> None:
    async with catalog() as models:
        for step in (models.pin("t", "openai:m"), models.build("t", {"provider": "openai", "model": "m"})):
            with pytest.raises(InvalidRequest) as raised:
                await step
            assert raised.value.code == "model_not_configured"
            assert "OPENAI_API_KEY" in raised.value.message


async def test_the_operators_key_goes_to_the_operators_address() -> None:
    async with ChatCompletionsServer([says("hi")]) as server:
        async with catalog(ModelOptions(openai_api_key=OPERATOR_KEY, openai_base_url=server.base_url)) as models:
            assert (await ask(models, "openai:m")).content == "hi"
            assert Guarded.made == 0
        assert server.requests[0].headers["authorization"] == f"Bearer {OPERATOR_KEY}"


@pytest.mark.parametrize("key", [TENANT_KEY, None])
async def test_a_tenants_address_is_guarded_and_never_gets_the_operators_key(key: str | None) -> None:
    checked: list[str] = []
    async with ChatCompletionsServer([says("hi")]) as server:
        options = ModelOptions(openai_api_key=OPERATOR_KEY, openai_base_url=server.base_url)
        async with catalog(options, check_url=checked.append) as models:
            await ask(models, {"provider": "openai", "model": "m", "base_url": server.base_url, "api_key": key})
            assert (Guarded.made, Guarded.requests) == (1, 1)
        assert server.requests[0].headers.get("authorization") == (key and f"Bearer {key}")
        assert checked == [server.base_url]


async def test_a_server_of_the_operator_needs_no_key() -> None:
    async with ChatCompletionsServer([says("hi")]) as server:
        async with catalog(ModelOptions(openai_base_url=server.base_url)) as models:
            await ask(models, "openai:m")
        assert "authorization" not in server.requests[0].headers


async def test_an_address_under_the_egress_rules_is_refused_when_pinned() -> None:
    def refuse(url: str) -> None:
        raise InvalidRequest("This address is private.", code="egress_refused")

    secrets = Secrets()
    async with catalog(check_url=refuse, secrets=secrets) as models:
        with pytest.raises(InvalidRequest) as raised:
            await models.pin(
                "t", {"provider": "openai", "model": "m", "base_url": "http://10.0.0.1/v1", "api_key": "k"}
            )
    assert (raised.value.code, raised.value.errors[0].pointer) == ("egress_refused", "/model/base_url")
    assert not secrets.kept


async def test_a_refusal_of_the_guard_at_call_time_is_a_model_error() -> None:
    class Refusing(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            raise EgressRefused("the address is private")

    models = ModelCatalog(
        ModelOptions(retries=Retries(max_attempts=2)),
        secrets=Secrets(),
        guarded_transport=Refusing,
        check_url=lambda url: None,
    )
    with pytest.raises(ModelError) as raised:
        await ask(models, {"provider": "openai", "model": "m", "base_url": "http://10.0.0.1/v1"})
    await models.close()
    assert raised.value.code == "model_bad_request"


async def test_a_key_is_another_tenants_secret() -> None:
    async with catalog() as models:
        pinned = await models.pin(
            "t", {"provider": "openai", "model": "m", "base_url": "http://h/v1", "api_key": TENANT_KEY}
        )
        with pytest.raises(ModelError) as raised:
            await models.build("other", pinned)
    assert raised.value.code == "model_auth"


async def test_a_pinned_provider_of_another_version_is_not_supported() -> None:
    async with catalog() as models:
        with pytest.raises(NotSupported):
            await models.build("t", {"provider": "nope", "model": "m"})
