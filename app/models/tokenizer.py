"""The tokenizer: how many tokens a text is for a model, where its tokenizer is at hand, else an estimate."""

import asyncio
import importlib.util
from collections.abc import Callable

import structlog

from app.agent.trimming import CountTokens, estimate_tokens

LOAD_S = 5.0
"""Longest wait for an encoding: tiktoken fetches it over the network once, into the folder of TIKTOKEN_CACHE_DIR."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Tokenizers:
    """Counters by model, each looked for once. Where tiktoken is not installed there is only the estimate."""

    def __init__(self, load: Callable[[str], CountTokens | None] | None = None) -> None:
        """`load`: gives a model's counter, `None` for a model it does not know; may block. By default tiktoken's."""
        self._load = load or (_tiktoken if importlib.util.find_spec("tiktoken") else None)
        self._known: dict[str, CountTokens] = {}

    async def counter(self, model: str) -> CountTokens:
        if self._load is None:
            return estimate_tokens
        found = self._known.get(model)
        if found is None:
            found = self._known[model] = await self._loaded(self._load, model)
        return found

    async def _loaded(self, load: Callable[[str], CountTokens | None], model: str) -> CountTokens:
        try:
            async with asyncio.timeout(LOAD_S):
                return await asyncio.to_thread(load, model) or estimate_tokens
        except Exception as error:  # noqa: BLE001  (the named boundary: a library that loads files over the network)
            _log.warning("tokenizer_not_loaded", model=model, error=type(error).__name__)
            return estimate_tokens


def _tiktoken(model: str) -> CountTokens | None:
    import tiktoken  # pyright: ignore[reportMissingImports]  # an optional library

    try:
        encoding = tiktoken.encoding_for_model(model)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    except KeyError:
        return None
    return lambda text: len(encoding.encode_ordinary(text))  # pyright: ignore[reportUnknownMemberType, reportUnknownLambdaType, reportUnknownArgumentType]
