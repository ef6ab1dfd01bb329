"""Hostile schemas and arguments: what registration refuses, and what a check may cost."""

import random
import tracemalloc
from collections.abc import Callable

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidRequest
from app.tools.patterns import is_catastrophic
from app.tools.schema import MAX_PATTERNS, ArgumentSchema, check_schema
from app.tools.weight import MAX_CHAIN, MAX_NODES, TooHeavy, Weight, weigh
from tests.support.hang import no_hang

MIB = 1024 * 1024


def refusal(schema: dict[str, object]) -> tuple[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        check_schema({"type": "object", **schema}, "/parameters")
    return caught.value.errors[0].pointer, caught.value.errors[0].detail


def peak(work: Callable[[], object]) -> int:
    """Bytes that Python had allocated at most meanwhile."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- pointers ---------------------------------------------------------------------------------------------------------


def test_a_long_key_over_many_parts_costs_no_pointer_for_each() -> None:
    bomb: dict[str, object] = {"type": "object", "default": {"k" * 100_000: [[] for _ in range(20_000)]}}
    assert peak(lambda: check_schema(bomb, "/parameters")) < 40 * MIB  # a pointer each would be 2 GB


def test_a_refusal_still_says_where() -> None:
    deep: dict[str, object] = {"properties": {"a/b~": {"allOf": [{}, {"$ref": "https://example.com"}]}}}
    assert refusal(deep)[0] == "/parameters/properties/a~1b~0/allOf/1/$ref"
    assert refusal({"properties": {"x": {"patternProperties": {"(a+)+/": {}}}}})[0] == (
        "/parameters/properties/x/patternProperties/(a+)+~1"
    )


# --- references -------------------------------------------------------------------------------------------------------


def doubling(
    levels: int, keyword: str = "allOf", ref: Callable[[int], dict[str, object]] | None = None
) -> dict[str, object]:
    ref = ref or (lambda n: {"$ref": f"#/$defs/a{n}"})
    defs: dict[str, object] = {
        f"a{n}": {"$anchor": f"s{n}", "$dynamicAnchor": f"n{n}", keyword: [ref(n + 1), ref(n + 1)]}
        for n in range(levels)
    }
    defs[f"a{levels}"] = {"$anchor": f"s{levels}", "$dynamicAnchor": f"n{levels}", "type": "object"}
    return {"$defs": defs, "properties": {"x": ref(0)}}


REFS: list[Callable[[int], dict[str, object]]] = [
    lambda n: {"$ref": f"#/$defs/a{n}"},
    lambda n: {"$ref": f"#/%24defs/a{n}"},
    lambda n: {"$ref": f"#s{n}"},
    lambda n: {"$dynamicRef": f"#n{n}"},
    lambda n: {"$dynamicRef": f"#/$defs/a{n}"},
    lambda n: {"not": {"$ref": f"#/$defs/a{n}"}},
    lambda n: {"if": {"$ref": f"#/$defs/a{n}"}},
    lambda n: {"items": {"$ref": f"#/$defs/a{n}"}},
    lambda n: {"dependentSchemas": {"x": {"$ref": f"#/$defs/a{n}"}}},
]


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf", "prefixItems"])
@pytest.mark.parametrize("ref", REFS)
def test_references_that_double_are_counted_expanded(keyword: str, ref: Callable[[int], dict[str, object]]) -> None:
    pointer, detail = refusal(doubling(30, keyword, ref))
    assert pointer == "/parameters"
    assert "more than 10000 subschemas" in detail
    check_schema({"type": "object", **doubling(8, keyword, ref)}, "")


def test_a_node_that_looks_twice_counts_twice() -> None:
    schema: dict[str, object] = {"type": "object"}
    for _ in range(14):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    assert "more than 10000" in refusal(schema)[1]


def test_the_limit_is_of_subschemas_with_references_expanded() -> None:
    properties: dict[str, object] = {f"p{n}": {"type": "string"} for n in range(MAX_NODES - 1)}
    flat: dict[str, object] = {"properties": properties}
    assert weigh(flat) == Weight(MAX_NODES, recursive=False)
    properties["one more"] = {}
    with pytest.raises(TooHeavy):
        weigh(flat)
    assert weigh({"enum": [str(n) for n in range(1600)]}).nodes == 101
    assert weigh({"$defs": {"unused": {"properties": {"a": {}}}}}).nodes == 1


@pytest.mark.parametrize(
    ("schema", "nodes"),
    [
        ({"$ref": "#"}, 2),
        ({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}, 5),
        ({"$dynamicAnchor": "node", "items": {"$dynamicRef": "#node"}}, 3),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}, 6),
    ],
)  # fmt: skip
def test_a_cycle_is_counted_once_and_taken(schema: dict[str, object], nodes: int) -> None:
    assert weigh(schema) == Weight(nodes, recursive=True)
    check_schema({"type": "object", **schema}, "")


def test_a_chain_of_references_has_an_end() -> None:
    defs: dict[str, object] = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}]} for n in range(MAX_CHAIN)}
    assert "levels" in refusal({"$defs": defs, "properties": {"x": {"$ref": "#/$defs/a0"}}})[1]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"$id": "https://example.com/x", "$defs": {"y": {}}, "$ref": "#/$defs/y"}}},
        {"$defs": {"x": {"$id": "https://example.com/x", "$defs": {"y": {}}}}, "$ref": "#/$defs/x/$defs/y"},
    ],
)
def test_a_part_may_not_change_what_references_are_relative_to(schema: dict[str, object]) -> None:
    assert '"$id"' in refusal(schema)[1]
    check_schema({"type": "object", "$id": "https://example.com/root", "properties": {"$id": {"type": "string"}}}, "")


def test_any_reference_is_counted_or_refused_without_a_fault_of_ours() -> None:
    for ref in (
        "#/%",
        "#/%ff",
        "#/0/1",
        "#/$defs/0",
        "#/$defs/²",
        "#/$defs/" + "9" * 5000,
        "#~",
        "#//",
        "#/type/0",
        "##",
    ):
        with pytest.raises(InvalidRequest):
            check_schema({"type": "object", "$defs": {}, "properties": {"x": {"$ref": ref}}}, "")


@given(
    st.recursive(
        st.sampled_from([True, {}, {"$ref": "#"}, {"$ref": "#/$defs/a"}, {"type": "string"}, None, 1, "x"]),
        lambda inner: st.lists(inner) | st.dictionaries(
            st.sampled_from(["allOf", "items", "properties", "not", "$defs", "a", "enum", "required", "$id", "$anchor"]), inner
        ),
    )
)  # fmt: skip
def test_any_schema_is_weighed_or_refused(value: object) -> None:
    if isinstance(value, dict):
        try:
            weight = weigh(value)  # pyright: ignore[reportUnknownArgumentType]
        except TooHeavy:
            return
        assert 1 <= weight.nodes <= MAX_NODES


# --- patterns ---------------------------------------------------------------------------------------------------------


def characters(seed: int, count: int) -> str:
    return "".join(map(chr, random.Random(seed).sample(range(0x4E00, 0x9FFF), count)))


def test_patterns_of_many_characters_are_limited_altogether_and_cheap_below() -> None:
    patterns: dict[str, object] = {characters(seed, 990): {} for seed in range(320)}
    assert refusal({"patternProperties": patterns}) == (
        "/parameters/patternProperties", f"at most {MAX_PATTERNS} characters in all patterns together"
    )  # fmt: skip
    few = dict(list(patterns.items())[:20])
    with no_hang():
        check_schema({"type": "object", "patternProperties": few}, "")


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:" + "|".join(characters(1, 490)) + ")+",
        "(?:" + "|".join("a" + char for char in characters(2, 320)) + ")+",
        "".join(f"[{char}]" for char in characters(3, 330)),
        "".join(f"{char}*" for char in characters(4, 490)),
        "(?:" * 200 + "a" + ")?" * 200,
        "(" * 999, "[" * 999, "\\" * 999, "{" * 999, "(?:a" * 240,
    ],
)  # fmt: skip
def test_looking_at_a_pattern_is_cheap(pattern: str) -> None:
    with no_hang():
        [is_catastrophic(pattern) for _ in range(20)]


@pytest.mark.parametrize(
    ("pattern", "hangs"),
    [
        ("(中+)+", True), ("(é*é)*", True), (r"(\.+)+", True), (r"(\.a)+", False), ("(中文)+", False), ("(中|中文)+", True),
        (r"(?:\b\w+\b)*", True), (r"(-\d+)*", False), (r"(.+,)*", True), ("(foo|bar)+", False),
    ],
)  # fmt: skip
def test_literals_count_as_themselves(pattern: str, hangs: bool) -> None:
    assert is_catastrophic(pattern) is hangs


# --- arguments --------------------------------------------------------------------------------------------------------

RECURSIVE: dict[str, object] = {
    "type": "object",
    "properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "string"}]}},
}


def nested(levels: int, leaf: object) -> dict[str, object]:
    value = leaf
    for _ in range(levels):
        value = {"x": value}
    return {"x": value}


def test_telling_faults_of_deep_arguments_is_bounded() -> None:
    schema = check_schema(RECURSIVE, "")
    assert [fault.pointer for fault in schema.faults(nested(0, 7))] == ["/x"]
    deep = nested(50, 7)
    assert not schema.is_valid(deep)
    assert [fault.detail for fault in schema.faults(deep)] == [
        "they do not fit, and are too large or too deep to say where"
    ]


def test_telling_faults_of_large_arguments_is_bounded() -> None:
    schema = check_schema({"type": "object", "additionalProperties": {"items": {"type": "string"}}}, "")
    large: dict[str, object] = {"k" * 20_000: [0] * 20_000}
    faults: list[object] = []
    assert peak(lambda: faults.extend(schema.faults(large))) < 40 * MIB
    assert len(faults) == 1
    assert len(str(faults[0])) < 1000
    assert [fault.pointer for fault in schema.faults({"k": [0, "a", 1]})] == ["/k/0", "/k/2"]


def test_arguments_too_large_for_a_large_schema_are_refused_unchecked() -> None:
    schema = ArgumentSchema({"type": "object", "additionalProperties": {"items": {"allOf": [{"minimum": 0}] * 2000}}})
    assert schema.is_valid({"k": [0] * 100})
    large: dict[str, object] = {"k": [0] * 1_000_000}
    with no_hang():
        schema.is_valid(large)
    assert not schema.is_valid(large)
    assert [fault.detail for fault in schema.faults(large)] == [
        "they are too large to be checked against a schema of this size"
    ]


def test_a_stored_schema_that_would_be_refused_now_is_never_checked_against() -> None:
    stored = ArgumentSchema({"type": "object", **doubling(30)})
    assert not stored.is_valid({"x": {}})
    assert [fault.detail for fault in stored.faults({"x": {}})] == [
        "they are too large to be checked against a schema of this size"
    ]


def test_the_validator_remembers_what_it_checked_in_a_cycle() -> None:
    """What the count of a cycle relies on: a check of a recursive schema takes no exponential time."""
    validator = jsonschema_rs.Draft202012Validator(RECURSIVE, offline=True)
    with no_hang():
        validator.is_valid(nested(60, 7))
