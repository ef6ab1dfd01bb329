"""Prices: what a call costs, and what a run's sum of costs looks like in JSON."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.usage import TokenUsage, Usage
from app.models.prices import Prices, cost_usd

PLAIN = Prices(3.0, 15.0)
CACHED = Prices(3.0, 15.0, 0.3, 3.75)

amounts = st.floats(0, 1_000_000, allow_nan=False)
counts = st.integers(0, 10**12)


@pytest.mark.parametrize(
    ("tokens", "prices", "cost"),
    [
        (TokenUsage(), PLAIN, 0.0),
        (TokenUsage(1_000_000, 0, 1_000_000), PLAIN, 3.0),
        (TokenUsage(0, 1_000_000, 1_000_000), PLAIN, 15.0),
        (TokenUsage(10, 3, 13), PLAIN, 0.000075),
        (TokenUsage(1_000_000, 0, 0, cache_read_tokens=600_000, cache_write_tokens=300_000), CACHED, 1.605),
        (TokenUsage(1_000_000, 0, 0, cache_read_tokens=600_000, cache_write_tokens=300_000), PLAIN, 3.0),
        (TokenUsage(0, 0, 0, cache_read_tokens=1_000_000), CACHED, 0.3),
    ],
)
def test_cached_input_is_part_of_the_input_and_has_its_own_price(
    tokens: TokenUsage, prices: Prices, cost: float
) -> None:
    assert cost_usd(tokens, prices) == cost


@given(counts, counts, amounts, amounts)
def test_a_cost_is_never_negative_and_near_the_exact_one(given_: int, made: int, into: float, out: float) -> None:
    cost = cost_usd(TokenUsage(given_, made, given_ + made), Prices(into, out))
    exact = (Decimal(given_) * Decimal(into) + Decimal(made) * Decimal(out)) / 1_000_000
    assert cost >= 0
    assert abs(Decimal(cost) - exact) <= Decimal("1e-12") + exact * Decimal("1e-12")


def test_a_sum_of_many_costs_has_no_dust_in_json() -> None:
    usage = Usage()
    for _ in range(1000):
        usage.add_model_call(TokenUsage(1, 1, 2, cost_usd=0.1))
    assert json.dumps(usage.to_json()["cost_usd"]) == "100.0"
    for _ in range(3):
        usage.add_model_call(TokenUsage(1, 1, 2, cost_usd=0.000001))
    assert json.dumps(usage.to_json()["cost_usd"]) == "100.000003"


def test_a_sum_is_unknown_until_a_call_was_priced() -> None:
    usage = Usage()
    usage.add_model_call(TokenUsage(5, 5, 10))
    assert usage.cost_usd is None
    usage.add_model_call(TokenUsage(5, 5, 10, cost_usd=0.0))
    assert usage.cost_usd == 0.0
    usage.add_model_call(TokenUsage(5, 5, 10))
    assert usage.cost_usd == 0.0
