"""The OpenAI chat model: any server that speaks Chat Completions."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from app.agent.ports import Delta, ModelAnswer, ModelRequest
from app.models.failures import ProviderError
from app.models.http import ModelCall, ModelClient, Timeouts
from app.models.openai_wire import Assembler, encode_request


class OpenAIChatModel:
    """A `ChatModel` behind `POST {base_url}/chat/completions`."""

    def __init__(
        self,
        client: ModelClient,
        model: str,
        base_url: str,
        api_key: str | None = None,
        params: Mapping[str, object] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        """`base_url` ends with `/v1`, as the SDK has it. `params` goes along in each request (`openai_wire`)."""
        self._client = client
        self._model = model
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._api_key = api_key or None
        self._params = params or {}
        self._timeouts = timeouts or Timeouts()
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "runwire",
        }
        if self._api_key:
            self._headers["Authorization"] = f"Bearer {self._api_key}"

    @property
    def name(self) -> str:
        return self._model

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]:
        """Deltas as they come (where `request.stream`), then the answer. Raises `ModelError`."""
        body = encode_request(self._model, request, self._params)
        call = ModelCall(self._url, body, self._headers, self._api_key, self._timeouts)
        assembler = Assembler(secret=self._api_key)
        done = False
        async with aclosing(self._client.chunks(call)) as chunks:
            try:
                async for chunk in chunks:
                    if chunk is None:
                        done = True
                        break
                    deltas = assembler.feed(chunk)
                    if request.stream:
                        for delta in deltas:
                            yield delta
            except ProviderError:
                # Once the reason of its end has come the answer is whole; only the usage may be missing.
                if not assembler.finished:
                    raise
        yield assembler.finish(done=done)
