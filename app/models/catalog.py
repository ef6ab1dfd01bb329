"""The model catalog: turns an AgentSpec's `model` into a pinned one, and a pinned one into a chat model."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import cast

import httpx

from app.agent.ports import ChatModel
from app.agent.trimming import CountTokens
from app.core.errors import FieldError, InvalidRequest, ModelError, NotSupported
from app.core.registry import SecretStore
from app.core.values import immutable
from app.models.aliases import REMOTE, Alias, AliasError, check_overridden, reference_of
from app.models.answer_formats import keeps_formats
from app.models.demo import DemoModel
from app.models.http import ModelClient, Timeouts
from app.models.plugins import ModelPlugins
from app.models.prices import PricedModel
from app.models.remote import REMOTE_PROVIDERS, Endpoint
from app.models.retries import Retries
from app.models.scripted import ScriptedModel
from app.models.spec import PROVIDERS, check_model
from app.models.tokenizer import Tokenizers


@immutable
class ModelOptions:
    """What the operator configured. A provider's key goes to its `…_base_url` and nowhere else."""

    openai_api_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    """Ends with /v1; `None` = OpenAI's own. A server of one's own needs no key."""
    anthropic_api_key: str | None = field(default=None, repr=False)
    anthropic_base_url: str | None = None
    """Without /v1; `None` = Anthropic's own."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    retries: Retries = field(default_factory=Retries)
    aliases: Mapping[str, Alias] = field(default_factory=dict[str, Alias])
    plugins: ModelPlugins = field(default_factory=ModelPlugins)


class ModelCatalog:
    """Pins models when an agent or a run is made, and builds them when a run is driven."""

    def __init__(
        self,
        options: ModelOptions,
        *,
        secrets: SecretStore,
        guarded_transport: Callable[[], httpx.AsyncBaseTransport],
        check_url: Callable[[str], None],
    ) -> None:
        """`guarded_transport`, `check_url`: the egress rules, for addresses that tenants bring. `check_url` raises `InvalidRequest`.

        Raises `AliasError` for an alias whose provider has neither a key nor an address.
        """
        self._endpoints = {
            "openai": Endpoint.of(options.openai_api_key, options.openai_base_url),
            "anthropic": Endpoint.of(options.anthropic_api_key, options.anthropic_base_url),
        }
        self._timeouts = options.timeouts
        self._retries = options.retries
        self._aliases = options.aliases
        self._plugins = options.plugins
        self._shown: dict[str, Mapping[str, object]] = {name: it.to_json() for name, it in self._aliases.items()}
        self._shown |= {name: self._plugins.describe(name) for name in self._plugins.names}
        self._names = sorted(self._shown)
        for alias in self._aliases.values():
            self._check_alias(alias)
        self._secrets = secrets
        self._check_url = check_url
        # None opens anything before its first call.
        self._operators: dict[Retries, ModelClient] = {}
        self._tokenizers = Tokenizers()
        self._guarded = ModelClient(retries=options.retries, transport=guarded_transport)

    async def pin(self, tenant: str, spec: object, *, pointer: str = "/model") -> dict[str, object]:
        """Check a spec and make it ready to be kept: JSON, an inline `api_key` replaced by `{"secret_ref": id}`.

        `pointer`: where the spec stands in the body. Raises `InvalidRequest` (`unknown_model`, `model_not_configured`,
        …), `NotSupported`.
        """
        plugins = self._plugins.names
        reference = reference_of(spec, self._aliases, pointer=pointer, plugins=plugins)
        if reference is not None:
            return reference
        checked = check_model(spec, pointer=pointer, plugins=plugins, aliases=self._aliases)
        pinned = checked.pinned
        provider = str(pinned["provider"])
        if provider in REMOTE:
            base_url = pinned.get("base_url")
            if isinstance(base_url, str):
                self._check_address(base_url, f"{pointer}/base_url")
            elif checked.api_key is None:
                self._endpoints[provider].check(provider, pointer)
        if checked.api_key is not None:
            pinned["api_key"] = {"secret_ref": await self._secrets.put(tenant, checked.api_key)}
        return pinned

    @property
    def providers(self) -> Sequence[str]:
        """What a model object's `provider` may be: the server's own, then plugins; an alias has none of its own."""
        return [*sorted(PROVIDERS - {"alias"}), *self._plugins.names]

    def page(self, *, after: str | None, limit: int) -> Sequence[Mapping[str, object]]:
        """What callers may know of aliases and plugins, in name order, names greater than `after`."""
        start = 0 if after is None else bisect_right(self._names, after)
        return [self._shown[name] for name in self._names[start : start + limit]]

    def describe(self, name: str) -> Mapping[str, object] | None:
        """The same of one alias or plugin."""
        return self._shown.get(name)

    def facts(self, pinned: Mapping[str, object]) -> Mapping[str, object]:
        """What a trace may show of a pinned model: `{"provider","model","params","base_url","alias"}`.

        `base_url` only where it is the operator's, for a tenant's own may hold what is secret; no key ever.
        """
        alias = self._aliases.get(str(pinned["model"])) if pinned["provider"] == "alias" else None
        spec: Mapping[str, object] = pinned if alias is None else alias.spec
        provider = str(spec["provider"])
        params = {
            **cast("Mapping[str, object]", spec.get("params") or {}),
            **cast("Mapping[str, object]", pinned.get("params") or {}),
        }
        base_url = spec.get("base_url") if alias is not None else None
        if provider in REMOTE and "base_url" not in spec:
            base_url = self._endpoints[provider].base_url or REMOTE_PROVIDERS[provider].base_url
        return {
            "provider": provider,
            "model": str(spec["model"]),
            "params": params,
            "base_url": base_url,
            "alias": None if alias is None else alias.name,
        }

    def priced(self, pinned: Mapping[str, object]) -> bool:
        """Whether calls of a pinned model have a known cost."""
        alias = self._aliases.get(str(pinned["model"])) if pinned["provider"] == "alias" else None
        return alias is not None and alias.prices is not None

    def keeps_formats(self, pinned: Mapping[str, object]) -> bool:
        """Whether a pinned model is known to hold its answers to a JSON Schema."""
        facts = self.facts(pinned)
        return keeps_formats(str(facts["provider"]), str(facts["model"]))

    async def build(self, tenant: str, pinned: Mapping[str, object]) -> ChatModel:
        """The chat model of a pinned spec.

        Raises `InvalidRequest` (`model_not_configured`), `ModelError` (`model_auth`, `model_not_configured`).
        """
        if pinned["provider"] == "alias":
            return self._of_alias(pinned)
        if pinned["provider"] not in REMOTE:
            return self._local(pinned)
        own_key = await self._own_key(tenant, pinned)
        base_url = pinned.get("base_url")
        if isinstance(base_url, str):
            # A tenant's address: behind the egress guard, and never with the operator's key.
            return self._remote(pinned, self._guarded, base_url, own_key, self._timeouts)
        return self._remote(pinned, self._operator(self._retries), None, own_key, self._timeouts)

    def _check_alias(self, alias: Alias) -> None:
        if alias.provider in REMOTE and "base_url" not in alias.spec and alias.api_key is None:
            try:
                self._endpoints[alias.provider].check(alias.provider, "")
            except InvalidRequest as error:
                raise AliasError(f'alias "{alias.name}": provider: {error.errors[0].detail}') from None

    def _of_alias(self, pinned: Mapping[str, object]) -> ChatModel:
        """What an alias stands for now: it may have changed since it was pinned, or be gone."""
        alias = self._aliases.get(str(pinned["model"]))
        if alias is None:
            raise ModelError(
                f"The model alias `{pinned['model']}` is no longer configured on this server.",
                code="model_not_configured",
            )
        spec: Mapping[str, object] = alias.spec
        overrides = cast("Mapping[str, object]", pinned.get("params") or {})
        if overrides:
            try:
                spec = check_overridden(alias, overrides, pointer="/model", plugins=self._plugins.names)
            except InvalidRequest as error:
                raise ModelError(
                    f"The model alias `{alias.name}` no longer takes this run's params: {error.errors[0].detail}.",
                    code="model_not_configured",
                ) from error
        if alias.provider in REMOTE:
            # The operator's own address: private ones too, and a key given for it goes nowhere else.
            client = self._operator(alias.retries or self._retries)
            base_url = cast("str | None", spec.get("base_url"))
            model = self._remote(spec, client, base_url, alias.api_key, alias.timeouts or self._timeouts)
        else:
            model = self._local(spec)
        return model if alias.prices is None else PricedModel(model, alias.prices)

    def _local(self, spec: Mapping[str, object]) -> ChatModel:
        """A model without a server of its own."""
        provider, model = spec["provider"], str(spec["model"])
        if provider == "scripted":
            script = cast("Sequence[Mapping[str, object]]", spec["script"])
            return ScriptedModel(script, model=model, repeat=bool(spec.get("repeat")))
        params = cast("Mapping[str, object]", spec.get("params") or {})
        if provider == "demo":
            return DemoModel(model=model, delay_s=cast("float", params.get("delay_ms", 15)) / 1000)
        made = self._plugins.build(str(provider), model, params)
        if made is None:
            raise NotSupported(f'The model provider "{provider}" is not supported by this server.')
        return made

    def _remote(
        self,
        spec: Mapping[str, object],
        client: ModelClient,
        base_url: str | None,
        api_key: str | None,
        timeouts: Timeouts,
    ) -> ChatModel:
        """A model behind HTTP. `base_url` `None`: the provider's configured address, whose own key stands in for a missing one."""
        provider = str(spec["provider"])
        params = cast("Mapping[str, object]", spec.get("params") or {})
        remote = REMOTE_PROVIDERS[provider]
        if base_url is None:
            endpoint = self._endpoints[provider]
            if api_key is None:
                endpoint.check(provider, "/model")
            base_url, api_key = endpoint.base_url or remote.base_url, api_key or endpoint.api_key
        return remote.make(client, str(spec["model"]), base_url, api_key, params, timeouts)

    def _operator(self, retries: Retries) -> ModelClient:
        """The unguarded client for the operator's own addresses; one for each way to retry that was configured."""
        client = self._operators.get(retries)
        if client is None:
            client = self._operators[retries] = ModelClient(retries=retries)
        return client

    async def token_counter(self, pinned: Mapping[str, object]) -> CountTokens:
        """What counts the tokens of a text for a pinned model."""
        return await self._tokenizers.counter(str(self.facts(pinned)["model"]))

    async def close(self) -> None:
        """Close all connections to model servers."""
        for client in self._operators.values():
            await client.close()
        await self._guarded.close()

    def _check_address(self, base_url: str, pointer: str) -> None:
        try:
            self._check_url(base_url)
        except InvalidRequest as error:
            errors = (FieldError(pointer, error.message),)
            raise InvalidRequest(error.message, code=error.code, errors=errors) from error

    async def _own_key(self, tenant: str, pinned: Mapping[str, object]) -> str | None:
        reference = pinned.get("api_key")
        if not isinstance(reference, Mapping):
            return None
        key = await self._secrets.get(tenant, str(cast("Mapping[str, object]", reference)["secret_ref"]))
        if key is None:
            raise ModelError("The model's api_key is no longer kept; give it again.", code="model_auth")
        return key
