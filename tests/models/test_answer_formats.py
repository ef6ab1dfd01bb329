"""A structured answer as each provider is asked for it, and the example that a model without one gives."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest

from app.agent.ports import AnswerFormat, ModelRequest, ToolDefinition
from app.core.messages import Message
from app.models import anthropic_wire, openai_wire
from app.models.answer_formats import closed, is_strict, keeps_formats
from app.models.demo import DemoModel, decide
from app.models.example_value import example

Json = Mapping[str, Any]

pytestmark = pytest.mark.anyio

STRICT: Json = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "pattern": "^[A-Z]"},
        "temp": {"type": ["integer", "null"], "minimum": 0},
        "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
    },
    "required": ["city", "temp", "next", "tags"],
    "additionalProperties": False,
    "$defs": {"tag": {"enum": ["a", "b"]}},
}
OPEN: Json = {"type": "object", "properties": {"x": {"type": "integer"}}}
FORMAT = AnswerFormat("W", STRICT)
REQUEST = ModelRequest([Message("user", "hi")], answer_format=FORMAT)
TOOL = ToolDefinition("W", "", {"type": "object"})


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("gpt-4o", True),
        ("gpt-4o-2024-08-06", True),
        ("gpt-4o-mini", True),
        ("openai/gpt-4.1", True),
        ("gpt-5-nano", True),
        ("o1", True),
        ("o3-mini", True),
        ("o4-mini", True),
        ("gpt-4o-2024-05-13", False),
        ("gpt-4-turbo", False),
        ("gpt-3.5-turbo", False),
        ("o1-mini", False),
        ("o1-preview", False),
        ("o365", False),
        ("my-gpt-4o", False),
        ("llama-3", False),
    ],
)
def test_models_are_known_by_their_names(name: str, kept: bool) -> None:
    assert keeps_formats("openai", name) is kept
    assert not keeps_formats("anthropic", name)


def test_a_strict_schema_is_one() -> None:
    assert is_strict(STRICT)


LOOSE: list[Json] = [
    {"additionalProperties": True},
    {"required": ["city"]},
    {"allOf": [{}]},
    {"properties": {**STRICT["properties"], "temp": {"type": "string", "maxLength": 3}}},
    {"properties": {**STRICT["properties"], "tags": {"items": OPEN}}},
    {"$defs": {"tag": {"not": {}}}},
]


@pytest.mark.parametrize("change", LOOSE)
def test_what_strict_mode_refuses_is_asked_for_without_it(change: Json) -> None:
    assert not is_strict({**STRICT, **change})


def test_chat_completions_is_asked_by_response_format() -> None:
    body = json.loads(openai_wire.encode_request("m", REQUEST, {}))
    shape = {"name": "W", "strict": True, "schema": STRICT}
    assert body["response_format"] == {"type": "json_schema", "json_schema": shape}
    loose = json.loads(openai_wire.encode_request("m", replace(REQUEST, answer_format=AnswerFormat("W", OPEN)), {}))
    assert loose["response_format"]["json_schema"]["strict"] is False
    own = json.loads(openai_wire.encode_request("m", REQUEST, {"response_format": {"type": "json_object"}}))
    assert own["response_format"] == {"type": "json_object"}
    without = json.loads(openai_wire.encode_request("m", replace(REQUEST, answer_format=None), {}))
    assert "response_format" not in without


def test_the_messages_api_is_asked_by_output_config() -> None:
    body = json.loads(anthropic_wire.encode_request("m", REQUEST, {"output_config": {"effort": "low"}}))
    assert body["output_config"] == {
        "format": {"type": "json_schema", "schema": closed(STRICT)},
        "effort": "low",
    }
    assert "output_config" not in json.loads(
        anthropic_wire.encode_request("m", replace(REQUEST, answer_format=None), {})
    )


def test_the_messages_api_gets_no_keyword_that_it_refuses() -> None:
    sent = closed(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "minimum": {"type": "integer", "minimum": 1},
                "list": {"type": "array", "minItems": 3, "maxItems": 4, "items": {"oneOf": [OPEN, {"pattern": "x"}]}},
                "kept": {"enum": [{"minimum": 1}]},
            },
            "required": ["minimum"],
        }
    )
    assert sent == {
        "type": "object",
        "properties": {
            "minimum": {"type": "integer"},
            "list": {
                "type": "array",
                "minItems": 1,
                "items": {"anyOf": [{**OPEN, "additionalProperties": False}, {}]},
            },
            "kept": {"enum": [{"minimum": 1}]},
        },
        "required": ["minimum"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("choice", ["required", "W"])
def test_beside_thinking_no_call_is_forced_for_the_answers_sake(choice: str) -> None:
    request = ModelRequest([Message("user", "hi")], [TOOL], tool_choice=choice, answer_tool="W")
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}

    def choice_of(request: ModelRequest, params: Json) -> object:
        return json.loads(anthropic_wire.encode_request("m", request, params))["tool_choice"]["type"]

    assert choice_of(request, thinking) == "auto"
    assert choice_of(request, {"thinking": {"type": "disabled"}}) == choice_of(request, {}) != "auto"
    assert choice_of(replace(request, answer_tool=None), thinking) != "auto", "an agent's own choice is its own"


EXAMPLES: list[Json] = [
    STRICT,
    OPEN,
    {},
    {"type": "array", "minItems": 2, "items": {"type": "boolean"}},
    {"type": "string", "minLength": 30},
    {"type": "string", "maxLength": 3},
    {"type": "integer", "exclusiveMinimum": 4.5},
    {"type": "number", "maximum": -2},
    {"anyOf": [{"const": {"a": 1}}, {"type": "null"}]},
    {"type": ["null", "string"]},
    {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"default": 3}}},
    {"type": "object", "required": ["x"], "properties": {"x": {"examples": [7]}, "y": {"type": "null"}}},
]


@pytest.mark.parametrize("schema", EXAMPLES)
def test_an_example_fits_its_schema(schema: Json) -> None:
    made = example(schema) if schema is not STRICT else {**_object(example(schema)), "city": "HZ", "next": None}
    assert jsonschema_rs.Draft202012Validator(dict(schema)).is_valid(made)


def test_an_example_of_a_schema_that_never_ends_is_given_up() -> None:
    assert example({"$ref": "#"}) is None
    assert json.dumps(example({"type": "array", "minItems": 1, "items": {"$ref": "#"}})).count("[") < 20


def _object(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value  # pyright: ignore[reportUnknownVariableType]


def test_the_demo_model_gives_an_example_where_its_rules_call_for_nothing() -> None:
    schema = {"type": "object", "properties": {"said": {"type": "string"}}}
    answer_tool = ToolDefinition("W", "", schema)
    calculator = ToolDefinition("calculator", "", {})
    request = ModelRequest([Message("user", "hi")], [calculator, answer_tool], answer_tool="W")
    (call,) = decide(request).calls
    assert (call.name, call.args) == ("W", {"said": "[demo model]"})
    asked = replace(request, messages=[Message("user", "What is 2+3?")])
    assert [call.name for call in decide(asked).calls] == ["calculator"]
    formatted = decide(replace(request, tools=(), answer_tool=None, answer_format=AnswerFormat("W", schema)))
    assert json.loads(formatted.content) == {"said": "[demo model]"}


async def test_the_demo_model_streams_its_example() -> None:
    request = ModelRequest([Message("user", "hi")], [ToolDefinition("W", "", OPEN)], answer_tool="W")
    *deltas, answer = [item async for item in DemoModel(delay_s=0).stream(request)]
    assert deltas
    assert answer == decide(request)
