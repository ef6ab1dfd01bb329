"""State fields: reducers, updates that are refused, and folds."""

import copy
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.state_schema import (
    ABSENT,
    REDUCERS,
    FieldUpdate,
    StateField,
    StateMisfit,
    StateSchema,
    Values,
    apply,
    own_copy,
    shown,
    updates_of,
)
from app.core.errors import FieldError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e6, 1e6) | st.text("abä\n", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abä", max_size=3), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text("abc", min_size=1, max_size=2), JSON, max_size=3)


def an_item(key: object, rest: dict[str, object]) -> dict[str, object]:
    return {**rest, "id": key}


ITEMS = st.lists(st.builds(an_item, st.integers(0, 4) | st.text("ab", max_size=1), OBJECTS), max_size=4)
GIVEN: dict[str, st.SearchStrategy[object]] = {
    "replace": JSON,
    "append": st.lists(JSON, max_size=3),
    "union": st.lists(JSON, max_size=4),
    "merge_by_id": cast("st.SearchStrategy[object]", ITEMS),
    "merge_object": cast("st.SearchStrategy[object]", OBJECTS),
    "sum": st.integers(-1000, 1000) | st.floats(-1000, 1000),
    "max": st.integers(-1000, 1000) | st.floats(-1000, 1000),
}
UPDATES = st.lists(
    st.sampled_from(sorted(GIVEN)).flatmap(lambda name: st.tuples(st.just(name), GIVEN[name])), max_size=12
)


def anything(_: object) -> tuple[FieldError, ...]:
    return ()


ALL = StateSchema({name: StateField(name, name, reducer, anything) for name, reducer in REDUCERS.items()})


def test_each_reducer_makes_the_new_value_of_the_old_one_and_the_update() -> None:
    made = {
        "append": REDUCERS["append"]([1], [1, 2]),
        "union": REDUCERS["union"]([1, {"a": 1, "b": 2}], [1, 2, {"b": 2, "a": 1}, True, 1.0, 2]),
        "merge_by_id": REDUCERS["merge_by_id"]([{"id": 1, "x": 1}, {"id": "1"}], [{"id": 1, "y": 2}, {"id": 2}]),
        "merge_object": REDUCERS["merge_object"]({"a": 1, "b": {"c": 1}}, {"b": {}, "d": None}),
        "sum": REDUCERS["sum"](1, 2),
        "max": REDUCERS["max"](3, 2),
        "replace": REDUCERS["replace"]([1], None),
    }
    assert made == {
        "append": [1, 1, 2],
        "union": [1, {"a": 1, "b": 2}, 2, True, 1.0],
        "merge_by_id": [{"id": 1, "y": 2}, {"id": "1"}, {"id": 2}],
        "merge_object": {"a": 1, "b": {}, "d": None},
        "sum": 3,
        "max": 3,
        "replace": None,
    }
    assert (REDUCERS["sum"](ABSENT, 2), REDUCERS["max"](ABSENT, "a"), REDUCERS["max"]("a", "b")) == (2, "a", "b")


@pytest.mark.parametrize(
    ("reducer", "old", "update"),
    [
        ("append", ABSENT, "text"),
        ("append", {"a": 1}, [1]),
        ("union", [], {"a": 1}),
        ("merge_by_id", [], [{"x": 1}]),
        ("merge_by_id", [], [{"id": True}]),
        ("merge_by_id", [1], [{"id": 1}]),
        ("merge_object", ABSENT, [1]),
        ("merge_object", [1], {}),
        ("sum", 1, "1"),
        ("sum", 1, True),
        ("sum", 2**63 - 1, 1),
        ("sum", 1.7e308, 1.7e308),
        ("max", "a", 1),
        ("max", 1, "a"),
        ("max", 1, None),
    ],
)
def test_what_a_reducer_cannot_take_is_refused_in_words(reducer: str, old: object, update: object) -> None:
    values: Values = {} if old is ABSENT else {reducer: old}
    with pytest.raises(StateMisfit) as refused:
        ALL.check({reducer: update}, values)
    (error,) = refused.value.errors
    assert error.pointer == f"/{reducer}"
    assert error.detail


@pytest.mark.parametrize(
    "update",
    [{"__own": 1}, {"nothing": 1}, {"messages": []}, {"replace": {1, 2}}, {"replace": "\x00"}, {"replace": 2**70}],
    ids=str,
)
def test_unknown_fields_the_servers_own_and_what_json_cannot_keep_are_refused(update: dict[str, object]) -> None:
    with pytest.raises(StateMisfit):
        ALL.check(update, {})
    with pytest.raises(StateMisfit):
        ALL.overwrite(update)


def test_every_fault_of_an_update_is_told_with_its_place() -> None:
    def strict(value: object) -> tuple[FieldError, ...]:
        return () if value == [] else (FieldError("/0", "too much"),)

    schema = StateSchema({"a/b": StateField("a/b", "append", REDUCERS["append"], strict), "n": ALL.fields["sum"]})
    with pytest.raises(StateMisfit) as refused:
        schema.check({"a/b": [1], "n": "x", "z": 1}, {})
    assert [error.pointer for error in refused.value.errors] == ["/a~1b/0", "/n", "/z"]


@given(UPDATES)
def test_a_fold_of_what_was_checked_is_what_the_reducers_made_live(given_updates: list[tuple[str, object]]) -> None:
    live: dict[str, object] = {}
    stored: list[FieldUpdate] = []
    values: Values = {}
    for name, update in given_updates:
        try:
            checked = ALL.check({name: update}, values)
        except StateMisfit:
            continue
        live[name] = REDUCERS[name](live.get(name, ABSENT), own_copy(update))
        stored += checked
        values = apply(values, checked)
    assert values == live
    replayed = updates_of(cast("list[object]", own_copy([update.to_json() for update in stored])))
    assert apply({}, replayed) == live
    for cut in range(len(replayed) + 1):
        assert apply(apply({}, replayed[:cut]), replayed[cut:]) == live


@given(UPDATES)
def test_nothing_that_was_given_or_held_is_changed(given_updates: list[tuple[str, object]]) -> None:
    values: Values = {}
    for name, update in given_updates:
        before, given_before = copy.deepcopy(values), copy.deepcopy(update)
        try:
            new = apply(values, ALL.check({name: update}, values))
        except StateMisfit:
            new = values
        assert (values, update) == (before, given_before)
        if isinstance(update, list):
            cast("list[object]", update).append("from outside")
            assert "from outside" not in str(new.get(name))
        values = new


def test_the_servers_own_fields_are_not_shown() -> None:
    assert shown(apply({}, [FieldUpdate("__before_agent", "replace", True), FieldUpdate("a", "replace", 1)])) == {
        "a": 1
    }


def test_a_plugin_reducer_is_stored_as_what_it_made() -> None:
    keeps_two = StateField(
        "last",
        "last_two",
        lambda old, new: [*cast("list[object]", [] if old is ABSENT else old), *cast("list[object]", new)][-2:],
        anything,
        plugin=True,
    )
    schema = StateSchema({"last": keeps_two})
    assert schema.check({"last": [3, 4]}, {"last": [1, 2]}) == (FieldUpdate("last", "replace", [3, 4]),)
