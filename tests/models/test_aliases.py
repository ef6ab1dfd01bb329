"""Aliases: which tables are taken, what a refusal says, and what an agent that names one gets."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.ports import ModelAnswer, ModelRequest
from app.core.errors import InvalidRequest, ModelError
from app.core.messages import Message
from app.models.aliases import AliasError, read_aliases
from app.models.catalog import ModelCatalog, ModelOptions
from app.models.http import Timeouts
from app.models.prices import Prices
from app.models.retries import Retries
from app.settings import load
from tests.support.chat_completions import ChatCompletionsServer, says

pytestmark = pytest.mark.anyio

KEY, OPERATOR_KEY = "sk-of-the-alias-0123456789", "sk-of-the-server-0123456789"
ENVIRON = {"FAST_KEY": KEY, "EMPTY": " ", "ODD": "a\nb"}
FAST: dict[str, object] = {"provider": "openai", "model": "qwen3", "base_url": "http://10.0.0.5:8000/v1"}
CANARY = "canary-value-5309"


class NoSecrets:
    """A `SecretStore` that no alias needs."""

    async def put(self, tenant: str, value: str) -> str:
        raise AssertionError("an alias's key is not a tenant's secret")

    async def get(self, tenant: str, ref: str) -> str | None:
        raise AssertionError("an alias's key is not a tenant's secret")

    async def delete(self, tenant: str, ref: str) -> None:
        raise AssertionError("an alias's key is not a tenant's secret")


def refuse(url: str) -> None:
    raise InvalidRequest("This address is private.", code="egress_refused")


def no_guard() -> httpx.AsyncBaseTransport:
    raise AssertionError("an alias goes through the operator's own connections")


@asynccontextmanager
async def catalog(
    table: Mapping[str, object], environ: Mapping[str, str] = ENVIRON, **options: str
) -> AsyncGenerator[ModelCatalog]:
    aliases = read_aliases(json.dumps(table), environ)
    made = ModelCatalog(
        ModelOptions(aliases=aliases, **options),  # pyright: ignore[reportArgumentType]
        secrets=NoSecrets(),
        guarded_transport=no_guard,
        check_url=refuse,
    )
    try:
        yield made
    finally:
        await made.close()


async def ask(models: ModelCatalog, pinned: Mapping[str, object]) -> ModelAnswer:
    model = await models.build("t", pinned)
    items = [item async for item in model.stream(ModelRequest([Message("user", "hi")], stream=False))]
    assert isinstance(items[0], ModelAnswer)
    return items[0]


def test_a_whole_alias_is_read_with_its_key_from_the_environment() -> None:
    alias = read_aliases(
        json.dumps(
            {
                "fast": {
                    **FAST,
                    "api_key_env": "FAST_KEY",
                    "params": {"temperature": 0},
                    "prices": {"input_per_mtok": 1, "output_per_mtok": 2.5, "cache_read_per_mtok": 0.1},
                    "timeouts": {"first_token_s": 20},
                    "retries": {"max_attempts": 2},
                    "description": "For short answers.",
                }
            }
        ),
        ENVIRON,
    )["fast"]
    assert (alias.provider, alias.model, alias.api_key) == ("openai", "qwen3", KEY)
    assert alias.spec == {**FAST, "params": {"temperature": 0}}
    assert alias.prices == Prices(1, 2.5, 0.1)
    assert alias.timeouts == Timeouts(first_token_s=20)
    assert alias.retries == Retries(max_attempts=2)
    assert KEY not in repr(alias)
    shown = json.dumps(alias.to_json())
    assert "10.0.0.5" not in shown
    assert "temperature" not in shown


def test_a_key_may_stand_in_a_file_with_a_line_end(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    aliases = read_aliases(json.dumps({"fast": {**FAST, "api_key_file": str(tmp_path / "key")}}), {})
    assert aliases["fast"].api_key == KEY


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
def test_no_aliases_are_fine(text: str) -> None:
    assert read_aliases(text, {}) == {}


def one(**more: object) -> dict[str, object]:
    return {"fast": {**FAST, **more}}


PRICES = {"input_per_mtok": 1, "output_per_mtok": 1}

REFUSED: dict[str, tuple[object, str]] = {
    "an unknown field": (one(modle=CANARY), 'alias "fast": modle'),
    "a literal key": (
        one(api_key=CANARY),
        'alias "fast": api_key: a key does not belong here; name it with api_key_env',
    ),
    "a literal token": (one(Authorization=CANARY), "api_key_env or api_key_file"),
    "a fallback": (one(fallback=CANARY), 'alias "fast": fallback'),
    "no variable of this name": (one(api_key_env=CANARY.replace("-", "_")), 'alias "fast": api_key_env'),
    "a key where its variable's name belongs": (one(api_key_env=CANARY), 'alias "fast": api_key_env'),
    "an empty key": (one(api_key_env="EMPTY"), 'alias "fast": api_key_env: the key is empty'),
    "a key of two lines": (one(api_key_env="ODD"), 'alias "fast": api_key_env: the key'),
    "no such file": (one(api_key_file=f"/nowhere/{CANARY}"), 'alias "fast": api_key_file: the file cannot be read'),
    "a folder": (one(api_key_file="/"), 'alias "fast": api_key_file'),
    "a path with U+0000": (one(api_key_file="/\x00"), 'alias "fast": api_key_file'),
    "two keys": (one(api_key_env="FAST_KEY", api_key_file="/x"), 'alias "fast": api_key_file'),
    "no URL": (one(base_url=f"{CANARY}:8000"), 'alias "fast": base_url'),
    "another scheme": (one(base_url=f"ftp://{CANARY}/v1"), 'alias "fast": base_url'),
    "a URL with a password": (one(base_url=f"http://u:{CANARY}@h/v1"), 'alias "fast": base_url'),
    "a URL with a query": (one(base_url=f"http://h/v1?key={CANARY}"), 'alias "fast": base_url'),
    "a URL that is a number": (one(base_url=7), 'alias "fast": base_url'),
    "a reserved param": (one(params={"messages": CANARY}), 'alias "fast": params'),
    "params that are a list": (one(params=[CANARY]), 'alias "fast": params'),
    "negative prices": (one(prices={**PRICES, "input_per_mtok": -1}), 'alias "fast": prices.input_per_mtok'),
    "NaN prices": (one(prices={**PRICES, "output_per_mtok": float("nan")}), 'alias "fast": prices.output_per_mtok'),
    "infinite prices": (one(prices={**PRICES, "output_per_mtok": float("inf")}), "prices.output_per_mtok"),
    "prices as text": (one(prices={**PRICES, "output_per_mtok": CANARY}), "prices.output_per_mtok"),
    "half of the prices": (one(prices={"input_per_mtok": 1}), 'alias "fast": prices.output_per_mtok'),
    "an unknown price": (one(prices={**PRICES, "per_image": 1}), 'alias "fast": prices.per_image'),
    "no time at all": (one(timeouts={"total_s": 0}), 'alias "fast": timeouts.total_s'),
    "an unknown deadline": (one(timeouts={"read": 3}), 'alias "fast": timeouts.read'),
    "no attempt": (one(retries={"max_attempts": 0}), 'alias "fast": retries.max_attempts'),
    "half an attempt": (one(retries={"max_attempts": 1.5}), 'alias "fast": retries.max_attempts'),
    "true as an attempt": (one(retries={"max_attempts": True}), 'alias "fast": retries.max_attempts'),
    "no provider": ({"fast": {"model": CANARY}}, 'alias "fast": provider'),
    "an unknown provider": (one(provider=CANARY), 'alias "fast": provider: unknown'),
    "another alias": ({**one(), "slow": {"provider": "fast", "model": "x"}}, 'alias "slow": provider: an alias cannot'),
    "an alias by its prefix": (one(provider="alias", model="slow"), 'alias "fast": provider: an alias cannot'),
    "no model": ({"fast": {"provider": "openai"}}, 'alias "fast": model'),
    "an empty model": (one(model=""), 'alias "fast": model'),
    "not an object": ({"fast": "openai:x"}, 'alias "fast": must be an object'),
    "a name with a colon": ({"a:b": FAST}, 'the name "a:b" must match'),
    "a name with a new line": ({"a\nb": FAST}, 'the name "a?b" must match'),
    "an empty name": ({"": FAST}, 'the name "" must match'),
    "a provider's name": ({"openai": FAST}, 'alias "openai": this is a provider'),
    "the demo's name": ({"demo": {"provider": "demo"}}, 'alias "demo": this is a provider'),
    "a key for a model without a server": (
        {"fast": {"provider": "demo", "api_key_env": "FAST_KEY"}},
        'alias "fast": api_key_env: has no effect',
    ),
    "deadlines for a script": (
        {"fast": {"provider": "scripted", "script": [], "timeouts": {}}},
        'alias "fast": timeouts: has no effect',
    ),
    "a wrong script": (
        {"fast": {"provider": "scripted", "script": [{"content": 7}]}},
        'alias "fast": script.0.content',
    ),
    "a list": ([CANARY], "it must be an object"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_by_alias_and_field_and_never_by_value(case: str) -> None:
    table, says_ = REFUSED[case]
    with pytest.raises(AliasError) as raised:
        read_aliases(json.dumps(table), ENVIRON)
    text = str(raised.value)
    assert says_ in text
    assert "\n" not in text
    for value in (CANARY, CANARY.replace("-", "_"), KEY):
        assert value not in text


@pytest.mark.parametrize(
    ("text", "says_"),
    [
        ('{"fast": ' + CANARY, "not valid JSON"),
        ('{"a": {"provider": "demo"}, "a": {"provider": "demo"}}', "holds a name twice"),
        ('{"a": {"provider": "demo", "provider": "openai"}}', "holds a name twice"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_text_that_is_no_table_is_refused(text: str, says_: str) -> None:
    with pytest.raises(AliasError, match=says_) as raised:
        read_aliases(text, {})
    assert CANARY not in str(raised.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    [
        "provider",
        "model",
        "base_url",
        "api_key_env",
        "api_key_file",
        "params",
        "prices",
        "timeouts",
        "retries",
        "script",
    ]
)


@given(
    st.dictionaries(
        st.sampled_from(["fast", "slow"]) | st.text(max_size=8),
        st.dictionaries(names | st.text(max_size=8), values | st.sampled_from(["openai", "demo"])),
        max_size=3,
    )
)
def test_any_json_is_a_table_of_aliases_or_an_error_of_one_line(table: dict[str, object]) -> None:
    try:
        read_aliases(json.dumps(table), {})
    except AliasError as error:
        text = str(error)
    else:
        text = ""
    assert text.isprintable()


def test_an_alias_without_a_place_to_go_to_stops_the_start() -> None:
    aliases = read_aliases(json.dumps({"fast": {"provider": "openai", "model": "x"}}), {})
    with pytest.raises(AliasError, match=r'alias "fast": provider: .*OPENAI_API_KEY'):
        ModelCatalog(ModelOptions(aliases=aliases), secrets=NoSecrets(), guarded_transport=no_guard, check_url=refuse)


def test_a_table_in_toml_means_the_same(tmp_path: Path) -> None:
    (tmp_path / "runwire.toml").write_text(
        '[models.fast]\nprovider = "openai"\nmodel = "qwen3"\nbase_url = "http://10.0.0.5:8000/v1"\n'
        "[models.fast.prices]\ninput_per_mtok = 1\noutput_per_mtok = 2.5\n"
    )
    settings = load({"RUNWIRE_CONFIG": str(tmp_path / "runwire.toml")})
    fast = read_aliases(settings.models.get_secret_value(), {})["fast"]
    assert (fast.spec["base_url"], fast.prices) == ("http://10.0.0.5:8000/v1", Prices(1, 2.5))
    assert "10.0.0.5" not in repr(settings)
    (tmp_path / "models.json").write_text('{"slow": {"provider": "demo"}}')
    both = {"RUNWIRE_CONFIG": str(tmp_path / "runwire.toml"), "RUNWIRE_MODELS_FILE": str(tmp_path / "models.json")}
    assert list(read_aliases(load(both).models.get_secret_value(), {})) == ["slow"]


@pytest.mark.parametrize("spec", ["fast", "alias:fast", {"provider": "alias", "model": "fast"}])
async def test_only_the_name_of_an_alias_is_pinned(spec: object) -> None:
    async with catalog(one(api_key_env="FAST_KEY")) as models:
        assert await models.pin("t", spec) == {"provider": "alias", "model": "fast"}


@pytest.mark.parametrize(
    ("spec", "code", "pointer"),
    [
        ("slow", "unknown_model", "/agent/model"),
        ("alias:slow", "unknown_model", "/agent/model"),
        ("alias:", "unknown_model", "/agent/model"),
        ({"provider": "alias", "model": "slow"}, "unknown_model", "/agent/model/model"),
        ({"provider": "alias", "model": 7}, "invalid_request", "/agent/model/model"),
        ({"provider": "alias"}, "invalid_request", "/agent/model/model"),
        ({"provider": "alias", "model": "fast", "base_url": "http://h/v1"}, "invalid_request", "/agent/model/base_url"),
        ({"provider": "alias", "model": "fast", "api_key": "k"}, "invalid_request", "/agent/model/api_key"),
        ({"provider": "alias", "model": "fast", "params": {"model": "x"}}, "invalid_request", "/agent/model/params"),
        ({"provider": "fast", "model": "x"}, "unknown_model", "/agent/model/provider"),
    ],
)
async def test_what_names_no_alias_or_more_than_params_is_refused(spec: object, code: str, pointer: str) -> None:
    async with catalog(one()) as models:
        with pytest.raises(InvalidRequest) as raised:
            await models.pin("t", spec, pointer="/agent/model")
    assert (raised.value.code, raised.value.errors[0].pointer) == (code, pointer)
    if code == "unknown_model":
        assert "fast" in raised.value.message


async def test_a_refusal_names_ten_aliases_at_most() -> None:
    async with catalog({f"m{number:02}": FAST for number in range(12)}) as models:
        with pytest.raises(InvalidRequest) as raised:
            await models.pin("t", "slow")
    assert "m00, m01, m02, m03, m04, m05, m06, m07, m08, m09 and 2 more" in raised.value.message


async def test_a_key_goes_to_its_alias_and_no_other_key_does() -> None:
    async with ChatCompletionsServer([says("hi")]) as server:
        table = {
            "own": {**FAST, "base_url": server.base_url, "api_key_env": "FAST_KEY"},
            "bare": {**FAST, "base_url": server.base_url},
            "home": {"provider": "openai", "model": "x"},
            "keyed": {"provider": "openai", "model": "x", "api_key_env": "FAST_KEY"},
        }
        async with catalog(table, openai_api_key=OPERATOR_KEY, openai_base_url=server.base_url) as models:
            for name in table:
                assert (await ask(models, await models.pin("t", name))).content == "hi"
        sent = [request.headers.get("authorization") for request in server.requests]
    assert sent == [f"Bearer {KEY}", None, f"Bearer {OPERATOR_KEY}", f"Bearer {KEY}"]


async def test_params_of_a_run_go_over_the_aliases_own() -> None:
    async with ChatCompletionsServer([says("hi")]) as server:
        table = {"fast": {**FAST, "base_url": server.base_url, "params": {"temperature": 0, "seed": 1}}}
        async with catalog(table) as models:
            spec = {"provider": "alias", "model": "fast", "params": {"temperature": 1, "stream_options": None}}
            await ask(models, await models.pin("t", spec))
            await ask(models, await models.pin("t", "fast"))
        first, second = (request.json for request in server.requests)
    assert (first["temperature"], first["seed"], "stream_options" in first) == (1, 1, False)
    assert (second["temperature"], second["seed"], "stream_options" in second) == (0, 1, True)


async def test_an_alias_is_looked_up_again_when_it_is_built() -> None:
    async with catalog(one(), openai_api_key=OPERATOR_KEY) as models:
        pinned = await models.pin("t", {"provider": "alias", "model": "fast", "params": {"seed": 1}})
    async with catalog({"slow": FAST}) as models:
        with pytest.raises(ModelError) as raised:
            await models.build("t", pinned)
    assert raised.value.code == "model_not_configured"
    assert "no longer configured" in raised.value.message
    async with catalog({"fast": {"provider": "demo"}}) as models:
        with pytest.raises(ModelError) as raised:
            await models.build("t", pinned)
    assert raised.value.code == "model_not_configured"
    assert "no longer takes" in raised.value.message


async def test_answers_of_an_alias_with_prices_carry_their_cost() -> None:
    turn = {"content": "hi", "usage": {"input_tokens": 1000, "output_tokens": 200}}
    script = {"provider": "scripted", "script": [turn]}
    table = {"priced": {**script, "prices": {"input_per_mtok": 3, "output_per_mtok": 15}}, "free": script}
    async with catalog(table) as models:
        priced, free = await models.pin("t", "priced"), await models.pin("t", "free")
        assert (models.priced(priced), models.priced(free)) == (True, False)
        assert (await ask(models, priced)).tokens.cost_usd == 0.006
        assert (await ask(models, free)).tokens.cost_usd is None
        assert not models.priced(await models.pin("t", script))


def test_the_documented_table_is_one() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text("utf-8")
    text = page.partition("RUNWIRE_MODELS='")[2].partition("'")[0]
    fast = read_aliases(text, {"QWEN_KEY": KEY})["fast"]
    assert (fast.api_key, fast.description) == (KEY, "For short answers.")
