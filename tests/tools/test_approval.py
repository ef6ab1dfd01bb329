"""Approval rules: when a call asks, and that doubt asks."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidRequest
from app.tools.approval import APPROVAL_S, ApprovalRule, asking, rule_of

ABOVE: dict[str, object] = {"when": {"properties": {"amount": {"exclusiveMinimum": 100}}}}


def rule(setting: object) -> ApprovalRule:
    found = rule_of(setting)
    assert found is not None
    return found


@pytest.mark.parametrize("setting", [False, None])
def test_without_a_rule_nobody_is_asked(setting: object) -> None:
    assert rule_of(setting) is None
    assert asking((), {"amount": 1_000_000}) is None


def test_the_plain_rule_always_asks_and_waits_a_week() -> None:
    plain = rule(True)
    assert plain == ApprovalRule(None, APPROVAL_S)
    assert plain.asks({})


@pytest.mark.parametrize(
    ("arguments", "asks"),
    [
        ({"amount": 100}, False),
        ({"amount": -5}, False),
        ({"amount": 100.01}, True),
        ({"amount": 2**70}, True),
        ({}, True),
        ({"amount": "5"}, True),
        ({"amount": None}, True),
        ({"amount": [5]}, True),
        ({"Amount": 5}, True),
        ({"amount": float("nan")}, True),
        ({"amount": float("inf")}, True),
        ({"amount": "\ud800"}, True),
        ({"amount": 5, "note": "\ud800"}, False),
    ],
)
def test_what_cannot_be_ruled_out_asks(arguments: Mapping[str, object], asks: bool) -> None:
    assert rule(ABOVE).asks(arguments) is asks


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1))
def test_a_number_asks_exactly_above_the_bound(amount: float) -> None:
    assert rule(ABOVE).asks({"amount": amount}) is (amount > 100)


@given(
    st.dictionaries(st.text(max_size=5).filter(lambda name: name != "amount"), st.none() | st.integers() | st.text())
)
def test_arguments_without_the_one_in_question_ask(arguments: dict[str, object]) -> None:
    assert rule(ABOVE).asks(arguments)


def test_the_first_rule_that_asks_sets_the_time() -> None:
    short, long = rule({**ABOVE, "expires_s": 60}), rule({"expires_s": 3600})
    assert asking((short, long), {"amount": 101}) is short
    assert asking((short, long), {"amount": 1}) is long
    assert asking((short,), {"amount": 1}) is None


@pytest.mark.parametrize(
    "when", [{"$ref": "https://example.com/schema"}, {"properties": {"a": {"type": "nothing"}}}, {"pattern": "("}]
)
def test_a_rule_that_cannot_be_checked_is_refused_with_its_place(when: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rule_of({"when": when}, "/requires_approval")
    assert all(error.pointer.startswith("/requires_approval/when") for error in caught.value.errors)
