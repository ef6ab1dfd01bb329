"""Prices: what the tokens of a model call cost. Pure."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from app.agent.ports import ChatModel, Delta, ModelAnswer, ModelRequest
from app.core.usage import COST_DECIMALS, TokenUsage
from app.core.values import immutable

PER = 1_000_000
"""Prices are for so many tokens, as providers write them."""


@immutable
class Prices:
    """US dollars per million tokens."""

    input_per_mtok: float
    output_per_mtok: float
    cache_read_per_mtok: float | None = None
    """Input that came from the provider's cache; `None` = as other input."""
    cache_write_per_mtok: float | None = None
    """Input that went into the provider's cache; `None` = as other input."""

    def to_json(self) -> dict[str, float | None]:
        return {
            "input_per_mtok": self.input_per_mtok,
            "output_per_mtok": self.output_per_mtok,
            "cache_read_per_mtok": self.cache_read_per_mtok,
            "cache_write_per_mtok": self.cache_write_per_mtok,
        }


def cost_usd(tokens: TokenUsage, prices: Prices) -> float:
    """US dollars of one call, rounded to `COST_DECIMALS`.

    `input_tokens` counts all input, cached ones included; a provider that counts more cached ones than input in all is
    charged for what it says.
    """
    read, written = tokens.cache_read_tokens, tokens.cache_write_tokens
    plain = max(tokens.input_tokens - read - written, 0)
    from_cache = prices.input_per_mtok if prices.cache_read_per_mtok is None else prices.cache_read_per_mtok
    into_cache = prices.input_per_mtok if prices.cache_write_per_mtok is None else prices.cache_write_per_mtok
    total = (
        plain * prices.input_per_mtok
        + read * from_cache
        + written * into_cache
        + tokens.output_tokens * prices.output_per_mtok
    )
    return round(total / PER, COST_DECIMALS)


class PricedModel:
    """A `ChatModel` whose answers carry what they cost."""

    def __init__(self, model: ChatModel, prices: Prices) -> None:
        self._model = model
        self._prices = prices

    @property
    def name(self) -> str:
        return self._model.name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]:
        """As the model's own. Raises `ModelError`."""
        async with aclosing(self._model.stream(request)) as items:
            async for item in items:
                if isinstance(item, ModelAnswer):
                    tokens = replace(item.tokens, cost_usd=cost_usd(item.tokens, self._prices))
                    yield replace(item, tokens=tokens)
                else:
                    yield item
