"""The answer schema: how it is asked for, named and read."""

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any, cast

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.answer import Misfit, asked_of, name_of, read_json
from app.core.errors import InvalidRequest
from app.core.ids import NAME_PATTERN
from app.runs.answers import AnswerSchemas, pinned

Json = Mapping[str, Any]

NODE: Json = {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}
PAIR: Json = {
    "$id": "https://example.com/pair",
    "anyOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#named"}],
    "$defs": {
        "a/b": {"type": "object", "properties": {"$ref": {"type": "integer"}, "const": {"$ref": "#/$defs/n"}}},
        "n": {"const": {"$ref": "#/$defs/n"}},
        "s": {"$anchor": "named", "type": "string"},
    },
}
SCHEMAS: list[Json] = [
    NODE,
    PAIR,
    {"enum": [{"$ref": "#/x"}, 1]},
    {},
    {"type": ["object", "null"], "required": ["value"]},
    {"not": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "null"}}},
]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3) | st.just({"$ref": "#/$defs/n"}),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$ref", "const", "value", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("schema", SCHEMAS)
@given(value=VALUES)
def test_inside_an_object_fits_what_fits_alone(schema: Json, value: object) -> None:
    alone = jsonschema_rs.Draft202012Validator(dict(schema), offline=True)
    asked = asked_of(schema, "tool")
    inside = jsonschema_rs.Draft202012Validator(dict(asked), offline=True)
    assert inside.is_valid({"value": value}) == alone.is_valid(value)
    assert not inside.is_valid({"value": value, "more": 1})
    assert not inside.is_valid({})


@pytest.mark.parametrize("strategy", ["tool", "provider", "text"])
def test_a_schema_of_an_object_is_asked_for_as_it_is(strategy: Any) -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "#"}}}
    assert asked_of(schema, strategy) is schema


def test_text_is_asked_for_as_the_schema_is() -> None:
    assert asked_of(NODE, "text") is NODE


@pytest.mark.parametrize(
    ("title", "taken", "name"),
    [
        ("W", (), "W"),
        ("The weather, today!", (), "The_weather_today"),
        ("天气", (), "structured_output"),
        ("3 wishes", (), "structured_output"),
        (None, (), "structured_output"),
        (7, (), "structured_output"),
        ("W", ("W", "W_2"), "W_3"),
        (None, ("structured_output",), "structured_output_2"),
        ("x" * 200, (), "x" * 60),
    ],
)
def test_the_name_is_the_title_and_no_tools(title: object, taken: tuple[str, ...], name: str) -> None:
    assert name_of({} if title is None else {"title": title}, taken) == name


@given(st.text(max_size=80), st.lists(st.text(max_size=3), max_size=3))
def test_every_title_gives_a_name(title: str, taken: list[str]) -> None:
    assert re.fullmatch(NAME_PATTERN, name_of({"title": title}, taken))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (" \n[1, 2]\n", [1, 2]),
        ('"so"', "so"),
        ("7", 7),
        ("null", None),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('Here it is:\n```\n{"a": "1\n2"}\n```\nAnything else?', {"a": "1\n2"}),
    ],
)
def test_json_is_read_bare_or_from_a_fence(text: str, value: object) -> None:
    assert read_json(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("not json", "it is not JSON"),
        ("", "it is not JSON"),
        ('Here: {"a": 1}', "it is not JSON"),
        ("NaN", "it is not JSON"),
        ('```json\n{"a": [1, ', "its JSON is not complete"),
        ('{"a": [1, ', "it is not JSON"),
        ("\ud800", "it is not JSON"),
        ('```json\n{"a": "\\u0000"}\n```', "it holds a value that cannot be kept"),
        ('```json\n{"a": "\\ud800"}\n```', "it holds a value that cannot be kept"),
        ('```json\n{"a": 123456789012345678901234567890}\n```', "it holds a value that cannot be kept"),
        ("[" * 100 + "]" * 100, "it is not JSON"),
        ("```json\n" + "[" * 100 + "]" * 100 + "\n```", "it holds a value that cannot be kept"),
    ],
)
def test_what_is_no_json_that_can_be_kept_is_a_misfit(text: str, why: str) -> None:
    with pytest.raises(Misfit, match=why):
        read_json(text)


@given(st.text(max_size=60) | st.text('`{}[]",:jsonul\\ 1\n', max_size=60))
def test_any_text_is_json_or_a_misfit(text: str) -> None:
    with contextlib.suppress(Misfit):
        json.dumps(read_json(text))


def test_a_misfit_names_the_place_inside_the_answer() -> None:
    answer = AnswerSchemas().of({"type": "tool_calling", "output_schema": NODE}, ())
    assert answer is not None
    fits: list[object] = [[], []]
    with pytest.raises(Misfit, match="at /value/1: expected an array, got 5"):
        answer.of_call({"value": [*fits, 5][1:]})
    assert answer.of_call({"value": fits}) == fits


@pytest.mark.parametrize("arguments", ["text", {"__arg1": "text"}])
def test_the_planners_form_of_one_argument_is_read_as_it_was(arguments: Any) -> None:
    schema = {"type": "object", "properties": {"__arg1": {"type": "string"}}, "additionalProperties": False}
    answer = AnswerSchemas().of({"type": "tool_calling", "output_schema": schema}, ())
    assert answer is not None
    assert answer.of_call(arguments) == {"__arg1": "text"}


def test_a_reference_that_leads_nowhere_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        AnswerSchemas().of({"type": "tool_calling", "output_schema": {"$ref": "#/$defs/x"}}, ())
    assert caught.value.errors[0].pointer.startswith("/agent/output_schema")


@pytest.mark.parametrize(
    ("settings", "by_format", "strategy"),
    [
        ({"type": "tool_calling", "output_schema": {}}, True, "provider"),
        ({"type": "tool_calling", "output_schema": {}, "output_strategy": "auto"}, False, "tool"),
        ({"type": "tool_calling", "output_schema": {}, "output_strategy": "tool"}, True, "tool"),
        ({"type": "react", "output_schema": {}}, True, None),
        ({"type": "tool_calling", "output_schema": None}, True, None),
        ({"type": "tool_calling"}, True, None),
    ],
)
def test_what_auto_comes_to_is_decided_once(settings: Json, by_format: bool, strategy: str | None) -> None:
    found = pinned(dict(settings), lambda: by_format)
    assert found.get("output_strategy") == (strategy or settings.get("output_strategy"))
    again = pinned(dict(found), lambda: not by_format)
    assert cast("object", again.get("output_strategy")) == found.get("output_strategy")
