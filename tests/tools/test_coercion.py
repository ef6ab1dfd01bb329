"""Coercion: what is made of texts where a schema asks for a number or a truth value, and what is left as it came."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tools.coercion import Coercion
from app.tools.schema import ArgumentSchema


def one(schema: object, value: object) -> object:
    """What becomes of a single argument."""
    fitted, changed = Coercion({"type": "object", "properties": {"v": schema}}).fit({"v": value})
    assert changed == (() if fitted["v"] is value else ("/v",))
    return fitted["v"]


@pytest.mark.parametrize(
    ("kind", "came", "becomes"),
    [
        ("integer", "3", 3),
        ("integer", "-12", -12),
        ("integer", "3.0", 3),
        ("integer", 3.0, 3),
        ("integer", "9223372036854775807", 9223372036854775807),
        ("number", "3", 3),
        ("number", "3.25", 3.25),
        ("number", "0.1", 0.1),
        ("boolean", "true", True),
        ("boolean", "false", False),
        (["integer", "null"], "3", 3),
        (["boolean", "integer"], "1", 1),
    ],
)
def test_what_loses_nothing_becomes_what_the_schema_asks_for(kind: object, came: object, becomes: object) -> None:
    fitted = one({"type": kind}, came)
    assert (fitted, type(fitted)) == (becomes, type(becomes))


@pytest.mark.parametrize(
    ("kind", "came"),
    [
        *[
            ("integer", text)
            for text in ("1e5", " 3", "3 ", "0x10", "+3", "03", "3.", ".5", "1_000", "-0", "٣", "3\n", "", "NaN", "3.5")
        ],
        ("integer", "9223372036854775808"),
        ("integer", "1" * 40),
        ("integer", 2.0**60),
        ("integer", 3.5),
        ("integer", True),
        ("number", "0.1000000000000000055511151231257827"),
        ("number", "1e5"),
        ("number", "Infinity"),
        ("boolean", "True"),
        ("boolean", "1"),
        ("boolean", 1),
        ("string", 3),
        ("string", "3"),
        (["string", "integer"], "3"),
        ("null", "null"),
        ("array", "3"),
    ],
)
def test_what_is_no_plain_number_or_truth_value_stays_as_it_came(kind: object, came: object) -> None:
    assert one({"type": kind}, came) is came


def test_nested_places_references_and_optional_ones_are_found() -> None:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"type": "integer"}},
            "pair": {"type": "array", "prefixItems": [{"type": "boolean"}, {"$ref": "#/$defs/amount"}]},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "order": {"anyOf": [{"$ref": "#/$defs/order"}, {"type": "null"}]},
            "both": {"allOf": [{"type": "integer"}, {"minimum": 1}]},
        },
        "additionalProperties": {"type": "boolean"},
        "$defs": {
            "amount": {"type": "number"},
            "order": {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/order"}}},
        },
    }
    came: dict[str, object] = {
        "list": ["1", 2, "x"],
        "pair": ["true", "2.5"],
        "maybe": "4",
        "either": "4",
        "order": {"n": "1", "next": {"n": "2", "next": {"n": "3"}}},
        "both": "5",
        "a/b": "false",
    }
    fitted, changed = Coercion(schema).fit(came)
    assert fitted == {
        "list": [1, 2, "x"],
        "pair": [True, 2.5],
        "maybe": 4,
        "either": "4",
        "order": {"n": 1, "next": {"n": 2, "next": {"n": 3}}},
        "both": 5,
        "a/b": False,
    }
    assert sorted(changed) == [
        "/a~1b", "/both", "/list/0", "/maybe", "/order/n", "/order/next/n", "/order/next/next/n", "/pair/0", "/pair/1",
    ]  # fmt: skip
    assert came["list"] == ["1", 2, "x"]
    assert cast("dict[str, object]", came["order"])["n"] == "1"


def test_a_reference_in_a_circle_comes_to_an_end() -> None:
    schema: dict[str, object] = {"properties": {"v": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert Coercion(schema).fit({"v": "3"}) == ({"v": "3"}, ())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.sampled_from(["3", "true", "x", "1.5"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
SCHEMAS = st.recursive(
    st.fixed_dictionaries({"type": st.sampled_from(["integer", "number", "boolean", "string", "null"])}),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda p: {"type": "object", "properties": p}),
        st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches}),
    ),
    max_leaves=6,
)


@given(SCHEMAS, JSON)
def test_what_fits_already_means_the_same_afterwards_and_nothing_is_coerced_twice(
    schema: dict[str, object], value: object
) -> None:
    whole: dict[str, object] = {"type": "object", "properties": {"v": schema}}
    coercion = Coercion(whole)
    fitted, _ = coercion.fit({"v": value})
    assert coercion.fit(fitted) == (fitted, ())
    if ArgumentSchema(whole).is_valid({"v": value}):
        assert fitted == {"v": value}
        assert ArgumentSchema(whole).is_valid(fitted)
