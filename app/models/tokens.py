"""Token counts: what a provider or a script says a call used, as numbers that can be added up and stored."""

from collections.abc import Mapping
from typing import cast

from app.core.usage import TokenUsage

MAX_TOKENS = 10**12
"""Largest count that is believed: far above any real one, and millions of them fit a signed 64-bit sum."""


def read_usage(usage: object) -> TokenUsage:
    """`{"prompt_tokens","completion_tokens","total_tokens"}` (or `input_tokens`, `output_tokens`).

    A count that is missing, no number, negative or above `MAX_TOKENS` is 0; the total is then the sum of the others.
    """
    if not isinstance(usage, Mapping):
        return TokenUsage()
    fields = cast("Mapping[str, object]", usage)
    given, made = _count(fields, "prompt_tokens", "input_tokens"), _count(fields, "completion_tokens", "output_tokens")
    details = fields.get("prompt_tokens_details")
    cached = _count(cast("Mapping[str, object]", details), "cached_tokens") if isinstance(details, Mapping) else 0
    return TokenUsage(given, made, _count(fields, "total_tokens") or given + made, min(cached, given))


def read_split_usage(usage: Mapping[str, object]) -> TokenUsage:
    """Anthropic's counts: `input_tokens` there leaves out what was read from or written to the cache; ours is all of it."""
    read, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    given, made = _count(usage, "input_tokens") + read + written, _count(usage, "output_tokens")
    return TokenUsage(given, made, given + made, read, written)


def _count(usage: Mapping[str, object], *names: str) -> int:
    for name in names:
        value = usage.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= MAX_TOKENS:
            return int(value)
    return 0
