"""The Anthropic chat model: any server that speaks the Messages API."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from app.agent.ports import Delta, ModelAnswer, ModelRequest
from app.models.anthropic_answer import Assembler
from app.models.anthropic_wire import beta_header, encode_request
from app.models.failures import ProviderError
from app.models.http import ModelCall, ModelClient, Timeouts

VERSION = "2023-06-01"
"""The version of the API that the wire modules speak."""

PREAMBLE = frozenset(("message_start", "ping"))
"""Events that come before any content: what fails after them only has still said nothing."""


class AnthropicChatModel:
    """A `ChatModel` behind `POST {base_url}/v1/messages`."""

    def __init__(
        self,
        client: ModelClient,
        model: str,
        base_url: str,
        api_key: str | None = None,
        params: Mapping[str, object] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        """`base_url` has no `/v1`, as the SDK has it. `params` goes along in each request (`anthropic_wire`)."""
        self._client = client
        self._model = model
        self._url = base_url.rstrip("/") + "/v1/messages"
        self._api_key = api_key or None
        self._params = params or {}
        self._timeouts = timeouts or Timeouts()
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "runwire",
            "anthropic-version": VERSION,
        }
        betas = beta_header(self._params)
        if betas:
            self._headers["anthropic-beta"] = betas
        if self._api_key:
            self._headers["x-api-key"] = self._api_key

    @property
    def name(self) -> str:
        return self._model

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]:
        """Deltas as they come (where `request.stream`), then the answer. Raises `ModelError`."""
        body = encode_request(self._model, request, self._params)
        call = ModelCall(
            self._url, body, self._headers, self._api_key, self._timeouts, preamble=PREAMBLE, last="message_stop"
        )
        assembler = Assembler(secret=self._api_key)
        async with aclosing(self._client.chunks(call)) as chunks:
            try:
                async for chunk in chunks:
                    if chunk is None:
                        break
                    deltas = assembler.feed(chunk)
                    if request.stream:
                        for delta in deltas:
                            yield delta
            except ProviderError:
                # Once the reason of its end has come the answer is whole.
                if not assembler.finished:
                    raise
        yield assembler.finish()
