"""What a run used of the model and its tools, and what that cost."""

from dataclasses import dataclass

from app.core.values import immutable


@immutable
class TokenUsage:
    """Tokens of one model call as the provider counted them; 0 where it did not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cache_read_tokens: int = 0
    """Of `input_tokens`: those that came from the provider's prompt cache. They have a price of their own."""
    cache_write_tokens: int = 0
    """Of `input_tokens`: those that were put into the provider's prompt cache."""
    cost_usd: float | None = None
    """What the call cost; `None` where its model has no prices. It goes with the tokens, so that no planner can lose it."""


MAX_TOKENS = 2**63 - 1
"""A provider may say anything; a sum beyond 64 bits could not be stored, and its run never written again."""

COST_DECIMALS = 12
"""Decimals of US dollars that are kept: far below the price of one token, and no dust of binary fractions."""


@dataclass(slots=True)
class Usage:
    """Totals of a run so far."""

    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cost_usd: float | None = None
    """The sum over the priced calls; `None` as long as there was none."""

    def add_model_call(self, tokens: TokenUsage) -> None:
        self.model_calls += 1
        self.input_tokens = min(self.input_tokens + tokens.input_tokens, MAX_TOKENS)
        self.output_tokens = min(self.output_tokens + tokens.output_tokens, MAX_TOKENS)
        self.total_tokens = min(self.total_tokens + tokens.total_tokens, MAX_TOKENS)
        if tokens.cost_usd is not None:
            self.cost_usd = round((self.cost_usd or 0.0) + tokens.cost_usd, COST_DECIMALS)

    def to_json(self) -> dict[str, int | float | None]:
        return {
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "total_tokens": self.total_tokens,
            "cost_usd": self.cost_usd,
        }
