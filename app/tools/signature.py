"""A function's signature as a JSON Schema, read once when the tool is registered."""

import copy
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Union, cast

from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from app.core.values import immutable
from app.tools.plugin_api import ToolContext

_PLAIN = (str, float, bool, int, dict, list, type(None), object, Any)


@immutable
class Signature:
    """What a call of the function needs to know."""

    parameters: dict[str, object]
    """JSON Schema, the context hidden."""
    context_parameter: str | None
    integers: tuple[str, ...]
    """Parameters typed `int`: JSON Schema lets 2.0 pass for one, Python does not."""
    adapter: "TypeAdapter[object] | None"
    """Converts arguments to the function's types; `None` where JSON's own do."""
    is_async: bool


def read_signature(function: Callable[..., object]) -> Signature:
    """Raises `TypeError` with what to change: a parameter without a usable type hint, `*args`, positional-only ones."""
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError("a tool returns its result; generators are not supported")
    target = function if inspect.isroutine(function) else function.__call__
    try:
        hints = typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise TypeError(f"its type hints cannot be read: {error}") from error
    context_parameter: str | None = None
    fields: list[tuple[str, object, object]] = []
    open_ended = False
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            open_ended = True
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise TypeError(f"parameter {parameter.name!r} must be one that can be given by name")
        elif _is_context(hint):
            context_parameter = parameter.name
        else:
            fields.append((parameter.name, hint, _default(parameter.default)))
    adapter = _adapter(function, fields, open_ended)
    schema = cast("dict[str, object]", _without_titles(adapter.json_schema()))
    schema.pop("description", None)
    schema.setdefault("properties", {})
    convert = any(not _is_json(hint) for _, hint, _ in fields)
    return Signature(
        schema,
        context_parameter,
        tuple(name for name, hint, _ in fields if hint is int),
        adapter if convert else None,
        inspect.iscoroutinefunction(target),
    )


def _adapter(
    function: Callable[..., object], fields: list[tuple[str, object, object]], open_ended: bool
) -> "TypeAdapter[object]":
    name = getattr(function, "__name__", "arguments")
    shape = dataclasses.make_dataclass(name, cast("Any", fields), kw_only=True)
    shape.__pydantic_config__ = ConfigDict(extra="allow" if open_ended else "forbid")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return TypeAdapter(cast("type[object]", shape))
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise TypeError(f"its type hints have no JSON Schema: {str(error).splitlines()[0]}") from error


def _default(value: object) -> Any:
    if value is inspect.Parameter.empty:
        return dataclasses.field()
    if isinstance(value, list | dict | set):
        return dataclasses.field(default_factory=lambda: copy.copy(cast("object", value)))
    return dataclasses.field(default=value)


def _is_context(hint: object) -> bool:
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    return hint is ToolContext or ToolContext in typing.get_args(hint)


def _is_json(hint: object) -> bool:
    """Whether a JSON value is already what the hint asks for."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _is_json(arguments[0])
    if origin is Literal:
        return all(value is None or isinstance(value, str | int | bool) for value in arguments)
    if origin in (list, dict, Union, types.UnionType):
        return all(_is_json(argument) for argument in arguments)
    return any(hint is plain for plain in _PLAIN)


def _without_titles(schema: object) -> object:
    """Pydantic's generated titles say nothing a model needs."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    members = cast("Mapping[str, object]", schema)
    cleaned: dict[str, object] = {}
    for key, value in members.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
            named = cast("Mapping[str, object]", value)
            cleaned[key] = {name: _without_titles(child) for name, child in named.items()}
        elif key in ("default", "const", "enum", "examples"):
            cleaned[key] = value
        else:
            cleaned[key] = _without_titles(value)
    return cleaned
