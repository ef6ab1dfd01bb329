"""The model catalog: turns an AgentSpec's `model` into a pinned one, and a pinned one into a chat model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import cast

import httpx

from app.agent.ports import ChatModel
from app.core.errors import FieldError, InvalidRequest, ModelError, NotSupported
from app.core.registry import SecretStore
from app.core.values import immutable
from app.models.demo import DemoModel
from app.models.http import ModelClient, Timeouts
from app.models.openai import OpenAIChatModel
from app.models.retries import Retries
from app.models.scripted import ScriptedModel
from app.models.spec import check_model

OPENAI_BASE_URL = "https://api.openai.com/v1"


@immutable
class ModelOptions:
    """What the operator configured. The key goes to `openai_base_url` and nowhere else."""

    openai_api_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    """Ends with /v1; `None` = OpenAI's own. A server of one's own needs no key."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    retries: Retries = field(default_factory=Retries)


class ModelCatalog:
    """Pins models when an agent or a run is made, and builds them when a run is driven.

    Configured aliases will be looked up at the start of `pin`, before the spec is checked.
    """

    def __init__(
        self,
        options: ModelOptions,
        *,
        secrets: SecretStore,
        guarded_transport: Callable[[], httpx.AsyncBaseTransport],
        check_url: Callable[[str], None],
    ) -> None:
        """`guarded_transport`, `check_url`: the egress rules, for addresses that tenants bring. `check_url` raises `InvalidRequest`."""
        self._api_key = (options.openai_api_key or "").strip() or None
        self._base_url = (options.openai_base_url or "").strip().rstrip("/") or None
        self._timeouts = options.timeouts
        self._secrets = secrets
        self._check_url = check_url
        # Neither opens anything before its first call.
        self._operator = ModelClient(retries=options.retries)
        self._guarded = ModelClient(retries=options.retries, transport=guarded_transport)

    async def pin(self, tenant: str, spec: object, *, pointer: str = "/model") -> dict[str, object]:
        """Check a spec and make it ready to be kept: JSON, an inline `api_key` replaced by `{"secret_ref": id}`.

        `pointer`: where the spec stands in the body. Raises `InvalidRequest` (`unknown_model`, `model_not_configured`,
        …), `NotSupported`.
        """
        checked = check_model(spec, pointer=pointer)
        pinned = checked.pinned
        if pinned["provider"] == "openai":
            base_url = pinned.get("base_url")
            if isinstance(base_url, str):
                self._check_address(base_url, f"{pointer}/base_url")
            elif checked.api_key is None:
                self._check_configured(pointer)
        if checked.api_key is not None:
            pinned["api_key"] = {"secret_ref": await self._secrets.put(tenant, checked.api_key)}
        return pinned

    async def build(self, tenant: str, pinned: Mapping[str, object]) -> ChatModel:
        """The chat model of a pinned spec. Raises `InvalidRequest` (`model_not_configured`), `ModelError` (`model_auth`)."""
        provider = pinned["provider"]
        model = str(pinned["model"])
        if provider == "scripted":
            script = cast("Sequence[Mapping[str, object]]", pinned["script"])
            return ScriptedModel(script, model=model, repeat=bool(pinned.get("repeat")))
        params = cast("Mapping[str, object]", pinned.get("params") or {})
        if provider == "demo":
            return DemoModel(model=model, delay_s=cast("float", params.get("delay_ms", 15)) / 1000)
        if provider != "openai":
            raise NotSupported(f'The model provider "{provider}" is not supported by this version.')
        own_key = await self._own_key(tenant, pinned)
        base_url = pinned.get("base_url")
        if isinstance(base_url, str):
            # A tenant's address: behind the egress guard, and never with the operator's key.
            return OpenAIChatModel(self._guarded, model, base_url, own_key, params, self._timeouts)
        if own_key is None:
            self._check_configured("/model")
        return OpenAIChatModel(
            self._operator, model, self._base_url or OPENAI_BASE_URL, own_key or self._api_key, params, self._timeouts
        )

    async def close(self) -> None:
        """Close all connections to model servers."""
        await self._operator.close()
        await self._guarded.close()

    def _check_configured(self, pointer: str) -> None:
        if self._api_key is None and self._base_url is None:
            detail = (
                "no OpenAI model is configured: set OPENAI_API_KEY (and OPENAI_BASE_URL for another server that speaks "
                "Chat Completions), or give the model a base_url or an api_key of its own"
            )
            raise InvalidRequest(
                f"Cannot use this model: {detail}.", code="model_not_configured", errors=(FieldError(pointer, detail),)
            )

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
