"""Providers behind HTTP: their clients, their own addresses, and the settings that an operator gives them."""

from collections.abc import Callable, Mapping
from dataclasses import field

from app.agent.ports import ChatModel
from app.core.errors import FieldError, InvalidRequest
from app.core.values import immutable
from app.models.anthropic import AnthropicChatModel
from app.models.http import ModelClient, Timeouts
from app.models.openai import OpenAIChatModel

MakeClient = Callable[[ModelClient, str, str, str | None, Mapping[str, object], Timeouts], ChatModel]
"""`(client, model, base_url, api_key, params, timeouts)`."""


@immutable
class RemoteProvider:
    make: MakeClient
    base_url: str
    """The provider's own address, as its SDK has it."""
    title: str
    setting: str
    """What its two settings begin with."""
    protocol: str


REMOTE_PROVIDERS: Mapping[str, RemoteProvider] = {
    "openai": RemoteProvider(
        OpenAIChatModel, "https://api.openai.com/v1", "OpenAI", "OPENAI", "Chat Completions"
    ),
    "anthropic": RemoteProvider(
        AnthropicChatModel, "https://api.anthropic.com", "Anthropic", "ANTHROPIC", "the Messages API"
    ),
}  # fmt: skip


@immutable
class Endpoint:
    """What the operator configured for one provider. The key goes to this address and nowhere else."""

    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    """`None`: the provider's own. A server of one's own needs no key."""

    @classmethod
    def of(cls, api_key: str | None, base_url: str | None) -> "Endpoint":
        """White space around either, and a slash at the address's end, mean nothing; empty is not given."""
        return cls((api_key or "").strip() or None, (base_url or "").strip().rstrip("/") or None)

    def check(self, provider: str, pointer: str) -> None:
        """Raises `InvalidRequest` (`model_not_configured`) at `pointer` when neither is given."""
        if self.api_key is not None or self.base_url is not None:
            return
        remote = REMOTE_PROVIDERS[provider]
        detail = (
            f"no {remote.title} model is configured: set {remote.setting}_API_KEY (and {remote.setting}_BASE_URL for "
            f"another server that speaks {remote.protocol}), or give the model a base_url or an api_key of its own"
        )
        raise InvalidRequest(
            f"Cannot use this model: {detail}.", code="model_not_configured", errors=(FieldError(pointer, detail),)
        )
